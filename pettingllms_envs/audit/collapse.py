"""Is a collapse near? Cut-off replies, and what changed from the first third of the training to the last, by role."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pettingllms_envs.audit.findings import Finding, Status
from pettingllms_envs.audit.rows import RunFacts
from pettingllms_envs.audit.series import FEW_STEPS, Counts, Series


MOST_CUT_OFF = 0.5
MANY_CUT_OFF = 0.2
FEW_REPLIES = 16
FACTOR = 3.0
"""By which the mean length of replies grows or falls until it is said."""
MOST_FLAT = 0.8
MOST_LOST = 0.4
FEWER = 0.75
"""Of replies that differ."""
CHANGE = 0.25
"""Of a share, which is said."""


def cut_off_replies(run: RunFacts, series: Series) -> Finding:
    """Few replies of a role reach their greatest length."""
    totals = {role: series.total(role) for role in series.roles}
    known = {role: counts for role, counts in totals.items() if counts.ended}
    if not known:
        return Finding("cut-off replies", "not recorded", "no row says whether replies were cut off.")
    shares = {role: counts.cut / counts.ended for role, counts in known.items()}
    words = ", ".join(
        f"{share:.0%} of {role}'s ({int(known[role].cut):,} of {int(known[role].ended):,})"
        for role, share in shares.items()
    )
    told = [share for role, share in shares.items() if known[role].ended >= FEW_REPLIES]
    if not told:
        text = f"cut off: {words}. No role has {FEW_REPLIES} replies: too few to tell."
        return Finding("cut-off replies", "not applicable", text)
    worst = max(told)
    status: Status = "failed" if worst > MOST_CUT_OFF else "warning" if worst > MANY_CUT_OFF else "passed"
    remedy = "Turn thinking off (chat_template_kwargs={'enable_thinking': False}) or raise max_completion_length."
    return Finding("cut-off replies", status, f"cut off: {words}.", remedy="" if status == "passed" else remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """What changed from the first third of the steps to the last.

    A change that comes with a higher return is told, and with `gain_excuses` no warning: a policy that has learned
    repeats itself, too.

    Args:
        value: The figure of counts, or `None` where it is not recorded.
        is_bad: Whether a change from the first number to the second is a bad sign.
        gain_excuses: Whether a higher return makes it good.
    """

    name: str
    figure: str
    value: Callable[[Counts], float | None]
    is_bad: Callable[[float, float], bool]
    remedy: str
    words: str = "{:.0%}"
    gain_excuses: bool = True

    def __call__(self, run: RunFacts, series: Series) -> Finding:
        if not run.is_training:
            return Finding(self.name, "not applicable", "a benchmark has no training steps.")
        thirds = {role: series.thirds(role) for role in series.roles}
        known = {role: pair for role, pair in thirds.items() if pair is not None}
        if not known:
            text = f"fewer than {FEW_STEPS} steps of training: no trend to see."
            return Finding(self.name, "not applicable", text)
        changes, bad = [], []
        for role, (first, _, last) in known.items():
            before, after = self.value(first), self.value(last)
            if before is None or after is None:
                continue
            gain = _gain(first, last)
            changes.append(f"{role} {self.words.format(before)} -> {self.words.format(after)}")
            if self.is_bad(before, after):
                changes[-1] += "" if gain is None else f" (mean return {gain[0]:.3g} -> {gain[1]:.3g})"
                if gain is None or gain[1] <= gain[0] or not self.gain_excuses:
                    bad.append(role)
        if not changes:
            return Finding(self.name, "not recorded", f"the rows do not have the {self.figure}.")
        text = f"{self.figure}, first to last third: {', '.join(changes)}."
        status: Status = "warning" if bad else "passed"
        return Finding(self.name, status, text, remedy=self.remedy if bad else "")


def _gain(first: Counts, last: Counts) -> tuple[float, float] | None:
    if not first.episodes or not last.episodes:
        return None
    return first.results / first.episodes, last.results / last.episodes


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


MORE_CUT_OFF = Trend(
    name="more cut-off replies",
    figure="share of cut-off replies",
    value=lambda counts: _share(counts.cut, counts.ended),
    is_bad=lambda first, last: last > MANY_CUT_OFF and last - first > MANY_CUT_OFF,
    remedy="Replies grow past their limit: raise max_completion_length, or lower learning_rate.",
    gain_excuses=False,
)
CHANGING_LENGTH = Trend(
    name="changing length",
    figure="mean tokens of a reply",
    value=lambda counts: _share(counts.tokens, counts.measured),
    is_bad=lambda first, last: last > FACTOR * first or last * FACTOR < first,
    remedy="Read some replies (`pettingllms view`); set beta above 0, lower learning_rate, or resume from before.",
    words="{:.1f}",
)
VANISHING_SIGNAL = Trend(
    name="vanishing signal",
    figure="share of flat groups",
    value=lambda counts: _share(counts.flat, counts.groups),
    is_bad=lambda first, last: last > MOST_FLAT and last - first > CHANGE,
    remedy="Little is left to learn from: raise temperature or num_generations, or change the instances.",
)
REPEATED_REPLIES = Trend(
    name="repeated replies",
    figure="share of different replies in a group",
    value=lambda counts: _share(counts.distinct, counts.varied),
    is_bad=lambda first, last: last < CHANGE * first,
    remedy="The policy collapses: raise temperature or entropy_coef, set beta above 0, or resume from before.",
)


def stopped_exploring(run: RunFacts, series: Series) -> Finding:
    """No role gives ever fewer different replies, to one prompt and over all, while it fails and gains no more.

    An early gain is no excuse, unlike in a `Trend`: such a role has settled on what it found first.
    """
    name = "stopped exploring"
    if not run.is_training:
        return Finding(name, "not applicable", "a benchmark has no training steps.")
    known = {role: found for role in series.roles if (found := series.thirds(role))}
    if not any(last.judged for *_, last in known.values()):
        text = f"fewer than {FEW_STEPS} steps, or nothing says whether episodes succeeded."
        return Finding(name, "not applicable", text)
    words, bad = [], []
    for role, (first, middle, last) in known.items():
        kinds = [_share(each.kinds, each.given) for each in (first, last)]
        others = [_share(each.other, each.again) for each in (first, last)]
        before, now = (each.solved / max(each.judged, 1) for each in (middle, last))
        noise = 2 * math.sqrt(before * (1 - before) * (1 / max(middle.judged, 1) + 1 / max(last.judged, 1)))
        if kinds[0] is None or kinds[1] is None or last.groups < FEW_REPLIES:
            continue
        words.append(f"{role} {kinds[0]:.0%} -> {kinds[1]:.0%} (success, middle to last: {before:.0%} -> {now:.0%})")
        are_alike = all(one is None or two is None or two < FEWER * one for one, two in (kinds, others))
        surely = last.lost > MOST_LOST * last.groups + 2 * math.sqrt(MOST_LOST * (1 - MOST_LOST) * last.groups)
        if are_alike and surely and now <= before + noise:
            bad.append(role)
    remedy = (
        f"{', '.join(bad)} stopped exploring before it succeeded: over two fifths of its groups are flat and fail. "
        "Restart with a lower learning_rate, entropy_coef above 0 or a higher temperature, or imitate successes."
    )
    text = f"share of different replies, first to last third: {', '.join(words)}."
    return Finding(name, "warning" if bad else "passed", text, remedy=remedy if bad else "")


COLLAPSE = (cut_off_replies, MORE_CUT_OFF, CHANGING_LENGTH, VANISHING_SIGNAL, REPEATED_REPLIES, stopped_exploring)
