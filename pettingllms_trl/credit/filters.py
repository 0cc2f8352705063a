"""Group filters: select the groups worth training on, and count how many more rows to play for those dropped.

A filter is a function from decisions to `Kept`:

    def of_solved_rows(decisions):
        return Kept.of(decisions, [i for i, d in enumerate(decisions) if d.episode_return > 0])

A scheme that looks beyond one group (running means, discounts, the deviation of a batch) should see all decisions, so
advantages are computed first and then selected by `Kept.indices`. Note what a filter drops: a group whose rewards are
all equal gives no signal relative to its own mean, but it does relative to the running mean of `rae`.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from pettingllms_trl.credit.grouping import Peers, Value, are_equal, numbers_of, siblings
from pettingllms_trl.records import Decision


class Kept(NamedTuple):
    """The decisions that a filter kept.

    Args:
        indices: Their indices among the given decisions.
        dropped: Number of dropped decisions of each agent, 0 included.
    """

    decisions: tuple[Decision, ...]
    indices: tuple[int, ...]
    dropped: Mapping[str, int]

    @classmethod
    def of(cls, decisions: Sequence[Decision], indices: Iterable[int]) -> Kept:
        """Keep the decisions at these indices, and count the others."""
        chosen = tuple(indices)
        dropped = Counter(d.agent for d in decisions)
        dropped.subtract(decisions[i].agent for i in chosen)
        return cls(tuple(decisions[i] for i in chosen), chosen, dict(dropped))


Filter = Callable[[Sequence[Decision]], Kept]
"""A group filter: selects the decisions worth training on."""


def nonzero_variance(
    decisions: Sequence[Decision], /, *, value: Value = "reward", peers: Peers = siblings, gamma: float = 1.0
) -> Kept:
    """Drop the groups whose numbers are all equal: relative to the group's mean their advantages are 0.

    DAPO's dynamic sampling (arXiv:2503.14476, section 3.2) drops the prompts that are always or never solved; this is
    the same for rewards other than 0 and 1. As in its code, except that a group of one is dropped, too.

    Args:
        value: The number that is compared within a group; in a trainer by default that of the credit scheme.
        peers: Defines the groups, as `grouping.siblings` or `grouping.episodes`; by default those of the scheme, too.
        gamma: Discount of `value="return_to_go"`.

    Example:
        Of the groups 1, 0 and 1, 1 the second is dropped.
    """
    groups = _varied(decisions, value, peers, gamma)
    return _keep(decisions, [group for members in groups.values() for group in members], peers)


def signal_to_noise(
    decisions: Sequence[Decision],
    /,
    *,
    threshold: float = 0.9,
    value: Value = "reward",
    peers: Peers = siblings,
    gamma: float = 1.0,
) -> Kept:
    r"""Keep the groups that carry the signal: the fewest that hold a share `threshold` of the variance of rewards.

    With `v_g` the (unbiased) variance of group g's numbers and groups ranked by it, the first n are kept, where n is
    the least with `v_1 + ... + v_n >= threshold * (v_1 + ... + v_G)`. The variance measures the signal, since the part
    of the gradient that comes from rewards grows with it, while that of KL and entropy terms, the noise, does not
    (SNR-aware filtering of RAGEN-2, arXiv:2604.06268, in the top-p form of its code, mode "linear").

    Adapted: groups are ranked separately for each agent, since the rewards of two roles need not have the same units.
    Groups without variance are always dropped. Variances are summed, as in the paper; its code ranks in the same
    order, but sums deviations (less 0.01), so that the same threshold keeps more groups there.

    Args:
        threshold: Share of the variance that is kept, above 0 to 1. 1 is `nonzero_variance`.

    Example:
        Groups 4, 0 and 2, 0 and 1, 0 have variances 8, 2, 0.5: with 0.7 only the first is kept (8 / 10.5 = 0.76), with
        0.9 the first two (0.95).
    """
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"threshold={threshold!r}, expected the share of the variance to keep, above 0 to 1")
    kept: list[Hashable] = []
    for members in _varied(decisions, value, peers, gamma).values():
        variances = {group: statistics.variance(numbers) for group, numbers in members.items()}
        enough = threshold * math.fsum(variances.values())
        ranked = sorted(variances, key=lambda group: -variances[group])
        held = accumulate((variances[group] for group in ranked), initial=0.0)  # by those before each
        kept += [group for group, before in zip(ranked, held, strict=False) if before < enough]
    return _keep(decisions, kept, peers)


def rows_to_play(decisions: Sequence[Decision], kept: Kept, *, num_played: int, num_wanted: int) -> int:
    """How many more rows of the data set to play, to keep as many decisions as `num_wanted` rows have, unfiltered.

    DAPO's dynamic sampling (arXiv:2503.14476) fills the batch with prompts that give a signal. It has one group a
    prompt; here a row has one for each decision of its episode, some of which are kept. So a row counts by the share
    of its decisions that are kept: if r rows have n decisions and k were kept, `f = r k / n` rows are filled, and at
    the same rate `(num_wanted - f) * num_played / f` more are needed, rounded up; at most `num_wanted` at a time,
    which is also the answer if none was kept. Call it again after they are played, until it returns 0.

    Args:
        decisions: Decisions of all rows played so far for this batch. Rows are identified by `Decision.instance`,
            which must differ between the rows of one call of the rollout and those of the next.
        num_played: Rows played so far, including those without decisions because their environment failed.
        num_wanted: Rows of a full batch.

    Example:
        8 rows of one decision each, 3 kept, 8 wanted: 5 * 8 / 3 = 13.3, so 14, bounded by 8. With two decisions each,
        of which 12 of 16 are kept, 6 rows are filled: 2 * 8 / 6 = 2.7, so 3.
    """
    filled = _num_rows(decisions) * len(kept.decisions)  # in units of 1 / n, so that all is exact
    missing = num_wanted * len(decisions) - filled
    if not filled:
        return num_wanted
    return min(-(-max(missing, 0) * num_played // filled), num_wanted)


def first_rows(decisions: Sequence[Decision], kept: Kept, num_wanted: int) -> Kept:
    """Keep only the first rows that together have as many kept decisions as `num_wanted` unfiltered rows.

    Like DAPO, this drops the surplus of the rows that were played last, whatever their rewards.
    """
    enough, num_rows = num_wanted * len(decisions), _num_rows(decisions)
    of_row = Counter(decision.instance for decision in kept.decisions)
    order = [*dict.fromkeys(decision.instance for decision in decisions)]
    held = accumulate((of_row[row] for row in order), initial=0)  # by those before each
    rows = {row for row, before in zip(order, held, strict=False) if before * num_rows < enough}
    return Kept.of(decisions, [i for d, i in zip(kept.decisions, kept.indices, strict=True) if d.instance in rows])


def check_kept(kept: Kept, decisions: Sequence[Decision], *, name: str) -> None:
    """Validate the result of a filter: some of the decisions, in their order.

    Raises:
        TypeError: It is not a `Kept`.
        ValueError: Its indices are out of range, repeated or out of order, or its decisions are not those at them.
    """
    if not isinstance(kept, Kept):
        raise TypeError(
            f"the filter {name} returned a {type(kept).__name__}, expected a Kept. Return Kept.of(decisions, indices)"
        )
    indices = list(kept.indices)
    if indices != sorted(set(indices)) or (indices and not 0 <= indices[0] <= indices[-1] < len(decisions)):
        raise ValueError(
            f"the filter {name} kept the indices {indices} of {len(decisions)} decisions, expected some of 0 to "
            f"{len(decisions) - 1}, each once and in order. Return Kept.of(decisions, indices)"
        )
    if len(kept.decisions) != len(indices) or any(
        d is not decisions[i] for d, i in zip(kept.decisions, indices, strict=True)
    ):
        raise ValueError(
            f"the filter {name} returned other decisions than those at the indices {indices}, expected the same "
            "objects: a filter chooses, and changes nothing. Return Kept.of(decisions, indices)"
        )


def _num_rows(decisions: Sequence[Decision]) -> int:
    return len({decision.instance for decision in decisions})


def _varied(
    decisions: Sequence[Decision], value: Value, peers: Peers, gamma: float
) -> dict[str, dict[Hashable, list[float]]]:
    """The numbers of the members of each group in which they differ, by agent or role, which the group's key has."""
    members: dict[str, dict[Hashable, dict[Hashable, float]]] = {}
    for i, (decision, numbers) in enumerate(zip(decisions, numbers_of(decisions, value, gamma), strict=True)):
        for k, number in enumerate(numbers):
            place = peers(i, decision, k)
            owner = place.role or decision.agent
            members.setdefault(owner, {}).setdefault((owner, place.group), {})[place.member] = number
    return {
        owner: {group: list(own.values()) for group, own in groups.items() if not are_equal(own.values())}
        for owner, groups in members.items()
    }


def _keep(decisions: Sequence[Decision], groups: Sequence[Hashable], peers: Peers) -> Kept:
    kept = set(groups)
    places = [peers(i, decision, 0) for i, decision in enumerate(decisions)]
    return Kept.of(decisions, [i for i, p in enumerate(places) if (p.role or decisions[i].agent, p.group) in kept])
