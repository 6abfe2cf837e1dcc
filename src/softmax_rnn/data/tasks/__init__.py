"""Synthetic recall: tasks whose answers appear earlier in the row, drawn at random from a seed."""
