"""Reads from a problem's statement how its answers are to be compared: tolerance, letter case, or not at all.

Code data sets come with tests and without the judges' checkers. Where a statement accepts any of several answers, the
one answer in the test rejects right programs; where it wants a dialogue, there is none: such a problem is `unjudged`.
What else a statement allows (a numeric error, letters of any case) is read as settings of the comparison. All of it is
recognised by patterns over single sentences; what none matches is compared exactly. docs/grading.md has the rules.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pettingllms_envs.datasets.tolerances import PARAGRAPH, is_vague, tolerance
from pettingllms_envs.sandbox.values import ToleranceKind


class Rules(NamedTuple):
    """How answers to a problem are compared; the names are those of `CodeProblem`.

    Args:
        unjudged: Why no comparison of text can judge an answer; empty if one can.
        tolerance: How far a decimal number may be off; None for not at all.
        tolerance_kind: Of what: `"absolute"`, `"relative"` (to the expected number), or `"either"`.
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
_SUCH = r"(?:(?:possible|valid|correct|optimal|such|suitable|different|acceptable|right) )*"
_NOT = r"(?<!not )(?<!n't )(?<!n’t )(?<!never )(?<!cannot )"
_MAY = r"\b(?:you|it|they|these|answers?|outputs?) (?:can|may|could|might|(?:are|is) allowed to)(?: also)?(?: be)?"
_TELL = r"(?:print|output|return|list|give|write|report|display|produce|submit|specify|name)"
_TOLD = r"(?:printed|output|outputted|returned|listed|given|written|reported|displayed)"
_ORDER = r"\b(?:in|using) (?:any|arbitrary|whatever|whichever) order\b"
_COMPUTED = r"(?:(?:min|max)im(?:um|al)|(?:short|long|few|small|larg)est|least|count|number of|whether)"
_FINE = r"(?:accepted|allowed|acceptable)"
_ONE = r"(?!\s*:)(?![^.]{0,60}\b(?:lexicographical\w*|\w+est|\w+er one|(?:min|max)im\w+|first|last)\b)"
_FREE_ORDER = r"(?:is|can be|may be) (?:arbitrary|any|up to you|irrelevant|unimportant)\b"
_NO_MATTER = r"(?:(?:does not|doesn['’]t|do not|don['’]t) matter|(?:is not|isn['’]t) important)"

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
        rf"|\b(?:multiple|several|many|more than one) {_SUCH}{_WHAT}[^.]{{0,40}}\b(?:exists?|(?:are|is) possible"
        rf"|are allowed|accepted|choose any|{_SAY} (?:just |only )?(?:one|some) of)"
        rf"|{_NOT}\b{_SAY}\s+any\b(?! number| (?:extra|additional|other|more|further|unnecessary|spaces?|text|debug))"
        r"|\bany (?:one )?(?:of (?:them|these|those) )?(?:is|are|will be|would be) "
        r"(?:accepted|allowed|acceptable|considered|correct|fine)\b"
        rf"|\bany (?:one )?of (?:the|these|those|all) {_SUCH}{_WHAT} (?:will be|is|are) {_FINE}"
        rf"|\bany (?:valid|correct|possible|suitable|optimal|such|appropriate) {_WHAT}\b"
        rf"|\bany {_WHAT} (?:will be|is|are) {_FINE}"
        r"|\byou (?:can|may) (?:print|output|return|choose to print) (?:any|either|them in any)"
        r"|\b(?:print|output|return) one (?:of (?:them|those)|such \w+)\b"
        + _ONE
        + rf"|\b(?:print|output|return) (?:a|some) (?:possible|valid|suitable|feasible) "
        rf"(?:{_WHAT}|arrangements?|orderings?)\b"
        rf"|\b{_SAY}\b[^.]{{0,40}}\b(?:whichever|whatever)\b(?: \w+)? "
        rf"(?:you|it|they) (?:likes?|wants?|prefers?|wish(?:es)?)\b"
        r"|\bspecial (?:judge|checker)\b",
    ),
    (
        "it accepts an answer in any order",
        rf"{_MAY} {_TELL}\b[^.]{{0,80}}{_ORDER}"
        rf"|{_MAY} (?:{_TOLD}|appear|be)\b[^.]{{0,30}}{_ORDER}"
        rf"|\b(?:print|output|return|list|report)\b(?:(?!\b{_COMPUTED}\b)[^.]){{0,80}}{_ORDER}"
        rf"|\b(?:answers?|printed|returned|outputs?|solutions?|results?)\b"
        rf"(?:(?!\b{_COMPUTED}\b)[^.]){{0,60}}{_ORDER}"
        rf"|\border (?:of|in which)\b[^.]{{0,30}}\b(?:output|print(?:ed)?|answers?|returned|results?)\b[^.]{{0,30}}"
        rf"\b{_NO_MATTER}"
        rf"|\b(?:print|output|return|list|report)\b(?:(?!\b{_COMPUTED}\b)[^.]){{0,80}}"
        rf"(?:\bin the order you (?:like|want)\b|\border (?:of|in which)\b[^.]{{0,40}}\b{_FREE_ORDER})"
        rf"|\b(?:print|output|return|list|report)\b(?:(?!\b{_COMPUTED}\b)[^.]){{0,60}}\b(\w{{3,}})\b[^.]{{0,60}}\. "
        rf"The order of (?:the |these |those )?\1 {_FREE_ORDER}",
    ),
)
"""Why a statement needs more than a comparison of text, and the pattern by which it says so."""

