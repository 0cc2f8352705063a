"""Sequences packed into one row: what they share, the cheapest way to read it, and the row."""
