r"""Units that an answer may repeat or leave out: `45 \text{ minutes}`, `166 \mathrm{cm}^2`, `28\%`. Pure."""

from __future__ import annotations

import re


_NAMES = (
    "m meter metre, km kilometer kilometre, cm centimeter centimetre, mm millimeter millimetre, ft foot feet",
    "in inch inches, mi mile, mi/h mph, yd yard, s sec second, min minute, h hr hour, day, week, year yr",
    "kg kilogram, g gram, mg milligram, lb pound, oz ounce, l liter litre, ml milliliter millilitre",
    "dollar usd, euro eur, cent, km/h kph kmh kmph, degree deg",
)
_KNOWN = {name: names.split()[0] for row in _NAMES for names in row.split(",") for name in names.split()}
DOLLAR = r"\$"
_NO_DOLLARS = {*_KNOWN.values()} - {"dollar"}
_POWERS = {"square": "^2", "sq": "^2", "squared": "^2", "cubic": "^3", "cu": "^3", "cubed": "^3"}

_NO_UNIT = re.compile(
    r"\b(?:and|or|not|is|are|if|for|where|when|with|mod|but|only)\b"
    r"|^\s*(?:plus|minus|times\s+\w+|over|divided|point|choose|squared|cubed|factorial)\b",
    re.I,
)
_COUNT = re.compile("hundred|thousand|[mb]illion|trillion|dozen|hal[fv]|third|fourth|quarter|fifth|sixth|eighth|tenth")
"""Parts of units that change the number, and so cannot be left out."""
_UNIT = re.compile(
    r"(?<=[\d})])(?:\s*\\text\{(?P<text>[A-Za-z./\s-]+(?:(?:(?<=m)|(?<=[A-Za-z]{2}))\^[23])?)\}"
    r"|\s+(?P<words>(?:[A-Za-z]{3,}|km|cm|mm|kg|ft|mi|hr)(?:\s+[A-Za-z]{3,})*(?:\s*/\s*[A-Za-z]+)?)"
    r"|(?P<close>km|cm|mm|kg|min)(?P<per>/[a-z]+)?)"
    r"\s*(?P<power>\^\s*(?:[23]|\{\s*[23]\s*\}))?$"
)
_MARKS, _AROUND_POWER = re.compile(r"\\(?:text|math)[a-z]*|[{}$\\~]"), re.compile(r"[\s{}]")
_PERCENT = re.compile(r"%|\\text\{\s*(?:%|percent|pct|per cent)\s*\}|(?<=[\d\s}])(?:percent(?:age)?|pct)\b")
_DEGREE = re.compile(r"\^\s*\\circ(?![a-zA-Z])\s*|(?:(?<!\s)\s+)?\\text\{\s*degrees?\s*\}|(?<=\d)\s+degrees?\b")


def canonical(unit: str) -> str:
    """One name for a unit, such as `"km"` for `"kilometres"`; what is not known keeps its letters."""
    words = _MARKS.sub(" ", unit.replace(".", "")).lower().replace(" per ", "/").replace("/", " / ").split()
    power = "".join(_POWERS.get(word, "") for word in words)
    names = "".join("/" if word == "/" else _singular(word) for word in words if word not in _POWERS)
    return _KNOWN.get(names, names) + power


def clash(one: str, other: str) -> bool:
    """Whether two canonical units are not the same, and neither is left out; millions and halves cannot be."""
    if not {one, other} & _NO_DOLLARS:  # but for these a sign may stand beside any word, as in `\\$5 \\text{ each}`
        one, other = one.replace(DOLLAR, ""), other.replace(DOLLAR, "")
    one, other = (unit[:2] + unit[2:].rstrip("esiy") for unit in (one, other))  # boxes, candies
    return one != other and ("" not in (one, other) or _COUNT.search(one + other) is not None)


def without_unit(text: str) -> tuple[str, str]:
    """A plain text (`spelling.plain`) without the unit at its end, and the canonical unit, empty if there is none."""
    match = _UNIT.search(text)
    if match is None:
        return text, ""
    words = match["text"] or match["words"] or match["close"] + (match["per"] or "")
    if _NO_UNIT.search(words):
        return text, ""
    power = _AROUND_POWER.sub("", match["power"] or "")
    return text[: match.start()].rstrip(), canonical(words) + power


def without_percent(text: str) -> tuple[str, bool]:
    """The text without its signs of per cent, and whether there was one."""
    bare = _PERCENT.sub(" ", text)
    return bare, bare != text


def without_degrees(text: str) -> str:
    """The text without its signs of degrees."""
    return _DEGREE.sub(" ", text)


def _singular(word: str) -> str:
    base, hat, power = word.partition("^")
    name = _KNOWN.get(base) or _KNOWN.get(base.removesuffix("s")) or base
    return name + hat + power
