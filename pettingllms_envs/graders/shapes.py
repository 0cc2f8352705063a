r"""What an answer is made of: several answers, names with values, tuples and intervals, sets, unions. Pure.

    a_3 = 2, a_{37} = 19        two named values, in any order
    (1,2), (2,1)                two tuples, each with an order of its own
    (-\infty,0)\cup\{1\}        an interval and a set, in any order

A text is taken apart in the one spelling (`spelling.tight`); its smallest parts stay texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leaf:
    """A number or an expression."""

    text: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """Parts in an order between brackets: a tuple, a point, an interval."""

    opening: str
    parts: tuple[Shape, ...]
    closing: str
    text: str


@dataclass(frozen=True, slots=True)
class Bag:
    """Parts in any order: a set, or a union of sets."""

    kind: str
    parts: tuple[Shape, ...]
    text: str


Shape = Leaf | Ordered | Bag


@dataclass(frozen=True, slots=True)
class Item:
    """One of several answers: what stands between its equals signs, and the whole text."""

    links: tuple[str, ...]
    text: str


def items(text: str) -> list[Item]:
    r"""The answers that a text lists: between commas or semicolons, out of a set's braces, and two for a `\pm`."""
    while _wraps(text, "{", "}"):
        text = text[1:-1]
    groups = split(text, ";")
    if len(groups) > 1 and any(len(split(group, ",")) > 1 for group in groups):
        listed = [f"({','.join(_links(part)[-1] for part in split(group, ','))})" for group in groups if group]
    else:
        listed = [part for group in groups for part in split(group, ",") if part]
    if len(listed) == 1 and _wraps(listed[0], "\\{", "\\}"):
        listed = list(dict.fromkeys(part for part in _parts(listed[0][2:-2]) if part))
    exact = [exact_side(part) for each in listed for part in _both_signs(each)]
    return [Item(tuple(_links(part)), part) for part in exact]


def shape(text: str) -> Shape:
    """What one answer is made of."""
    text = _REALS if text in _ALL_REALS or _UNBOUNDED.fullmatch(text) else exact_side(text)
    unions = split(text, "\\cup")
    if len(unions) > 1:
        return Bag("union", tuple(shape(part) for part in unions), text)
    if _wraps(text, "\\{", "\\}"):
        return Bag("set", tuple(shape(part) for part in dict.fromkeys(_parts(text[2:-2])) if part), text)
    if _wraps(text, "([", ")]"):
        parts = _parts(text[1:-1])
        if len(parts) > 1:
            return Ordered(text[0], tuple(shape(part) for part in parts), text[-1], text)
        if text[0] == "(" and text[-1] == ")":
            return shape(text[1:-1])
    if _wraps(text, "{", "}"):
        return shape(text[1:-1])
    return Leaf(text)


_REALS = r"(-\infty,\infty)"
_ALL_REALS = (r"\mathbb{R}", r"\text{allrealnumbers}", r"\text{allreals}", "allrealnumbers", "allreals")
_UNBOUNDED = re.compile(r"-\\infty<\\?[A-Za-z]+<\+?\\infty")
_NUMERAL = re.compile(r"[+-]*(?:\d+(?:\.\d*)?|\.\d+)(?:(?:\\times|\\cdot)10\^(?:\d|\{[+-]?\d+\}))?(?:\.\.\.|\\ldots)?")


def exact_side(text: str) -> str:
    r"""What counts of an approximation: the side that is no numeral, as in `\sqrt{2} \approx 1.41`; else the left one.

    A name on the left, as in `x = \frac13 \approx 0.33`, stays. Where several sides are no numerals, they stay with
    equals signs between them, and so all of them must be right.
    """
    if "\\approx" not in text:
        return text
    sides = [_links(side) for side in split(text, "\\approx") if side]
    name = [sides[0].pop(0)] if sides and sum(map(len, sides)) > 1 and names(sides[0][0]) else []
    sides = [side for side in sides if side]
    exact = [side for side in sides if not all(map(_NUMERAL.fullmatch, side))] or sides[:1]
    return "=".join([*name, *(link for side in exact for link in side)]) or text


_OPENING = ("\\{", "{", "(", "[")
_CLOSING = ("\\}", "}", ")", "]")
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)


