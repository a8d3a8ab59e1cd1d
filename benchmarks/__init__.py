"""Benchmarks: each figure beside what it is compared with, in the same run. See ``python -m benchmarks --help``."""
