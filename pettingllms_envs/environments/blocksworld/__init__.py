"""Blocksworld. Read `rules`, then `towers`, which has the exact distances and makes instances."""
