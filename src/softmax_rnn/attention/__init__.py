"""Attention as a value: the spec, the table of variants, the algebra, and the functions that compute it."""
