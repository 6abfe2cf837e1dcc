"""Taylor orders of exp: how far a truncation is from softmax."""
