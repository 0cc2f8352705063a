"""How many replies were read strictly, only leniently, or not at all, for reports and trainings; see `reading`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms_envs.replies.reading import LENIENTLY, STRICTLY, UNREADABLE


READ_AS = {STRICTLY: "frac_read_strictly", LENIENTLY: "frac_read_leniently", UNREADABLE: "frac_unreadable"}
"""The share of an agent's replies that were read so, as a training logs it."""
MOST_UNREADABLE = 0.05
"""The share of replies that are unreadable above which reports and trainings warn."""


def form_of(recorded: str) -> str:
    """The form in a record's `reading`: `"unreadable"` of `"unreadable: it is empty"`."""
    return recorded.partition(": ")[0]


def counts_of(found: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """How many of an agent's replies were read strictly, only leniently, or not at all; why most of these were not.

    Each is a record's `reading` and the end of the reply. Without any, nothing is counted.
    """
    if not found:
        return {}
    forms = Counter(form_of(reading) for reading, _ in found)
    own = {"read_strictly": forms[STRICTLY], "only_leniently": forms[LENIENTLY], "unreadable": forms[UNREADABLE]}
    reasons = Counter(reading for reading, _ in found if form_of(reading) == UNREADABLE)
    for commonest, _ in reasons.most_common(1):
        example = next(end for reading, end in found if reading == commonest)
        return {**own, "unreadable_because": commonest.partition(": ")[2], "unreadable_example": example}
    return own


def warning_of(agent: str, own: Mapping[str, Any], remedy: str) -> str | None:
    """What to say of an agent of whose replies, see `counts_of`, more than `MOST_UNREADABLE` could not be read."""
    total = sum(own.get(each, 0) for each in ("read_strictly", "only_leniently", "unreadable"))
    if not own.get("unreadable", 0) > MOST_UNREADABLE * total:
        return None
    return (
        f"{own['unreadable'] / total:.0%} of the replies of {agent} are unreadable, most often because "
        f"{own['unreadable_because']}. One of them ends {json.dumps(own['unreadable_example'])}. Say in the prompt "
        f"how a reply is to end, {remedy} where replies are cut off."
    )
