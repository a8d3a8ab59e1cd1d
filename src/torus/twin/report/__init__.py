"""A plan for people and programs: text, JSON, and HTML that needs nothing else."""
