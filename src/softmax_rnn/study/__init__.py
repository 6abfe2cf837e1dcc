"""Studies: many runs that answer a question, and what they say about each claim."""
