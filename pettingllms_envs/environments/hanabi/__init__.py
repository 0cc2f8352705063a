"""Hanabi. Read `rules`, `cards`, `text` and the rule-based `bots`. Its workflows are for all cooperative games."""
