"""What a statement says about how answers are judged: not by comparing text, or with a numeric tolerance.

Code data sets come with tests and without the judges' checkers. Where a statement accepts any of several answers, the
one answer in the test rejects right programs; where it wants a dialogue, there is none. Such statements are recognised
by what they say, as a table; docs/data.md has the counts on real rows.
"""

from __future__ import annotations

import re


_SAY = r"(?:print|output|return|find|report|display|produce|give|write)"
_WHAT = r"(?:answers?|solutions?|ways?|options?|pairs?|arrays?|sequences?|permutations?|strings?|numbers?|outputs?)"

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
        rf"|\b(?:multiple|several|many) (?:possible |valid |correct |optimal |such |suitable |different )*{_WHAT}"
        r"[^.]{0,40}\b(?:exist|are possible|are allowed|accepted)"
        rf"|\b{_SAY}\s+any\b(?! number)|\bany (?:one )?(?:of (?:them|these|those) )?(?:is|are|will be|would be) "
        r"(?:accepted|allowed|acceptable|considered|correct|fine)\b"
        rf"|\bany (?:valid|correct|possible|suitable|optimal|such|appropriate) {_WHAT}\b"
        rf"|\bany {_WHAT} (?:will be|is|are) (?:accepted|allowed|acceptable)"
        r"|\byou (?:can|may) (?:print|output|return|choose to print) (?:any|either|them in any)",
    ),
    (
        "it accepts an answer in any order",
        rf"\b(?:{_SAY}|answers?|printed|returned)\b[^.]{{0,60}}\bin (?:any|arbitrary) order\b",
    ),
)
"""Why a statement needs more than a comparison of text, and the pattern by which it says so."""

_COMPILED = tuple((reason, re.compile(pattern, re.I)) for reason, pattern in CHECKERS)

_ERROR = re.compile(r"(?:absolute|relative)[^.]{0,40}\berror|\berror[^.]{0,60}(?:absolute|relative)", re.I)
_NUMBER = re.compile(
    r"10\s*(?:\^|\*\*)\s*\{?\s*[-−–]\s*(?P<power>\d{1,2})"
    r"|10\s*[-−–]\s*(?P<lost>\d{1,2})(?!\d)"  # CodeContests lost the superscript
    r"|1(?:\.0*)?e[-−–](?P<e>\d{1,2})"
    r"|(?P<plain>0\.0*1)(?!\d)",
    re.I,
)
_REACH = 160


def unjudged(statement: str) -> str:
    """Why no comparison of text can judge an answer to a statement; `""` where one can."""
    plain = " ".join(statement.split())
    return next((reason for reason, pattern in _COMPILED if pattern.search(plain)), "")


def tolerance(statement: str) -> float | None:
    """How far a decimal number may be off, absolutely or relatively, as the statement says; None where it does not."""
    plain = " ".join(statement.replace("$", " ").replace("\\,", " ").split())
    for error in _ERROR.finditer(plain):
        said = _NUMBER.search(plain, error.start(), error.end() + _REACH)
        if said:
            power = said["power"] or said["lost"] or said["e"]
            return float(f"1e-{power}") if power else float(said["plain"])
    return None
