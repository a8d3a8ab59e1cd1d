"""Measurements of explanations."""
