"""Normalizes statements, so that copies of a problem can be recognized: case, white space, punctuation, LaTeX.

Two copies of a problem in two data sets are seldom the same string, but they have the same `words`. `short_answer` is
the normalization by which SQuAD, HotpotQA, 2WikiMultihopQA and MuSiQue compare answers of a few words.
"""

from __future__ import annotations

import hashlib
import re
import string
import unicodedata

from pettingllms_envs.instances import split_of


_SPACING = re.compile(r"\\(?:left|right|displaystyle|limits|quad|qquad|[,;:!> ]|\\)(?![a-z])|~|&nbsp;")
_STYLE = re.compile(
    r"\\(?:text|textbf|textit|texttt|textrm|mathrm|mathbf|mathit|mathbb|mathcal|emph|operatorname)(?![a-z])"
)
_SPELLINGS = (
    (re.compile(r"\\[dtc]?frac(?: *(\d) *(?=\d)|(?![a-z]))"), r"\\frac \1 "),  # \frac12 is \frac{1}{2}
    (re.compile(r"\\leq?(?:slant)?(?![a-z])|≤"), "<="),
    (re.compile(r"\\geq?(?:slant)?(?![a-z])|≥"), ">="),
    (re.compile(r"\\(?:cdot|times)(?![a-z])|×|·"), "*"),
    (re.compile(r"\\(?:ldots|cdots|dots)(?![a-z])|…"), " "),
    (re.compile(r"−|–|—"), "-"),
)
_WORD = re.compile(r"[^\W\d_]+|\d+|[-+*/^=<>]")
_SIGN = re.compile(rf"{_WORD.pattern}|[()|%÷√\[\]]|\\[{{}}]|(?<=\d)[.,:](?=\d)|(?<=[\d)}}])!|(?<=\b[a-z])['!]")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words(statement: str, *, signs: bool = False) -> list[str]:
    """The words, numbers and operators of a statement, in lower case, in their order; if asked, also other signs.

    These, such as parentheses, factorials and per cent, are not the same in all copies of a problem.
    """
    plain = unicodedata.normalize("NFKC", statement).lower()
    for spelling, ours in _SPELLINGS:
        plain = spelling.sub(ours, plain)
    plain = _STYLE.sub(" ", _SPACING.sub(" ", plain))
    return (_SIGN if signs else _WORD).findall(plain)


def form(statement: str, *, signs: bool = False) -> bytes:
    """A digest that is the same for all copies of a statement: 32 bytes, the SHA-256 of its words."""
    return hashlib.sha256(" ".join(words(statement, signs=signs)).encode("utf-8", "surrogatepass")).digest()


def name(statement: str) -> str:
    """An id for a problem whose row has none: 12 hex digits that do not depend on the row's position."""
    return form(statement).hex()[:12]


def split(statement: str) -> str:
    """`"train"`, `"validation"` or `"test"`, 80/10/10, by the words of the statement: no copy is in another split."""
    return split_of(form(statement))


def short_answer(text: str) -> str:
    """An answer in lower case without ASCII punctuation, articles and additional white space, in this order.

    Where that leaves nothing, as of the bands "The The" and "!!!", articles stay, and else the punctuation, too.

    Source: `normalize_answer` of `hotpot_evaluate_v1.py` (github.com/hotpotqa/hotpot), of `2wikimultihop_evaluate.py`
    (github.com/Alab-NII/2wikimultihop) and of `metrics/answer.py` (github.com/StonyBrookNLP/musique).
    """
    lower = text.lower()
    plain = lower.translate(_PUNCTUATION)
    return next((" ".join(words) for each in (_ARTICLES.sub(" ", plain), plain, lower) if (words := each.split())), "")
