"""A run as one value: which model, which data, how to train. Joins `model`, `data` and `train`."""
