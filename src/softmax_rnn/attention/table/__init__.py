"""The rows of the one table of names: a file for each group."""
