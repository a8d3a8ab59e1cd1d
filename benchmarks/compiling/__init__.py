"""Measurements of torch.compile with the backend "tpu"."""
