"""Synthetic recall: tasks whose answers stand earlier in the row, drawn at random from a seed."""
