"""The known name that a misspelt one is nearest to, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """`" Did you mean 'sudoku'?"`, to follow a sentence, or the empty string if no known name is near.

    Args:
        given: What was given.
        known: The names that there are.
    """
    near = difflib.get_close_matches(str(given), [str(name) for name in known], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
