"""Times every regular expression of both packages on repeated pieces; run as a program it reads them from its input.

    python tests/patterns.py < patterns.json

A line of output is a pattern that is not linear. Of each pattern there are texts of pieces that it can match, repeated
with and without what must stand before them, and a last character that it cannot match: one that is in no class, and
for a class of all characters but some, one of these.
"""

import json
import random
import re
import sys
import time
from collections.abc import Iterator
from typing import Any


parser, constants = re._parser, re._constants  # type: ignore[attr-defined]  # no public module parses a pattern
SMALL, LARGE = 1_000, 4_000
MOST_RATIO, MOST_SECONDS, LEAST_SECONDS, TRIES = 6.0, 0.25, 0.0002, 4
"""Below `LEAST_SECONDS` no ratio is measured: what is quadratic takes 0.7 ms or more for `LARGE` characters."""


MOST_ENDS = 2


def sample(nodes: Any, dice: random.Random) -> str:
    """A text that a parsed pattern matches, but for what stands before or after it."""
    return "".join(_of(kind, value, dice) for kind, value in nodes)


def _of(kind: Any, value: Any, dice: random.Random) -> str:
    name = str(kind)
    if name == "LITERAL":
        return chr(value)
    if name == "NOT_LITERAL":
        return "a" if value != ord("a") else "b"
    if name == "ANY":
        return "a"
    if name == "IN":
        return _member(value, dice)
    if name == "BRANCH":
        return sample(dice.choice(value[1]), dice)
    if name == "SUBPATTERN":
        return sample(value[3], dice)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, body = value
        return sample(body, dice) * max(least, min(most, dice.choice((1, 1, 2))))
    if name == "ATOMIC_GROUP":
        return sample(value, dice)
    return ""  # positions, looks ahead and behind, references


CLASSES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " \n", "CATEGORY_WORD": "a1", "CATEGORY_NOT_DIGIT": "a"}
CLASSES |= {"CATEGORY_NOT_SPACE": "a", "CATEGORY_NOT_WORD": " "}


def _member(items: Any, dice: random.Random) -> str:
    known = []
    for kind, value in items:
        if str(kind) == "LITERAL":
            known.append(chr(value))
        elif str(kind) == "RANGE":
            known.append(chr(dice.randint(value[0], min(value[1], value[0] + 30))))
        elif str(kind) == "CATEGORY":
            known += CLASSES[str(value)]
    if str(items[0][0]) != "NEGATE":
        return dice.choice(known)
    inside = re.compile("[" + "".join(map(re.escape, known)) + "]") if known else None
    return dice.choice([each for each in "a1 \n<{,." if inside is None or not inside.match(each)] or ["\u2603"])


def repeats(nodes: Any, before: Any = ()) -> Iterator[tuple[Any, Any]]:
    """The nodes that stand before each unbounded repeat of a pattern, and its body."""
    before = list(before)
    for kind, value in nodes:
        name = str(kind)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            if value[1] == constants.MAXREPEAT:
                yield [*before], value[2]
            yield from repeats(value[2], before)
        elif name == "BRANCH":
            for each in value[1]:
                yield from repeats(each, before)
        elif name == "SUBPATTERN":
            yield from repeats(value[3], before)
        elif name == "ATOMIC_GROUP":
            yield from repeats(value, before)
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from repeats(value[1], before)
        before.append((kind, value))


def excluded(nodes: Any) -> Iterator[str]:
    """The characters that a parsed pattern names only to exclude them, as those of `[^`]`."""
    for kind, value in nodes:
        name = str(kind)
        if name == "NOT_LITERAL":
            yield chr(value)
        elif name == "IN" and str(value[0][0]) == "NEGATE":
            yield from (chr(each) for what, each in value if str(what) == "LITERAL")
        elif name == "BRANCH":
            for each in value[1]:
                yield from excluded(each)
        elif name == "SUBPATTERN":
            yield from excluded(value[3])
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield from excluded(value[2])


def texts(pattern: str, flags: int, *, draws: int = 2) -> Iterator[tuple[str, str, str]]:
    """What stands before, a piece to repeat, and what stands after."""
    dice, nodes = random.Random(0), parser.parse(pattern, flags)
    seen = set()
    ends = [*dict.fromkeys(excluded(nodes))][:MOST_ENDS]
    for before, body in [*repeats(nodes), ((), nodes)]:
        for draw in range(draws):
            first, piece = sample(before, dice), sample(body, dice)
            yield from ((first, piece, end) for end in ends if piece and not draw)
            for given in ((first, piece), ("", first + piece), ("", first)):
                if given[1] and given not in seen:
                    seen.add(given)
                    yield *given, "\x01"
    for piece in {" ", "a", "1", "\n", "\\"}:
        if ("", piece) not in seen:
            yield "", piece, "\x01"


def seconds(work: Any, *given: Any) -> float:
    """CPU time."""
    begun = time.process_time()
    work(*given)
    return time.process_time() - begun


METHODS = {
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "search": lambda pattern, text: sum(1 for _ in pattern.finditer(text)),
}


def text_of(given: tuple[str, str, str], length: int) -> str:
    """A text of about `length` characters."""
    first, piece, last = given
    return first + piece * max(1, length // len(piece)) + last


def fault(pattern: Any, method: Any, given: tuple[str, str, str], kind: Any = str) -> str | None:
    """Why a pattern is not linear on a text, if it is not: the least of several tries must be."""
    work, number = METHODS.get(method, method), 1
    while number * len(given[1]) < LARGE:  # what is exponential is found before it takes minutes
        length = number * len(given[1])
        if (took := seconds(work, pattern, kind(text_of(given, length)))) > MOST_SECONDS:
            return f"{took:.2f} s for {length} characters"
        number += 1 if number < 40 else number
    for _ in range(TRIES):
        small, large = (seconds(work, pattern, kind(text_of(given, each))) for each in (SMALL, LARGE))
        if large < LEAST_SECONDS or large <= MOST_RATIO * small:
            return None
    return f"{small * 1e3:.1f} ms for {SMALL} characters, {large * 1e3:.1f} ms for {LARGE}"


def main() -> None:
    for where, pattern, flags, is_bytes, method in json.load(sys.stdin):
        kind = (lambda text: text.encode("latin-1", "replace")) if is_bytes else str
        compiled = re.compile(kind(pattern), flags)
        for given in texts(pattern, flags):
            if (why := fault(compiled, method, given, kind)) is not None:
                print(f"{where}: {method} of {given!r}: {why}", flush=True)
                break


if __name__ == "__main__":
    main()
