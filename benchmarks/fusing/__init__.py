"""Recorded and fused ops beside strict mode, CPU eager and jax.jit of the same mathematics."""
