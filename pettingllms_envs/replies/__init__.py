"""Parsers of model replies: the last line, lists of moves, boxed answers, fenced blocks. They run in linear time.

For an ambiguous reply a parser returns `pettingllms_envs.core.Unreadable` with a reason. It never raises, and nothing
that a model wrote is evaluated.
"""
