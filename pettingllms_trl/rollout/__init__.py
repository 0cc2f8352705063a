"""Rollouts: plays rows of the data set with an engine and returns episodes with all their candidates.

Loads no model library.
"""

from pettingllms_trl.records import Rollout, RolloutOptions
from pettingllms_trl.rollout.play import merge, play


__all__ = ["Rollout", "RolloutOptions", "merge", "play"]
