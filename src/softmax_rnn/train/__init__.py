"""Training of any network on rows of tokens: exact resume, evaluation, records. Names no part of an attention."""
