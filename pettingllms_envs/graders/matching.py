r"""Whether an answer agrees with the gold, part by part, given who decides on the smallest parts. Pure.

`agrees` only ever turns "yes" of its `equal` into "yes": so a caller who says yes to everything learns which parts
matter, and that an answer is wrong whatever they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from pettingllms_envs.graders import numbers, shapes, units
from pettingllms_envs.graders.estimates import differ
from pettingllms_envs.graders.reading import Reading
from pettingllms_envs.graders.shapes import Bag, Item, Leaf, Ordered, Shape


Equal = Callable[[str, str, float | None], bool]
"""Whether two expressions are equal: the gold's, the answer's, and how far a number may be off."""


def agrees(gold: Reading, answer: Reading, tolerance: Sequence[float], equal: Equal) -> bool:
    """Whether the answer is the gold: all that it lists, in any order, with nothing missing and nothing besides.

    Args:
        tolerance: How far numbers may be off: () for not at all, one for all, or one for each item of the gold.
        equal: Decides on two expressions that neither spelling nor arithmetic can tell apart.
    """
    if (answer.percent and not gold.percent) or units.clash(gold.unit, answer.unit):
        return False
    if gold.text == answer.text or (gold.percent and not answer.percent and _is_part(gold.text, answer.text)):
        return True
    several = len(gold.items)
    limits = list(tolerance) if len(tolerance) == several else [*tolerance, None][:1] * several
    if len(answer.items) == several and _ordered_by_names(gold.items, answer.items):
        return all(map(partial(_item, equal=equal), gold.items, answer.items, limits))
    if len(answer.items) == several:
        return one_to_one(
            [
                [_item(wanted, given, limit, equal) for given in answer.items]
                for wanted, limit in zip(gold.items, limits, strict=True)
            ]
        )
    wanted, given = _union(gold.items), _union(answer.items)
    if wanted and len(wanted) == len(given):
        return one_to_one([[_same(part, each, None, equal) for each in given] for part in wanted])
    if several == 1 and all(len(item.links) == 1 for item in answer.items):
        return _in_a_row(gold.items[0], answer.items, limits[0], equal)
    return False


def _is_part(gold: str, answer: str) -> bool:
    """Whether the answer is a hundredth of the gold, as 0.28 is of the 28 of 28%."""
    one, other = numbers.read(gold), numbers.read(answer)
    return one is not None and other is not None and other.value * 100 == one.value


def _ordered_by_names(golds: Sequence[Item], answers: Sequence[Item]) -> bool:
    """Whether the order matters: it does for `1, 2` where the gold is `x=1, y=2`, and not where it is `x=1, x=2`."""
    if len(golds) < 2 or any(len(each.links) < 2 for each in golds) or any(len(each.links) > 1 for each in answers):
        return False
    bases = [shapes.base_name(each.links[0]) for each in golds]
    return len(set(bases)) == len(bases)


def one_to_one(fits: Sequence[Sequence[bool]]) -> bool:
    """Whether each row can have a column of its own where it is True (a perfect matching, by augmenting paths)."""
    holder: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in tried:
                tried.add(column)
                if column not in holder or place(holder[column], tried):
                    holder[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(fits)))


def _union(items: Sequence[Item]) -> Sequence[Shape]:
    r"""The parts of `(-\infty,2)\cup(3,\infty)`, or of `x<2, x>3`: solved relations of one unknown; else none."""
    if len(items) == 1:
        whole = shapes.shape(items[0].links[-1])
        return whole.parts if isinstance(whole, Bag) and whole.kind == "union" else ()
    unknowns = {_unknown(item.text) for item in items}
    return [Leaf(item.text) for item in items] if len(unknowns) == 1 and "" not in unknowns else ()


def _in_a_row(gold: Item, answers: Sequence[Item], limit: float | None, equal: Equal) -> bool:
    """`(1,3)` written without its parentheses: the same parts in the same order."""
    whole = shapes.shape(_turned(gold.links)[-1])
    if not isinstance(whole, Ordered) or len(whole.parts) != len(answers) or whole.opening + whole.closing != "()":
        return False
    return all(
        _same(part, shapes.shape(each.text), limit, equal) for part, each in zip(whole.parts, answers, strict=True)
    )


def _item(gold: Item, answer: Item, limit: float | None, equal: Equal) -> bool:
    """One answer, with what stands between its equals signs.

    What stands first may be a name. All that follows must be right: `x=8=7` is neither 8 nor 7.
    """
    if gold.text == answer.text:
        return True
    wanted, given = _turned(gold.links), _turned(answer.links)
    if len(wanted) > 2 and not shapes.is_simple_name(wanted[0]):
        wanted = wanted[-1:]
    if len(wanted) == 1:
        named = len(given) > 1 and (shapes.names(given[0]) or shapes.is_quantity(given[0]))
        values = given[1:] if named else given
        return all(_value(wanted[0], each, limit, equal) for each in values)
    if shapes.is_simple_name(wanted[0]):
        if len(given) == 1:
            return _value(wanted[-1], given[0], limit, equal)
        if shapes.same_name(wanted[0], given[0]):
            values = tuple(shapes.renamed(each, given[0], wanted[0]) for each in given[1:])
            return all(_value(wanted[-1], each, limit, equal) for each in values)
    if shapes.is_quantity(wanted[0]) and not shapes.is_quantity(wanted[1]):
        if len(given) == 1:
            return _value(wanted[1], given[0], limit, equal)
        if shapes.is_quantity(given[0]):
            same = _value(wanted[0], given[0], None, equal)
            return same and all(_value(wanted[1], each, limit, equal) for each in given[1:])
    return len(given) == 2 and equal(gold.text, answer.text, None)  # equations, which may be written in another form


def _turned(links: tuple[str, ...]) -> tuple[str, ...]:
    """`2=x` as `x=2`."""
    turn = len(links) == 2 and not shapes.names(links[0]) and shapes.is_simple_name(links[1])
    return links[::-1] if turn else links


def _value(gold: str, answer: str, limit: float | None, equal: Equal) -> bool:
    return gold == answer or _same(shapes.shape(gold), shapes.shape(answer), limit, equal)


_RELATION = re.compile(r"[<>]|\\(?:le|ge|ne)(?![a-zA-Z])|\\\\(?:le|ge|ne)")
_UNKNOWN = re.compile(r"(?!\\infty|\\pi)\\?[A-Za-z]+(?:_(?:\w|\{\w*\}))?(?:\(\w\))?")
_COMMAND = re.compile(r"\\[A-Za-z]+")


def _unknown(text: str) -> str:
    r"""What a solved relation is about, such as the `x` of `-2\le x<2`; empty of `x^2<4`, and of what is none."""
    sides = [side.strip() for side in _RELATION.split(text)]
    for name in sides[1:2] if len(sides) == 3 else sides if len(sides) == 2 else ():
        if _UNKNOWN.fullmatch(name) and sum(name in _COMMAND.sub(" ", side) for side in sides) < 2:
            return name
    return ""


def _same(gold: Shape, answer: Shape, limit: float | None, equal: Equal) -> bool:
    if gold.text == answer.text:
        return True
    is_relation = [_RELATION.search(each.text) is not None for each in (gold, answer)]
    if isinstance(answer, Leaf) and is_relation == [False, True] and not _unknown(answer.text):
        return False  # math-verify would solve it
    if isinstance(gold, Leaf) and isinstance(answer, Leaf):
        return _leaf(gold.text, answer.text, limit, equal)
    if isinstance(gold, Ordered) and isinstance(answer, Ordered):
        brackets = gold.opening == answer.opening and gold.closing == answer.closing
        return (
            len(gold.parts) == len(answer.parts)
            and (brackets or len(gold.parts) > 2)  # two numbers may be an interval, and its brackets then matter
            and all(_same(one, other, limit, equal) for one, other in zip(gold.parts, answer.parts, strict=True))
        )
    if isinstance(gold, Bag) and isinstance(answer, Bag) and gold.kind == answer.kind:
        if len(gold.parts) == len(answer.parts):
            return one_to_one([[_same(one, other, limit, equal) for other in answer.parts] for one in gold.parts])
        return gold.kind == "union" and equal(gold.text, answer.text, None)
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, Leaf) and isinstance(other, Ordered) and not _RELATION.search(one.text):
            return False
        if isinstance(one, Bag) and one.kind == "set" and isinstance(other, Ordered):
            return False
    return equal(gold.text, answer.text, None)


def _leaf(gold: str, answer: str, limit: float | None, equal: Equal) -> bool:
    one, other = numbers.read(gold), numbers.read(answer)
    if one is not None and other is not None:
        return numbers.equal(one, other, limit)
    if _ANY_CASE.fullmatch(gold) and gold.lower() == answer.lower():
        return True
    if gold in _INFINITE or answer in _INFINITE:
        same = gold.lstrip("+") == answer.lstrip("+")
        return same or ((one is None and other is None) and equal(gold, answer, limit))
    if _WORD.fullmatch(gold) or _WORD.fullmatch(answer):
        words = _LETTERS.fullmatch(gold), _LETTERS.fullmatch(answer)
        return None not in words and _letters(gold) == _letters(answer)
    if {";", numbers.APART} & {*gold, *answer}:  # math-verify would take it for a space
        return False
    if numbers.bases(answer) not in ([], numbers.bases(gold) or ["10"]):
        return False  # math-verify reads no bases
    return not differ(gold, answer, limit) and equal(gold, answer, limit)


_INFINITE = (r"\infty", r"+\infty", r"-\infty")
_WORD = re.compile(r"\\text\{[^{}]*\}|[A-Za-z]{4,}")
_ANY_CASE = re.compile("[a-j]|no|[a-z]{3}", re.I)  # choices, and words that math-verify takes for products
_LETTERS = re.compile(r"\\text\{[^{}]*\}|[A-Za-z]+")


def _letters(text: str) -> str:
    return "".join(each for each in text.replace(r"\text", "").casefold() if each.isalnum())