_COMPILED = tuple((reason, re.compile(pattern, re.I)) for reason, pattern in CHECKERS)

VAGUE = "it leaves open how exact a number must be"


def unjudged(statement: str) -> str:
    """Why no comparison of text can judge an answer to a statement; `""` where one can."""
    # A full stop between paragraphs, for no pattern of a sentence crosses it.
    plain = " . ".join(" ".join(paragraph.split()) for paragraph in PARAGRAPH.split(statement))
    reason = next((reason for reason, pattern in _COMPILED if pattern.search(plain)), "")
    return reason or (VAGUE if is_vague(statement) else "")


# -------------------------------------------------------------------------------------------------------- letter case

_FREE = r"(?:case[- ]?insensitive|not case[- ]?sensitive|insensitive to (?:the )?(?:letter )?case)"
_PERMITTED = r"(?:you|we|it|they|answers?|letters?) (?:can|may|could|might|(?:are|is) allowed to)(?: also)?(?: be)?"
_LETTERS = r"(?:letters?|characters?|words?|strings?|answers?)"
_THE = r"(?:the |each |every |your )?"
_CASED = re.compile(
    rf"\b{_PERMITTED} (?:print(?:ed)?|output(?:ted)?|writ(?:e|ten)|display(?:ed)?|return(?:ed)?|give|given)\b"
    r"[^.]{0,80}?\bin (?:any|either|arbitrary|whichever) (?:(?:letter|character)[- ]?)?(?:case|register)\b"
    r"(?! (?:in|of|where|when|that|if)\b)"
    rf"|\b{_LETTERS}\b[^.]{{0,40}}?\bin (?:any|either|arbitrary) (?:(?:letter|character)[- ]?case|register"
    r"|case \((?:upper|lower|for example|e\.g|i\.e))"
    r"|\bin any (?:letter case|combination of (?:upper|lower))"
    rf"|\b(?:outputs?|answers?|checker|grader|judge|verdict) (?:is|are|will be) (?:treated as )?{_FREE}"
    rf"|\b(?:output|answer|print)\w*[^.]{{0,60}}\((?:it is |is )?{_FREE}\)"
    rf"|\bcase of {_THE}{_LETTERS} (?:in|of) {_THE}(?:outputs?|answers?) {_NO_MATTER}"
    rf"|\b(?:letter )?case (?:of {_THE}{_LETTERS} )?{_NO_MATTER} (?:in|for) {_THE}(?:outputs?|answers?)",
    re.I,
)
_MIXED = re.compile(  # a word in mixed letters, said to count as well
    r"\b(?:yEs|yeS|YeS|yES|YEs)\b[^.]{0,100}\b(?:recogni[sz]ed|considered|accept(?:ed|able)|treated|identical"
    r"|the same)\b"
)
_SENSITIVE = re.compile(r"(?<!not )(?<!n't )\bcase[- ]?sensitive\b", re.I)
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]{0,80}>|\$|`|\\(?:texttt|text|mathtt)\b|[{}]|\*\*")


def ignore_case(statement: str) -> bool:
    """Whether a statement lets a program print words in letters of any case."""
    plain = " ".join(_MARKUP.sub(" ", statement).split())
    return not _SENSITIVE.search(plain) and bool(_CASED.search(plain) or _MIXED.search(plain))


VERDICTS = frozenset(
    {"yes", "no", "possible", "impossible", "true", "false", "alice", "bob", "first", "second", "win", "wins"}
    | {"lose", "loses", "draw", "tie"}
)
"""Words of verdicts, in lower case, that may be of any case wherever a statement that allows it names one."""

_LETTER = re.compile("[a-z]")
_QUOTED = re.compile(
    r"``([^`']{1,40})''|`([^`]{1,40})`|\"([^\"]{1,40})\"|“([^”]{1,40})”|«([^»]{1,40})»|(?<!\w)'([^']{1,40})'(?!\w)"
    r"|\\(?:texttt|text|mathtt)\s*\{([^{}]{1,40})\}|<(?:samp|code|tt|b|strong)>([^<>]{1,40})<|\*\*([^*]{1,40})\*\*"
    r"|\b(YES|Yes|NO|No)\b"
)
_EXAMPLES = re.compile(r"^[^\w\n]*(?:examples?|sample|note)\b.{0,20}$", re.I | re.M)


def verdict_words(statement: str) -> frozenset[str]:
    """The words, in lower case, that a statement which allows letters of any case allows it for.

    They are what it quotes ahead of its examples, and `VERDICTS`. None if it quotes nothing: the answer itself, then,
    may be of any case.
    """
    told = _EXAMPLES.split(statement.replace("&quot;", '"'), maxsplit=1)[0]
    quoted = {word.lower() for found in _QUOTED.finditer(told) for word in found[found.lastindex or 0].split()}
    named = {word for word in quoted if _LETTER.search(word)}
    return frozenset(VERDICTS | named) if named else frozenset()
