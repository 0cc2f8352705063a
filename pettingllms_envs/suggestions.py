"""Suggests the known name nearest to a misspelt one, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """`" Did you mean 'sudoku'?"`, to append to a sentence, or an empty string if no known name is near.

    Args:
        given: The given name.
        known: The known names.
    """
    near = difflib.get_close_matches(str(given), [str(name) for name in known], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
