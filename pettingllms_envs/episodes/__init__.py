"""Plays episodes and records them as rows, reads, replays and compares them. docs/records.md describes the fields."""
