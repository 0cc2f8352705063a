"""Reads the columns of a data set's row: a column of the wrong type rejects the row, with a reason.

Rows come from third-party files. Nothing in them is evaluated, imported or unpickled; JSON inside a column is parsed
as JSON, with numbers as large as the sandbox can compare.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn


DataRow = Mapping[str, Any]

MAX_DIGITS = 4300
"""Most digits of an integer: neither the sandbox nor Python's parser accepts longer ones."""


class BadRow(ValueError):
    """A row does not match its layout. The message is the reason."""


class LeftOut(ValueError):
    """A row matches its layout, but is not a gradable problem. The message is the reason."""


def text(row: DataRow, *names: str, default: str | None = None) -> str:
    """The text in the first of the columns that the row has. An absent or null one is `default`, or else an error."""
    name = next((name for name in names if row.get(name) is not None), None)
    if name is None:
        if default is None:
            raise BadRow(f"{' or '.join(map(repr, names))} is missing or null; expected text")
        return default
    value = row[name]
    if not isinstance(value, str):
        raise BadRow(f"{name!r} is a {type(value).__name__}; expected text")
    return value


def statement(row: DataRow, *names: str) -> str:
    """`text`, which must not be blank."""
    value = text(row, *names).strip()
    if not value:
        raise BadRow(f"{names[0]!r} is blank; expected a statement")
    return value


def words(row: DataRow, *names: str) -> str:
    """The value of a column with an id or a label, a text or a number, as text; `""` if it is absent or null."""
    value = next((row[name] for name in names if row.get(name) is not None), "")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRow(f"{names[0]!r} is a {type(value).__name__}; expected text or a number")
    if isinstance(value, float):
        return "" if math.isnan(value) else str(int(value)) if value.is_integer() else repr(value)
    return str(value).strip()


def items(value: object, what: str) -> list[Any]:
    """A list; `BadRow` if it is something else."""
    if isinstance(value, list | tuple):
        return list(value)
    raise BadRow(f"{what} is a {type(value).__name__}; expected a list")


def texts(value: object, what: str) -> list[str]:
    """A list of texts of a row; `BadRow` if it is another thing, or has other things."""
    found = items(value, what)
    if not all(isinstance(each, str) for each in found):
        raise BadRow(f"{what} has something else than texts")
    return found


def table(value: object, what: str) -> DataRow:
    """A mapping; `BadRow` if it is something else."""
    if isinstance(value, Mapping):
        return value
    raise BadRow(f"{what} is a {type(value).__name__}; expected a mapping")


def pairs(inputs: object, outputs: object, what: str) -> list[tuple[Any, Any]]:
    """Two lists of one length as a list of pairs; `BadRow` if one is no list, or their lengths differ."""
    ones, others = items(inputs, f"the inputs of {what}"), items(outputs, f"the outputs of {what}")
    if len(ones) != len(others):
        raise BadRow(f"{what} has {len(ones)} inputs and {len(others)} outputs; expected as many")
    return list(zip(ones, others, strict=True))


def parsed(document: str, what: str) -> Any:
    """The value of a JSON document in a column.

    Raises:
        LeftOut: It has an integer of more than `MAX_DIGITS` digits, which the sandbox cannot compare.
    """
    try:
        return json.loads(document, parse_int=_integer, parse_constant=_no_constant)
    except (BadRow, LeftOut):
        raise
    except RecursionError as error:
        raise BadRow(f"{what} is nested too deeply") from error
    except ValueError as error:
        raise BadRow(f"{what} is no JSON ({error})") from error


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise LeftOut(f"a test has an integer of more than {MAX_DIGITS} digits")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise BadRow(f"a JSON column has {name}, which is no number")


def missing(columns: Sequence[tuple[str, ...]], row: DataRow) -> list[str]:
    """The columns that a row lacks; each may have any of its names."""
    return [" or ".join(names) for names in columns if not set(names) & row.keys()]
