"""Suggests the known name nearest to a misspelt one, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """`" Did you mean 'sudoku'?"`, to append to a sentence, or an empty string if no known name is near.

    The first that goes on where the given one ends, as `--model_name` does after `--model`, is nearer than others.
    """
    names = [str(name) for name in known]
    longer = [name for name in names if name.startswith((f"{given}_", f"{given}-"))]
    near = longer or difflib.get_close_matches(str(given), names, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
