"""Rollouts: plays rows of the data set with an engine and returns episodes with all their candidates.

Loads no model library.
"""

from old_rollout.play import Rollout, merge, play


__all__ = ["Rollout", "merge", "play"]
