"""Reads the numeric tolerance from a problem's statement: "absolute or relative error of at most 10^-6".

A bound is read from one sentence: words about an error of the answer, and a number below 1 in the position of a bound.
Numbers are recognized as powers of 10 (in TeX, HTML, Unicode, or with the superscript lost), in floating-point
notation, and as decimals. docs/grading.md lists what is recognized and what is not.
"""

from __future__ import annotations

import re
import unicodedata

from pettingllms_envs.sandbox.values import ToleranceKind


MOST = 0.1
"""Largest number that counts as a tolerance."""

PARAGRAPH = re.compile(r"\n\s*\n")

_HINT = re.compile(
    r"error|toleran|precision|accura|deviat|within|differ|exact|decimal|fraction|digits|up to|\bmax\b", re.I
)
"""A pattern that every sentence with a bound matches; others are skipped."""

_MARKUP = (
    (re.compile(r"<sup>|\\textsuperscript\{"), "^{"),
    (re.compile(r"</sup>"), "}"),
    (re.compile(r"<[^<>]{1,80}>|\$|`|\\[,;!]|&nbsp;|~"), " "),
    (re.compile(r"&minus;|&#8722;|[−–—‑‒﹣－]"), "-"),  # all that stands for a minus
    (re.compile(r"(?<=10)\s*\*\*(?=\s*[-({])"), "^"),
    (re.compile(r"\*\*|__"), " "),
    (re.compile(r"\\(?:text|mathrm|mathit|operatorname)\s*(?=\{)"), ""),
    (re.compile(r"\\(?:times|cdot)(?![a-z])|[×⋅·]"), "*"),
)
_RAISED = re.compile("⁻[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,2}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(\[\\])|;\s+")

_NUMBER = re.compile(
    r"(?<![\d.^])(?:(?P<factor>[1-9](?:\.\d+)?)\s*\*\s*)?(?:"
    r"10\s*\^[{(\s]*-\s*(?P<power>\d{1,2})(?!\d)"
    r"|10\s*-\s*(?P<lost>\d{1,2})(?!\d|\.\d)"  # copies of statements lose the superscript
    r"|10 to the (?:power (?:of )?)?(?:-|minus )\s*(?P<words>\d{1,2})"
    r"|(?P<mantissa>\d(?:\.\d+)?)e-(?P<e>\d{1,2})(?!\d)"
    r"|(?P<plain>0?\.0*[1-9]\d{0,2})(?![\d%]|\s*%))",
    re.I,
)
_ANSWER = r"(?:answers?|values?|results?|solutions?|outputs?|one|truth|optimum)"
_ERROR = r"(?:errors?|tolerances?|precision|accuracy|deviations?|inaccuracy)"
_NAMED = rf"(?:absolute|relative)\b[^.]{{0,40}}\b{_ERROR}\b"
_FORMULA = r"\|\s*\w+\s*-\s*\w+\s*\|[^.]{0,40}\bmax\b"
_WITH_MAX = re.compile(_FORMULA)
_ABSOLUTE, _RELATIVE = re.compile(r"\babsolute", re.I), re.compile(r"\brelative", re.I)
_SPOKEN = re.compile(
    rf"\b{_NAMED}|\b{_ERROR}\b|\b(?:differ(?:s|ence|ences|ing)?|deviates?)\b[^.]{{0,60}}\b{_ANSWER}\b"
    rf"|\b(?:accurate|correct|exact) (?:to )?(?:within|up to)|{_FORMULA}",
    re.I,
)
_GRADED = re.compile(
    r"\b(?:your|answers?|outputs?|solutions?|accepted|acceptable|allowed|permitted|tolerate[sd]?|ignored|print|printed"
    r"|return|judged?|jury|checker|considered correct|exceed)\b"
    r"|\b(?:errors?|results?|values?|precision|accuracy)\b[^.]{0,30}\b(?:must|should|shall)\b",
    re.I,
)
"""A pattern for bounds on answers. A value or a result alone may belong to the input."""
_GIVEN = re.compile(
    r"\b(?:measure(?:d|ments?)|readings?|sensors?|scales?|thermometers?|oracle)\b"
    rf"|\b{_ERROR} (?:of|in) (?:(?:the|each|every|all|any) )?(?:inputs?|given|data|coordinates?)\b"
    r"|\b(?:numbers|values|points|lines|strings)\b[^.]{0,20}\b(?:are|is) (?:called |considered )?"
    r"(?:equal|the same|close)\b",
    re.I,
)
"""A pattern for bounds on the input, or in a definition of a word of the task."""
_INTRODUCED = re.compile(
    rf"(?:\b{_ERROR}(?:,| of| is)?|\b(?:margin|difference) (?:of|is)"
    r"|\b(?:exceed(?:s|ing)?|most|than|least|within|by|below|under|(?:up|equal|accurate) to)|[≤<(:=]|\\leq?(?:slant)?)"
    r"[\s({:=]{0,20}(?:about |only |an? )?$",
    re.I,
)
_WITHIN = re.compile(
    rf"\bwithin\b[^.]{{0,30}}?{_NUMBER.pattern}[)}}\s]*(?:absolute |relative )*"
    rf"(?:of|from)\s+(?:\w+[’']?\w*\s+){{0,4}}?{_ANSWER}\b",
    re.I,
)
_REACH, _BEFORE, _WORDS = 120, 60, 4
"""Characters after and before "error", and words between, within which the number is searched for."""

