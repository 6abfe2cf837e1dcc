"""What runs on the card; nothing here is imported before the form runs."""
