"""exp as a polynomial on the range in which a query's scores lie."""
