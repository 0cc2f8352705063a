"""Hanabi. Read `rules`, then `cards`, `text`, and the rule-based `bots`. Its workflows are for any cooperative game."""
