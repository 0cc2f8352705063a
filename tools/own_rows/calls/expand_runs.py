"""A short form of a string written out: numbers of several digits, letters without a number."""

from own_problems import TRAIN, CallProblem, Wrong, crashes


def private(random):
    for text in ("", "a", "12a", "a2bc10d", "0a", "3a0b2c", "100x", "aa", "1a1b1c", "z26"[:1] + "26y"):
        yield [text]
    for parts in (4, 10, 20):
        yield ["".join(random.choice(["", str(random.randint(0, 15))]) + random.choice("abc") for _ in range(parts))]


PROBLEM = CallProblem(
    number=106,
    title="Written Out",
    split=TRAIN,
    level=2,
    signature="expand_runs(short: str) -> str",
    statement="""\
In the short form of a string, a decimal number in front of a letter says how \
often the letter is repeated; a letter without a number stands for itself once. The number may have several digits, \
and may be 0. Given the short form, return the string. The short form consists of small letters and digits, never ends in a \
digit, and may be empty.""",
    public=((["3ab"], "aaab"), (["x2y3z"], "xyyzzz")),
    private=private,
    golden=(
        """\
def expand_runs(short):
    text, number = "", ""
    for c in short:
        if c.isdigit():
            number += c
        else:
            text += c * int(number or 1)
            number = ""
    return text
""",
        """\
import re
def expand_runs(short):
    return re.sub(r"([0-9]+)([a-z])", lambda match: int(match[1]) * match[2], short)
""",
    ),
    wrong=(
        Wrong(
            why="edge case: a single digit",
            program="""\
def expand_runs(short):
    out, times = "", 1
    for c in short:
        if c.isdigit():
            times = int(c)
        else:
            out += c * times
            times = 1
    return out
""",
        ),
        Wrong(
            why="edge case: 0 counts as no number",
            program="""\
def expand_runs(short):
    out, n = "", 0
    for c in short:
        if c.isdigit():
            n = 10 * n + int(c)
        else:
            out += c * (n or 1)
            n = 0
    return out
""",
        ),
        Wrong(
            why="the number holds for all letters after it",
            program="""\
import re
def expand_runs(short):
    return "".join(c * int(n) for n, word in re.findall("([0-9]+)([a-z]+)", "1" + short) for c in word)
""",
        ),
        crashes(
            "the empty string",
            """\
def expand_runs(short):
    out, number, i = "", "", 0
    c = short[0]
    while True:
        if c.isdigit():
            number += c
        else:
            out += c * int(number or "1")
            number = ""
        i += 1
        if i == len(short):
            return out
        c = short[i]
""",
        ),
    ),
)
