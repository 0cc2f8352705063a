"""From the text of an answer to what can be compared: its spelling, its parts, its unit. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pettingllms_envs.graders import numbers, shapes, spelling, units
from pettingllms_envs.graders.shapes import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An answer, read.

    Args:
        text: All of it, in the one spelling.
        items: The answers that it lists; one, as a rule.
        unit: Its unit, in one name (`units.canonical`); may be empty.
    """

    text: str
    items: tuple[Item, ...]
    percent: bool
    unit: str


_AND = re.compile(r"\\text\{[^{}]*\}|(?<![A-Za-z\\])(?:and|or)(?![a-z])")
_AND_TEXT = re.compile(r"\\text\{[\s,]*(?:and|or)[\s,]*\}|and|or")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_LONELY = re.compile(r"\(?[A-Za-z]?\)?|[^A-Za-z{}]*|[+-]?\d[^{}]*")
_VALUE = re.compile(r"(?P<name>[^,]*(?:=|\\approx)\s*)?(?P<value>(?:(?!=|\\approx).)*)", re.DOTALL)


def read(text: str, *, unit: str = "", multiple: bool = False) -> Reading:
    """Read an answer.

    Args:
        unit: The unit that the problem asks for; may be empty.
        multiple: Whether a comma always separates answers, and never thousands.
    """
    bare, percent = units.without_percent(numbers.spaced(spelling.plain(text)))
    bare = _TEXT.sub(_lonely, _AND.sub(_comma, units.without_degrees(bare))).strip()
    bare, found = units.without_unit(bare)
    if not multiple:
        bare = _without_thousands(bare)
    parts = [units.without_unit(part) for part in shapes.split(bare, ",")]
    found = found or next((each for _, each in parts if each), "")
    tight = numbers.joined(spelling.tight(",".join(part for part, _ in parts)))
    asked = units.canonical(unit)
    found = found or asked or units.DOLLAR * (units.DOLLAR in text)
    return Reading(text=tight, items=tuple(shapes.items(tight)), percent=percent or asked == "%", unit=found)


def _comma(match: re.Match[str]) -> str:
    """A comma for an "and" or an "or", be it a text of its own; other texts stay."""
    return "," if _AND_TEXT.fullmatch(match.group()) else match.group()


def _lonely(match: re.Match[str]) -> str:
    """A letter or a number that is written as a text; other texts stay."""
    content = match[1].strip()
    return f" {content} " if _LONELY.fullmatch(content) else match[0]


def _without_thousands(text: str) -> str:
    match = _VALUE.fullmatch(text)
    return (match["name"] or "") + numbers.without_thousands(match["value"].strip()) if match else text
