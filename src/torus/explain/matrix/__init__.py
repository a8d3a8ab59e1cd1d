"""Captum, unmodified, on the device against the CPU: every public class, on three models, in every execution mode.

``python -m torus.explain.matrix`` prints a table of error, time, programs and peak memory, writes JSON and HTML, and
fails when a result is worse than the CPU's. Captum is an optional dependency (``pip install 'torus[explain]'``).
"""
