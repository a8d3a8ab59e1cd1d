"""The twin's answers beside those of the TPU compiler, which needs no TPU."""
