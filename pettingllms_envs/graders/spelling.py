r"""One spelling for what TeX can write in many: `\dfrac12`, `\frac{1}{2}` and `\left( \frac 1 2 \right)`. Pure.

Nothing here knows what an expression means: two texts of one spelling are the same answer, two of different spellings
may be.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator


_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|textsf|mathrm|mathbf|mathit|mathsf|mbox|operatorname|boldsymbol)\*?"
    r"\s*\{([^{}]*)\}"
)
_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
_SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|middle)(?![a-zA-Z])")
_SPACES = re.compile(r"(\\\\)|\\(?:[,;:! ]|q?quad(?![a-zA-Z])|(?:display|text)style(?![a-zA-Z])|limits(?![a-zA-Z]))|~")
_JOINED = re.compile(r",\s*\\!\s*|\{,\}")
_NAMES_OF = {
    r"\frac": "dfrac tfrac cfrac",
    r"\binom": "dbinom tbinom",
    r"\ge": "geqslant geq",
    r"\le": "leqslant leq",
    r"\ne": "neq",
    ">": "gt",
    "<": "lt",
    r"\approx": "simeq",
    r"\mathbb{R}": "R reals Reals",
    r"\{": "lbrace",
    r"\}": "rbrace",
    "(": "langle",
    ")": "rangle",
    "=": "equiv",
    "|": "lvert rvert vert mid",
    r"\infty": "infin",
    r"^\circ": "degree",
    ":": "colon",
    r"\ldots": "dots",
    r"\emptyset": "varnothing",
    r"\mod": "bmod",
}
_COMMANDS = {name: symbol for symbol, names in _NAMES_OF.items() for name in names.split()}
_COMMAND = re.compile(rf"\\({'|'.join(_COMMANDS)})(?![a-zA-Z])")
_SIGNS = "× times, · cdot, π pi, ∞ infty, ∪ cup, ∩ cap, ∈ in, ≤ le, ≥ ge, ≠ ne, ≈ approx, ± pm, <= le, >= ge, != ne"
_SYMBOLS = {
    "\\\\": "\\\\",  # the end of a matrix's row, and not the beginning of a command
    **{sign: rf"\{name} " for sign, name in map(str.split, _SIGNS.split(","))},
    **dict.fromkeys(("−", "–"), "-"),
    "÷": "/",
    "°": r"^\circ ",
    "ℝ": r"\mathbb{R}",
    "，": ",",
    "；": ";",
    "∶": ":",
    **dict.fromkeys(("％", "\\%"), "%"),
    **dict.fromkeys(("\u00a0", "\u2009", "\u202f"), " "),
    **dict.fromkeys(("$", "€", "£", "\\$", "\\(", "\\)", "\\[", "\\]"), ""),
    **dict.fromkeys((":=", "=="), "="),
    "**": "^",
}
_SYMBOL = re.compile("|".join(re.escape(each) for each in sorted(_SYMBOLS, key=len, reverse=True)))
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|(\d+(?:\.\d+)?|[A-Za-z])|)")
_NAMES = {"pi": r"\pi ", "oo": r"\infty ", "inf": r"\infty ", "infinity": r"\infty "}
_NAME = re.compile(
    rf"(?<![A-Za-z\\])(?:({'|'.join(_NAMES)})(?![A-Za-z])|a?(?:sin|cos|tan|log|exp|cot|sec|csc|ln)(?=\s*\())"
)
_RAISED_CIRCLE = re.compile(r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ")
_I = re.compile(r"(?:(?<!\s)\s+)?\*\s*I(?![A-Za-z])|(?<![A-Za-z\\])I\s*\*\s*")
_ANGLE = r"\s*(\d+(?:\.\d+)?)\s*\^\\circ\s*"
_IN_DEGREES = re.compile(
    rf"(\\(?:sin|cos|tan|cot|sec|csc)\s*+(?:\^\s*(?:\d|\{{-?\d+\}})\s*+)?)(?:\({_ANGLE}\)|\{{{_ANGLE}\}}|{_ANGLE})"
)
_MIXED = re.compile(r"((?:^|[,(\[{=;])\s*[+-]?\d+)\s+([1-9]\d?)/(\d+)\s*(?=$|[,)\]};])")
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL)
_END = " \t\n.,;:\\"  # also a backslash, of a line break or of nothing
_START = " \t\n,;:"


def plain(text: str) -> str:
    r"""The text without math delimiters, boxes and sizes, and with one name for each symbol; words keep spaces.

    Text commands keep their content as `\text{content}`, whichever they were.
    """
    text = _JOINED.sub("{,}", text)
    text = _RAISED.sub(_power, text)
    text = _VULGAR.sub(_fraction, text)
    text = _ROOT.sub(lambda match: rf"\sqrt{{{match[1] or match[2]}}}" if match[0] != "√" else r"\sqrt ", text)
    text = _SYMBOL.sub(lambda match: _SYMBOLS[match.group()], text)
    text = _SIZES.sub("", text)
    text = _SPACES.sub(lambda match: match.group(1) or " ", text)
    text = _COMMAND.sub(lambda match: _COMMANDS[match.group(1)] + " ", text)
    text = _BOX.sub(" ", text)
    text = _TEXT.sub(r"\\text{\1}", text)
    text = _RAISED_CIRCLE.sub(r"^\\circ ", text)
    text = _I.sub("i", _NAME.sub(_command, text))
    text = _IN_DEGREES.sub(lambda match: rf"{match[1]}(\frac{{{match[2] or match[3] or match[4]}\pi}}{{180}})", text)
    text = text.lstrip(_START).rstrip(_END)
    return _MIXED.sub(_mixed, text)


def _power(match: re.Match[str]) -> str:
    """`x¹⁰` as `x^{10}`."""
    power = unicodedata.normalize("NFKC", match[0]).replace("\u2212", "-")
    return f"^{{{power}}}"


def _fraction(match: re.Match[str]) -> str:
    """`½` as a fraction."""
    numerator, _, denominator = unicodedata.normalize("NFKC", match[0]).partition("\u2044")
    return rf"\frac{{{numerator}}}{{{denominator}}}"


def _command(match: re.Match[str]) -> str:
    """The command for a name without a backslash, as programs print it."""
    name = match[0]
    return (match[1] and _NAMES[match[1]]) or "\\" + (f"arc{name[1:]}" if name[0] == "a" else name)


def _mixed(match: re.Match[str]) -> str:
    """`3 1/2` as `3\\frac{1}{2}`, a proper fraction after a whole number."""
    whole, numerator, denominator = match.groups()
    return rf"{whole}\frac{{{numerator}}}{{{denominator}}}" if int(numerator) < int(denominator) else match[0]


_ALPHABETS = (r"\mathbb", r"\mathcal", r"\mathfrak")


def tight(text: str) -> str:
    r"""A plain text in the one spelling: no space that TeX would ignore, and braces where an argument needs them.

    `\frac 1 2`, `\frac12` and `\frac{1}2` become `\frac{1}{2}`; `x^{2}` and `x_{ 1 }` become `x^2` and `x_1`.
    """
    tokens = [token for token in _TOKEN.findall(text) if not token.isspace()]
    return _joined(_arguments(iter(tokens))).replace(r"\{\}", r"\emptyset")


def _arguments(tokens: Iterator[str], closing: str = "") -> list[str]:
    """The tokens up to `closing`, with each argument braced as it is to be. Groups are single items."""
    out: list[str] = []
    for token in tokens:
        if token == closing:
            return out
        if token == "{":
            inner = _joined(_arguments(tokens, "}"))
            previous = out[-1] if out else ""
            out.append(inner if previous in ("^", "_") and len(_TOKEN.findall(inner)) == 1 else f"{{{inner}}}")
        elif token in (r"\frac", r"\binom"):
            out += [token, _argument(tokens), _argument(tokens)]
        elif token == r"\sqrt":
            out += _root(tokens)
        elif token in _ALPHABETS:
            out += [token, _argument(tokens)]
        else:
            out.append(token)
    return out


def _argument(tokens: Iterator[str]) -> str:
    token = next(tokens, "")
    if token == "{":
        return f"{{{_joined(_arguments(tokens, '}'))}}}"
    if token == r"\sqrt":
        return f"{{{_joined(_root(tokens))}}}"
    if token in (r"\frac", r"\binom"):
        return f"{{{token}{_argument(tokens)}{_argument(tokens)}}}"
    return f"{{{token}}}"


def _root(tokens: Iterator[str]) -> list[str]:
    token = next(tokens, "")
    if token == "[":
        return [r"\sqrt", f"[{_joined(_arguments(tokens, ']'))}]", _argument(tokens)]
    if token == "{":
        return [r"\sqrt", f"{{{_joined(_arguments(tokens, '}'))}}}"]
    return [r"\sqrt", f"{{{token}}}"]


def _joined(tokens: list[str]) -> str:
    r"""The tokens in a row, with a space only where a command's name would run into a letter: `\pi r`."""
    parts: list[str] = []
    for token in tokens:
        if parts and token[:1].isalpha() and parts[-1][:1] == "\\" and parts[-1][-1].isalpha():
            parts.append(" ")
        parts.append(token)
    return "".join(parts)
