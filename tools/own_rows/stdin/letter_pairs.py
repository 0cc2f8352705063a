"""Pairs of a small and a capital letter, in this order: counting without looking at pairs."""

from own_problems import TEST, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield from map(lines, ("a", "A", "Aa", "aA", "aAaA", "AAaa", "aaAA", "abAB", "zZzZz", "aBcDe"))
    for length in (20, 200, 2000):
        yield lines("".join(random.choice("abcABC") for _ in range(length)))
    yield lines("".join(random.choice("aAb") for _ in range(16000)))


PROBLEM = StdinProblem(
    number=10,
    title="Letter Pairs",
    split=TEST,
    level=2,
    statement="""\
In a string of English letters, two positions i < j are called a pair if position i has a small letter and position j \
has the same letter as a capital. For example, "aAbA" has two pairs, both with the first position.

Count the pairs of a string.

Input
One line with a string of 1 to 20000 small and capital English letters.

Output
One integer: the number of pairs.""",
    public=((lines("aAbA"), "2\n"), (lines("xyXYX"), "3\n")),
    private=private,
    golden=(
        """\
from collections import Counter
seen = Counter()
pairs = 0
for letter in input().strip():
    if letter.isupper():
        pairs += seen[letter.lower()]
    else:
        seen[letter] += 1
print(pairs)
""",
    ),
    wrong=(
        Wrong(
            why="ignores the order",
            program="""\
s = input().strip()
print(sum(s.count(c) * s.count(c.upper()) for c in "abcdefghijklmnopqrstuvwxyz"))
""",
        ),
        Wrong(
            why="uses every letter once only",
            program="""\
from collections import Counter
free, pairs = Counter(), 0
for c in input().strip():
    if c.islower():
        free[c] += 1
    elif free[c.lower()]:
        free[c.lower()] -= 1
        pairs += 1
print(pairs)
""",
        ),
        too_slow("""\
s = input().strip()
pairs = 0
for i in range(len(s)):
    for j in range(i + 1, len(s)):
        if s[i].islower() and s[j].isupper() and s[j].lower() == s[i]:
            pairs += 1
print(pairs)
"""),
    ),
)
