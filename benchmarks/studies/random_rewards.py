"""A reward that is drawn: a control of methods that keep, or go on with, the candidate that is paid best.

    reward_funcs: [benchmarks.studies.random_rewards.drawn]

It outweighs what an environment pays, so that the best-paid candidate of a decision is any of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any


SIZE = 1000.0
"""Far more than a step of an episode pays."""


def drawn(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float]:
    """A number in [0, `SIZE`) for each candidate of a decision, the same for the same candidates of a prompt."""
    rng = random.Random(f"{prompts} {completions}")
    return [SIZE * rng.random() for _ in completions]
