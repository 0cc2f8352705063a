"""A group filter as a user writes it, in a module of its own, so that a configuration can name it."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trl import Decision
from pettingllms_trl.credit import Kept


def first(decisions: Sequence[Decision], *, most: int = 9) -> Kept:
    """The first decisions alone."""
    return Kept.of(decisions, range(min(most, len(decisions))))
