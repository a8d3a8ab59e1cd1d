"""Dynamic sizes: padded programs, and what their ops must take care of."""