_VAGUE = re.compile(
    r"\bat least (?:\d+|two|three|four|five|six|seven|eight|nine|ten) (?:decimals|fraction(?:al)? digits"
    r"|decimal (?:digits|places|points)|digits? (?:after|behind|to the right of) the (?:decimal )?(?:point|comma|dot))"
    r"|\b(?:small|slight|minor|rounding|precision|floating[- ]point)\b[^.]{0,30}\berrors?\b[^.]{0,40}"
    r"\b(?:ignored|allowed|accepted|tolerated|acceptable)",
    re.I,
)
_ALLOWED = re.compile(
    r"\b(?:may|exceed|at most|less than|no more than|within|accepted|allowed|considered)\b[^.]*", re.I
)
_ALLOWING = re.compile(rf"(?=.*(?:{_NAMED}))(?=.*\b(?:your|answers?|outputs?)\b)(?=.*{_ALLOWED.pattern})", re.I)


def tolerance(statement: str) -> tuple[float, ToleranceKind] | None:
    """The tolerance and its kind; None if there is none.

    If several sentences have a bound, the smallest is used. A bound of unspecified kind is absolute.
    """
    found = [bound for sentence in _sentences(statement) if (bound := _bound(sentence)) is not None]
    return min(found, key=lambda bound: bound[0]) if found else None


def is_vague(statement: str) -> bool:
    """Whether a statement allows an error without a readable bound: equality would reject correct answers."""
    if tolerance(statement) is not None:
        return False
    return any(_VAGUE.search(sentence) or _ALLOWING.match(sentence) for sentence in _sentences(statement))


def _sentences(statement: str) -> list[str]:
    if not _HINT.search(statement):
        return []
    plain = _RAISED.sub(_power, statement)
    for pattern, spelling in _MARKUP:
        plain = pattern.sub(spelling, plain)
    paragraphs = [" ".join(paragraph.split()) for paragraph in PARAGRAPH.split(plain)]
    sentences = (sentence for paragraph in paragraphs for sentence in _SENTENCE.split(paragraph))
    return [sentence for sentence in sentences if _HINT.search(sentence)]


def _power(match: re.Match[str]) -> str:
    return f"^{{-{unicodedata.normalize('NFKC', match[0][1:])}}}"


def _bound(sentence: str) -> tuple[float, ToleranceKind] | None:
    if not _GRADED.search(sentence) or _GIVEN.search(sentence):
        return None
    number = _WITHIN.search(sentence) or _spoken_of(sentence)
    size = _size(number) if number else None
    return None if size is None else (size, _kind(sentence))


def _spoken_of(sentence: str) -> re.Match[str] | None:
    """The number by which an error is bounded in a sentence."""
    for said in _SPOKEN.finditer(sentence):
        after = _first_bound(sentence, said.end())
        before = _last_number(sentence[max(0, said.start() - _BEFORE) : said.start()])
        if number := after or before:
            return number
    return None


def _first_bound(sentence: str, start: int) -> re.Match[str] | None:
    """The first number in the position of a bound, as in "of at most 1e-6"."""
    numbers = _NUMBER.finditer(sentence, start, start + _REACH)
    return next(
        (each for each in numbers if _INTRODUCED.search(sentence[max(0, each.start() - _BEFORE) : each.start()])), None
    )


def _last_number(text: str) -> re.Match[str] | None:
    """The last number of a text, if it is close to the end, as in "within 1e-6 absolute error"."""
    found = list(_NUMBER.finditer(text))
    return found[-1] if found and len(text[found[-1].end() :].split()) <= _WORDS else None


def _size(number: re.Match[str]) -> float | None:
    factor = number["mantissa"] or number["factor"] or "1"
    power = number["power"] or number["lost"] or number["words"] or number["e"]
    size = float(f"{factor}e-{power}") if power else float(number["plain"])
    return size if 0 < size <= MOST else None


def _kind(sentence: str) -> ToleranceKind:
    absolute, relative = (word.search(sentence) is not None for word in (_ABSOLUTE, _RELATIVE))
    if absolute == relative:
        return "either" if absolute or _WITH_MAX.search(sentence) else "absolute"
    return "relative" if relative else "absolute"
