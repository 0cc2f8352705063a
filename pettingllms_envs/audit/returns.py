"""Are the returns of an episode the sums of the rewards of its steps?"""

from __future__ import annotations

import math

from pettingllms_envs.audit.counting import FaultCheck, where_of
from pettingllms_envs.audit.rows import Episode


TOLERANCE = 1e-6
"""Absolute; of returns above 1000 relative, 1e-9."""


class WrongReturns(FaultCheck):
    """Each agent's return is the sum of its rewards."""

    name = "wrong returns"
    unit = "return"
    lacking = "some rows do not have every agent's reward of every step."
    bad = "are not the sums of their episodes' rewards"
    good = "each is the sum of the agent's rewards"
    remedy = (
        "Rates and advantages that are made of returns are wrong with them. Look for what changes rewards "
        "or returns after the step, or for steps that the row lacks; `pettingllms replay` plays it again."
    )
    nothing = ("not recorded", "the rows have no returns.")

    def observe(self, episode: Episode) -> None:
        if episode.error is not None:
            return
        self._missing |= not episode.returns
        for agent, value in episode.returns.items():
            total = episode.reward_sums.get(agent)
            if value is None or total is None:
                self._missing = True
            elif math.isfinite(value) and math.isfinite(total):
                right = math.isclose(value, total, rel_tol=1e-9, abs_tol=TOLERANCE)
                fault = None if right else f"{agent} has {value:g}, its rewards sum to {total:g}"
                self._judge(where_of(episode), fault)
