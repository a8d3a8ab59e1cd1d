"""Explanations for people: HTML that needs nothing else, SVG, PNG."""
