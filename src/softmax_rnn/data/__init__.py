"""Training data: texts and tasks become rows of token numbers. Nothing here knows of models or attention."""
