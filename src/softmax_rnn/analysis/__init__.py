"""Looking inside models: the Taylor terms of their scores, what truncating them costs, perplexity."""
