"""Reads from a problem's statement how its answers are to be compared: tolerance, letter case, or not at all.

Code data sets come with tests and without the judges' checkers. Where a statement accepts any of several answers, the
one answer in the test rejects right programs; where it wants a dialogue, there is none: such a problem is `unjudged`.
What else a statement allows (a numeric error, letters of any case) is read as settings of the comparison. All of it is
recognised by patterns over single sentences; what none matches is compared exactly. docs/grading.md has the rules.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from pettingllms_envs.sandbox.values import ToleranceKind


class Rules(NamedTuple):
    """How answers to a problem are compared; the names are those of `CodeProblem`.

    Args:
        unjudged: Why no comparison of text can judge an answer; empty if one can.
        tolerance: How far a decimal number may be off; None for not at all.
        tolerance_kind: Of what: `"absolute"`, `"relative"` (to the expected number), or `"either"`.
        ignore_case: Whether words may be printed in letters of any case.
    """

    unjudged: str = ""
    tolerance: float | None = None
    tolerance_kind: ToleranceKind = "either"
    ignore_case: bool = False


def rules(statement: str) -> Rules:
    """What a statement says about how its answers are compared."""
    size, kind = tolerance(statement) or (None, "either")
    return Rules(unjudged(statement), size, kind, ignore_case(statement))


# ---------------------------------------------------------------------------------------------------- several answers

_SAY = r"(?:print|output|return|find|report|display|produce|give|write)"
_WHAT = r"(?:answers?|solutions?|ways?|options?|pairs?|arrays?|sequences?|permutations?|strings?|numbers?|outputs?)"
_KIND = r"(?:(?:possible|valid|correct|optimal|such|suitable|different|acceptable|right) )*"
_NOT = r"(?<!not )(?<!n't )(?<!n’t )(?<!never )(?<!cannot )"
_MAY = r"\b(?:you|it|they|these|answers?|outputs?) (?:can|may|could|might|(?:are|is) allowed to)(?: also)?(?: be)?"
_TOLD = r"(?:print|output|return|list|give|write|report|display|produce|submit|specify|name)"
_TOLD_ONES = r"(?:printed|output|outputted|returned|listed|given|written|reported|displayed)"
_ORDER = r"(?:in|using) (?:any|arbitrary|whatever|whichever) order\b"
_COMPUTED = (
    r"(?:minimum|maximum|minimal|maximal|shortest|longest|least|fewest|smallest|largest|count|number of|whether)"
)

CHECKERS = (
    (
        "it is interactive",
        r"\binteractive (?:problem|task|interact)|\bthis (?:problem|task) is interactive|\binteractor\b"
        r"|\bflush(?:ing)?\b[^.]{0,40}\b(?:output|stream|buffer|stdout|operation)|\bfflush\b|stdout\.flush",
    ),
    (
        "it accepts any of several answers",
        r"\b(?:if|in case) there (?:are|is|exists?|were|can be) (?:multiple|several|many|more than one)\b"
        rf"(?=.{{1,160}}?\b{_SAY}\b[^.]{{0,40}}\b(?:any|either|arbitrary)\b)"
        rf"|\b(?:multiple|several|many|more than one) {_KIND}{_WHAT}[^.]{{0,40}}"
        rf"\b(?:exists?|are possible|is possible|are allowed|accepted|{_SAY} (?:just |only )?(?:one|some) of|choose any)"
        rf"|{_NOT}\b{_SAY}\s+any\b(?! number| (?:extra|additional|other|more|further|unnecessary|spaces?|text|debug))"
        r"|\bany (?:one )?(?:of (?:them|these|those) )?(?:is|are|will be|would be) "
        r"(?:accepted|allowed|acceptable|considered|correct|fine)\b"
        rf"|\bany (?:one )?of (?:the|these|those|all) {_KIND}{_WHAT} (?:will be|is|are) (?:accepted|allowed|acceptable)"
        rf"|\bany (?:valid|correct|possible|suitable|optimal|such|appropriate) {_WHAT}\b"
        rf"|\bany {_WHAT} (?:will be|is|are) (?:accepted|allowed|acceptable)"
        r"|\byou (?:can|may) (?:print|output|return|choose to print) (?:any|either|them in any)"
        r"|\bspecial (?:judge|checker)\b",
    ),
    (
        "it accepts an answer in any order",
        rf"{_MAY} {_TOLD}\b[^.]{{0,80}}\b{_ORDER}"
        rf"|{_MAY} (?:{_TOLD_ONES}|appear|be)\b[^.]{{0,30}}\b{_ORDER}"
        rf"|\b(?:print|output|return|list|report)\b(?:(?!\b{_COMPUTED}\b)[^.]){{0,80}}\b{_ORDER}"
        rf"|\b(?:answers?|printed|returned|outputs?|solutions?|results?)\b"
        rf"(?:(?!\b{_COMPUTED}\b)[^.]){{0,60}}\b{_ORDER}"
        r"|\border (?:of|in which)\b[^.]{0,30}\b(?:output|print(?:ed)?|answers?|returned|results?)\b[^.]{0,30}"
        r"\b(?:does not|doesn't|doesn’t|do not|don't|is not|isn't) (?:matter|important|relevant)",
    ),
)
"""Why a statement needs more than a comparison of text, and the pattern by which it says so."""

_PARAGRAPH = re.compile(r"\n\s*\n")
_COMPILED = tuple((reason, re.compile(pattern, re.I)) for reason, pattern in CHECKERS)

INEXACT = "it leaves open how exact a number must be"
_INEXACT = re.compile(
    r"\bat least (?:\d+|two|three|four|five|six|seven|eight|nine|ten) "
    r"(?:digits? (?:after|behind|to the right of) the (?:decimal )?(?:point|comma|dot)|decimal (?:digits|places|points)"
    r"|decimals|fraction(?:al)? digits)"
    r"|\b(?:small|slight|minor|rounding|precision|floating[- ]point)\b[^.]{0,30}\berrors?\b[^.]{0,40}"
    r"\b(?:ignored|allowed|accepted|tolerated|acceptable)",
    re.I,
)


def unjudged(statement: str) -> str:
    """Why no comparison of text can judge an answer to a statement; `""` where one can."""
    plain = _joined(statement)
    reason = next((reason for reason, pattern in _COMPILED if pattern.search(plain)), "")
    if not reason and tolerance(statement) is None and (_INEXACT.search(plain) or _unread(statement)):
        return INEXACT
    return reason


def _joined(statement: str) -> str:
    """A statement in one line, with a full stop between its paragraphs, which no pattern of a sentence crosses."""
    return " . ".join(" ".join(paragraph.split()) for paragraph in _PARAGRAPH.split(statement))


# ---------------------------------------------------------------------------------------------------------- tolerance

_MARKUP = (
    (re.compile(r"<sup>|\\textsuperscript\{"), "^{"),
    (re.compile(r"</sup>"), "}"),
    (re.compile(r"<[^<>]{1,80}>|\$|`|\\[,;!]|&nbsp;|~"), " "),
    (re.compile(r"&minus;|&#8722;|[−–—‑‒﹣－]"), "-"),
    (re.compile(r"(?<=10)\s*\*\*(?=\s*[-({])"), "^"),
    (re.compile(r"\*\*|__"), " "),
    (re.compile(r"\\(?:text|mathrm|mathit|operatorname)\s*(?=\{)"), ""),
    (re.compile(r"\\(?:times|cdot)(?![a-z])|[×⋅·]"), "*"),
)
_RAISED = re.compile("⁻[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,2}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(\[\\])")

_NUMBER = re.compile(
    r"(?<![\d.^])(?:(?P<factor>[1-9](?:\.\d+)?)\s*\*\s*)?(?:"
    r"10\s*\^\s*[{(\s]*-\s*(?P<power>\d{1,2})(?!\d)"
    r"|10\s*-\s*(?P<lost>\d{1,2})(?!\d|\.\d)"  # copies of statements lose the superscript
    r"|10 to the (?:power (?:of )?)?(?:-|minus )\s*(?P<words>\d{1,2})"
    r"|(?P<mantissa>\d(?:\.\d+)?)e-(?P<e>\d{1,2})(?!\d)"
    r"|(?P<plain>0?\.0*[1-9]\d{0,2})(?![\d%]|\s*%))",
    re.I,
)
_MOST = 0.1
"""A larger number is no tolerance."""

_ANSWER = r"(?:answers?|values?|results?|solutions?|outputs?|one|truth|optimum)"
_ERROR = r"(?:errors?|tolerances?|precision|accuracy|deviations?|inaccuracy)"
_GRADED = re.compile(
    rf"\b(?:your|{_ANSWER}|accepted|acceptable|allowed|permitted|tolerated|ignored|correct|print|printed|output|return"
    r"|judged?|checker|exceed)\b",
    re.I,
)
_NAMED = re.compile(
    rf"(?:absolute|relative)\b[^.]{{0,40}}\b{_ERROR}\b|\b{_ERROR}\b[^.]{{0,60}}(?:absolute|relative)", re.I
)
_BOUNDS = re.compile(
    rf"\b(?:absolute|relative)\b[^.]{{0,40}}\b{_ERROR}\b(?P<named>)"
    rf"|\b{_ERROR}\b(?P<error>)"
    rf"|\bdiffer(?:s|ence|ences|ing)?\b[^.]{{0,60}}\b{_ANSWER}\b(?P<differs>)"
    rf"|\bdeviates?\b[^.]{{0,60}}\b{_ANSWER}\b(?P<deviates>)"
    r"|\b(?:accurate|correct|exact) (?:to )?(?:within|up to)(?P<accurate>)"
    r"|\|\s*\w+\s*-\s*\w+\s*\|[^.]{0,40}\bmax\b(?P<formula>)",
    re.I,
)
_WITHIN = re.compile(
    rf"\bwithin\b[^.]{{0,30}}?(?P<number>{_NUMBER.pattern})[)}}\s]*(?:absolute |relative )*"
    rf"(?:of|from)\s+(?:\w+[’']?\w*\s+){{0,4}}?{_ANSWER}\b",
    re.I,
)
_INTRODUCED = re.compile(
    rf"(?:\b{_ERROR}(?:,| of| is)?|\b(?:margin|difference) (?:of|is)|\b(?:exceed(?:s|ing)?|most|than|least|within|by|below|under"
    r"|(?:up|equal|accurate) to)|[≤<(:=]|\\leq?(?:slant)?)[\s({:=]*(?:about |only |an? )?$",
    re.I,
)
_REACH, _BEFORE = 120, 60


def tolerance(statement: str) -> tuple[float, ToleranceKind] | None:
    """How far a decimal number may be off, and of what kind that is (see `Rules`); None where nothing is said.

    Where several sentences name a bound, the smallest counts. A bound whose kind is not named is absolute.
    """
    found = [bound for sentence in _sentences(statement) if (bound := _bound(sentence)) is not None]
    return min(found, key=lambda bound: bound[0]) if found else None


def _sentences(statement: str) -> list[str]:
    plain = _RAISED.sub(
        lambda match: "^{" + unicodedata.normalize("NFKC", match[0]).replace("−", "-") + "}", statement
    )
    for pattern, spelling in _MARKUP:
        plain = pattern.sub(spelling, plain)
    return [
        sentence for paragraph in _PARAGRAPH.split(plain) for sentence in _SENTENCE.split(" ".join(paragraph.split()))
    ]


def _bound(sentence: str) -> tuple[float, ToleranceKind] | None:
    if within := _WITHIN.search(sentence):
        size = _size(within)
        return None if size is None else (size, _kind(sentence))
    if not _GRADED.search(sentence):
        return None
    for said in _BOUNDS.finditer(sentence):
        number = _first_bound(sentence[: said.end() + _REACH], said.end()) or _last_number(
            sentence[max(0, said.start() - _BEFORE) : said.start()]
        )
        if number is not None and (size := _size(number)) is not None:
            return size, _kind(sentence)
    return None


def _first_bound(sentence: str, start: int) -> re.Match[str] | None:
    """The first number from a place on that stands where a bound does: "of at most 1e-6"."""
    return next(
        (each for each in _NUMBER.finditer(sentence, start) if _INTRODUCED.search(sentence[: each.start()])), None
    )


def _last_number(text: str) -> re.Match[str] | None:
    """The last number of a text, if nothing but a few words stands after it: "within 1e-6 absolute error"."""
    found = list(_NUMBER.finditer(text))
    return found[-1] if found and len(text[found[-1].end() :].split()) <= 4 else None


def _size(number: re.Match[str]) -> float | None:
    factor = number["mantissa"] or number["factor"] or "1"
    power = number["power"] or number["lost"] or number["words"] or number["e"]
    size = float(f"{factor}e-{power}") if power else float(number["plain"])
    return size if 0 < size <= _MOST else None


def _kind(sentence: str) -> ToleranceKind:
    absolute, relative = (re.search(rf"\b{word}", sentence, re.I) for word in ("absolute", "relative"))
    if absolute and relative:
        return "either"
    if relative:
        return "relative"
    return "either" if not absolute and re.search(r"\|[^.]{0,40}\bmax\b", sentence) else "absolute"


def _unread(statement: str) -> bool:
    """Whether a sentence allows an error, and does not say how large in a way that is read."""
    return any(
        _NAMED.search(sentence)
        and re.search(
            r"\b(?:may|exceed|at most|less than|no more than|within|accepted|allowed|considered)\b", sentence, re.I
        )
        and re.search(r"\b(?:your|answers?|outputs?)\b", sentence, re.I)
        for sentence in _sentences(statement)
    )


# -------------------------------------------------------------------------------------------------------- letter case

_PERMITTED = r"(?:(?:you|we|it|they|answers?|letters?) (?:can|may|could|might|are allowed to|is allowed to)(?: also)?)"
_CASED = re.compile(
    rf"{_PERMITTED}(?: be)? (?:print(?:ed)?|output(?:ted)?|writ(?:e|ten)|display(?:ed)?|return(?:ed)?|give|given)\b[^.]{{0,80}}?"
    r"\bin (?:any|either|arbitrary|whichever) (?:letter[- ]?|character )?(?:case|register)\b(?! (?:of|where|when|that|if)\b)"
    r"|\b(?:letters?|characters?|words?|strings?|answers?)\b[^.]{0,40}?\bin (?:any|either|arbitrary)"
    r" (?:(?:letter|character)[- ]?case|register|case \((?:upper|lower|uppercase|lowercase|for example|e\.g|i\.e))"
    r"|\bin any (?:letter case|combination of (?:upper|lower))"
    r"|\b(?:outputs?|answers?|checker|grader|judge|verdict|yes\W{0,3} (?:and|or) \W?no\W?) (?:is|are|will be) "
    r"(?:treated as )?(?:case[- ]?insensitive|not case[- ]?sensitive|insensitive to (?:the )?(?:letter )?case)"
    r"|\b(?:output|answer|print)\w*[^.]{0,60}\((?:it is |is )?(?:case[- ]?insensitive|not case[- ]?sensitive)\)"
    r"|\b(?:letter )?case (?:of (?:the |each |every )?(?:letters?|characters?|answers?|outputs?|words?) )?"
    r"(?:in (?:the |your )?(?:output|answer) )?(?:does not|doesn't|doesn’t) matter (?:in|for) (?:the |your )?(?:output|answer)"
    r"|\bcase of (?:the |each |every )?(?:letters?|characters?) (?:in|of) (?:the |your )?(?:outputs?|answers?) "
    r"(?:does not|doesn't|doesn’t|is not) (?:matter|important)",
    re.I,
)
_EXAMPLES = re.compile(  # a word in mixed case, said to count as well
    r"\b(?:yEs|yeS|YeS|yES|YEs)\b[^.]{0,100}\b(?:recogni[sz]ed|considered|accepted|acceptable|treated|identical|valid"
    r"|the same)\b"
)
_SENSITIVE = re.compile(r"(?<!not )(?<!n't )\bcase[- ]?sensitive\b", re.I)


def ignore_case(statement: str) -> bool:
    """Whether a statement lets a program print words in letters of any case."""
    plain = " ".join(
        re.sub(r"</?[a-zA-Z][^<>]{0,80}>|\$|`|\\(?:texttt|text|mathtt)\b|[{}]|\*\*", " ", statement).split()
    )
    if _SENSITIVE.search(plain):
        return False
    return bool(_CASED.search(plain) or _EXAMPLES.search(plain))