def split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand in no brackets."""
    parts, depth, start, at = [], 0, 0, 0
    for match in _TOKEN.finditer(text):
        token, at = match.group(), match.start()
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            depth -= 1
        elif token == separator and depth == 0:
            parts.append(text[start:at].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def _parts(text: str) -> list[str]:
    """What stands between the commas within brackets; where there are none, between the semicolons."""
    parts = split(text, ",")
    return parts if len(parts) > 1 else split(text, ";")


def depth(text: str) -> int:
    """How deep the brackets of a text are nested."""
    deepest = level = 0
    for match in _TOKEN.finditer(text):
        if match.group() in _OPENING:
            level += 1
            deepest = max(deepest, level)
        elif match.group() in _CLOSING:
            level -= 1
    return deepest


def _wraps(text: str, opening: str, closing: str) -> bool:
    """Whether the first bracket closes at the very end. `opening` and `closing` are one bracket each, or choices."""
    choices = ("\\{", "\\}") if opening == "\\{" else (*opening, *closing)
    tokens = _TOKEN.findall(text)
    if len(tokens) < 2 or tokens[0] not in choices or tokens[-1] not in choices or tokens[0] in _CLOSING:
        return False
    level = 0
    for at, token in enumerate(tokens):
        level += (token in _OPENING) - (token in _CLOSING)
        if level == 0:
            return at == len(tokens) - 1
    return False


def _links(text: str) -> list[str]:
    r"""What stands between equals signs; `x \in S` has a name and a value as well."""
    links = split(text, "=")
    if len(links) == 1:
        name, *values = split(text, "\\in")
        if len(values) == 1 and names(name):
            return [name, values[0]]
    return links if all(links) else [text]


def _both_signs(text: str) -> list[str]:
    if "\\pm" not in text:
        return [text]
    return [
        text.replace("\\pm", sign).replace("\\mp", other).replace(f"{sign} ", sign)
        for sign, other in (("+", "-"), ("-", "+"))
    ]


_NAME = re.compile(
    r"(?:(?P<command>\\[a-zA-Z]++)|_(?>\{[^{}]*\}|\\[a-zA-Z]+|.)|\((?:[^()]*)\)|\{[A-Za-z ,/]*\}|[A-Za-z'|,:/+\- ])+"
)
_NO_NAME = re.compile(
    r"\\(?!(?:text|angle|triangle|overline|widehat|max|min|prime|[vV]?ar[a-z]+|alpha|beta|gamma|delta"
    r"|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|upsilon|phi|chi|psi|omega"
    r"|Gamma|Delta|Theta|Lambda|Xi|Sigma|Phi|Psi|Omega)(?![a-zA-Z]))"
)
_GROUP = re.compile(r"\([^()]*\)|\{[^{}]*\}")
_LETTER = re.compile(r"[A-Za-z]")


def names(text: str) -> bool:
    r"""Whether what stands left of an equals sign only says what is meant: `x`, `f(x)`, `m_{\max}`, `m+n`."""
    return bool(_LETTER.search(text)) and not _NO_NAME.search(text) and _NAME.fullmatch(text) is not None


_SIMPLE = re.compile(r"(?P<base>\\?[A-Za-z]+'*)(?P<index>_(?:\{[^{}]*\}|\\[a-zA-Z]+|.))?(?:\((?P<argument>[^()]*)\))?")


def same_name(one: str, other: str) -> bool:
    """Whether two names may mean the same: an index or an argument may be left out, but not differ.

    The arguments of functions may be different letters: see `rename`.
    """
    if one == other:
        return True
    first, second = _SIMPLE.fullmatch(one), _SIMPLE.fullmatch(other)
    if first is None or second is None or first["base"] != second["base"]:
        return False
    if None not in (first["index"], second["index"]) and first["index"] != second["index"]:
        return False
    arguments = {each for each in (first["argument"], second["argument"]) if each is not None}
    return len(arguments) < 2 or all(len(each) == 1 and each.isalpha() for each in arguments)


_NOTATION = re.compile(
    r"[fghFGHP](?:\^\{-1\}|'+|_(?:\{[^{}]*\}|\w))?\([^()=]*\)"
    r"|\\(?:angle|triangle) ?[A-Z]+|[A-Z]{2,3}|\[[A-Z]{3,6}\]"
)
_DERIVATIVE = re.compile(r"\\frac\{d[a-zA-Z]\}\{d[a-zA-Z]\}")
_JOINING = re.compile(r"(?:\\(?:frac|cdot|times|sqrt)|[+\-*/{}()^\d ])*")


def is_quantity(text: str) -> bool:
    r"""Whether an expression only names what is asked for, as `\frac{AB}{CD}`, `f(2)+f(3)` and `\frac{dy}{dx}` do.

    One in unknowns, such as the `x+y` of `x+y=1`, does not: that is an equation, and its right side is no answer.
    """
    rest = _NOTATION.sub(" ", _DERIVATIVE.sub(" ", text))
    return rest != text and _JOINING.fullmatch(rest) is not None


def base_name(text: str) -> str:
    """A name without its index and its arguments."""
    match = _SIMPLE.fullmatch(text)
    return text if match is None else match["base"]


def is_simple_name(text: str) -> bool:
    """Whether a text is one name, such as `x`, `a_n` or `f(x)`, or a row of them, and no sum of names."""
    return names(text) and not {"+", "-"} & set(_GROUP.sub("", text))


def renamed(value: str, answer_name: str, gold_name: str) -> str:
    """The value of a function in the gold's variable: `t^2` for `f(t)`, where the gold has `f(x)`, is `x^2`."""
    first, second = _SIMPLE.fullmatch(answer_name), _SIMPLE.fullmatch(gold_name)
    if first is None or second is None or first["argument"] is None or second["argument"] is None:
        return value
    old, new = first["argument"], second["argument"]
    tokens = _TOKEN.findall(value)
    if old == new or not (len(old) == 1 and old.isalpha() and len(new) == 1 and new.isalpha()) or new in tokens:
        return value
    return "".join(new if token == old else token for token in tokens)
