"""Rollouts: from rows of the data set and an engine to episodes with all their candidates. Loads no model library."""

from pettingllms_trl.rollout.play import Rollout, merge, play


__all__ = ["Rollout", "merge", "play"]
