"""Charts and pages from records; knows no torch."""
