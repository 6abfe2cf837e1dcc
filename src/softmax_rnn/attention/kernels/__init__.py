"""How the forms compute: the only files of the core that turn a contraction into sums."""
