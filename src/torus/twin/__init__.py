"""A TPU that is not here: whether a model fits, how fast it could be, and what its programs are."""
