"""Role-conditioned advantage estimation: the baseline is a role's running mean, which checkpoints save."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from pettingllms_trl.credit.grouping import Advantages, Value, numbers_of
from pettingllms_trl.credit.schemes import EITHER, scheme
from pettingllms_trl.records import Decision, role_of


def rae(
    decisions: Sequence[Decision], baselines: Mapping[str, float], /, *, decay: float = 0.95, value: Value = "reward"
) -> tuple[Advantages, dict[str, float]]:
    r"""Advantages over each role's running mean, `A = R - b`, and the means after, `b <- decay b + (1 - decay) R`.

    Role-conditioned advantage estimation of SPIRAL (arXiv:2506.24119). As in its code, the baseline is read before it
    is updated with the sample from which it is subtracted, so that the gradient stays unbiased; it starts at 0, and
    episodes are processed one after another. (There an advantage of exactly 0 is removed from the batch; here it stays
    in it.) With `value="outcome"` and one candidate for each decision, `R` is the agent's return of the episode,
    counted once, and all of the agent's decisions in it get the same advantage, as there.

    Adapted: the paper's games are between two players. With other values, or several candidates, each decision updates
    the baseline once, with the mean of its candidates, all of which are compared with the same baseline. Rows of a
    data set that are different games share a role's baseline, while the paper has one for each game.

    Args:
        decisions: Decisions in the order in which they update the baselines.
        baselines: The roles' running means so far; 0 for a role without one.
        decay: 0 to 1, exclusive: about `1 / (1 - decay)` samples are averaged. 0.95 in the paper.
        value: The number used as `R`.

    Returns:
        Advantages, and the updated running means of the roles.

    Example:
        A role at baseline 0 returns 1, then 1 again: advantages 1, then 1 - 0.05 = 0.95; its baseline is then
        0.95 * 0.05 + 0.05 = 0.0975.
    """
    after = dict(baselines)
    numbers = numbers_of(decisions, value)
    once = value == "outcome" and all(len(decision.candidates) == 1 for decision in decisions)
    before: dict[Hashable, float] = {}  # the baseline that a sample was compared with
    advantages = []
    for i, (decision, row) in enumerate(zip(decisions, numbers, strict=True)):
        role = role_of(decision.agent)
        sample = (decision.instance, decision.episode, decision.agent) if once else i
        if sample not in before:
            before[sample] = after.get(role, 0.0)
            after[role] = decay * before[sample] + (1.0 - decay) * (sum(row) / len(row))
        advantages.append([number - before[sample] for number in row])
    return advantages, after


@scheme("rae", EITHER)
class RunningBaseline:
    """[`rae`] as a credit scheme that keeps the roles' running means from one rollout to the next.

    Args:
        value: As in [`rae`]. `credit="rae"` uses `"reward"` in a tree and `"outcome"` with `sampling="parallel"`.
    """

    def __init__(self, *, decay: float = 0.95, value: Value = "reward") -> None:
        if not 0.0 < decay < 1.0:
            raise ValueError(
                f"decay={decay!r}, expected a number between 0 and 1, such as 0.95: the share that is kept"
            )
        self.decay = decay
        self.value: Value = value
        self.baselines: Mapping[str, float] = {}

    def __call__(self, decisions: Sequence[Decision], /) -> Advantages:
        """Advantages of a rollout; updates the baselines."""
        advantages, self.baselines = rae(decisions, self.baselines, decay=self.decay, value=self.value)
        return advantages

    def state_dict(self) -> dict[str, Any]:
        """The running means by role, as numbers that JSON represents exactly."""
        return {"baselines": dict(self.baselines)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.baselines = {str(role): float(baseline) for role, baseline in state["baselines"].items()}
