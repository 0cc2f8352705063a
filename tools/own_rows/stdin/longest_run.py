"""The longest run of one letter: the end of the string, and ties."""

from own_problems import TRAIN, StdinProblem, Wrong, lines


def private(random):
    yield from map(lines, ("a", "ab", "aabb", "abbb", "zzzzz", "aabbaa", "xyyxx", "abcabcabc"))
    for length in (10, 30, 100, 1000):
        yield lines("".join(random.choice("abc") for _ in range(length)))


PROBLEM = StdinProblem(
    number=3,
    title="Longest Run",
    split=TRAIN,
    level=1,
    statement="""\
A string of lowercase letters is given. A run is a part of the string, without gaps, in which all letters are equal. \
Find the longest run. If several runs are equally long, take the one that comes first.

Input
One line with a string of 1 to 1000 lowercase letters.

Output
One line with the letter of that run and its length, separated by a space.""",
    public=((lines("abbbcc"), "b 3\n"), (lines("ssnnoow"), "s 2\n")),
    private=private,
    golden=(
        """\
from itertools import groupby
runs = [(letter, len(list(same))) for letter, same in groupby(input().strip())]
print(*max(runs, key=lambda run: run[1]))
""",
        """\
text = input().strip()
best, best_length = text[0], 0
length = 0
for i, letter in enumerate(text):
    length = length + 1 if i and text[i - 1] == letter else 1
    if length > best_length:
        best, best_length = letter, length
print(best, best_length)
""",
    ),
    wrong=(
        Wrong(
            why="wrong tie: the last of the longest runs",
            program="""\
from itertools import groupby
best = ("", 0)
for letter, same in groupby(input().strip()):
    n = len(list(same))
    if n >= best[1]:
        best = (letter, n)
print(*best)
""",
        ),
        Wrong(
            why="edge case: a run at the end is forgotten",
            program="""\
s = input().strip()
best, count, letter = 1, 1, s[0]
for i in range(1, len(s)):
    if s[i] == s[i - 1]:
        count += 1
    else:
        if count > best:
            best, letter = count, s[i - 1]
        count = 1
print(letter, best)
""",
        ),
        Wrong(
            why="counts the letter in the whole string",
            program="""\
s = input().strip()
letter = max(dict.fromkeys(s), key=s.count)
print(letter, s.count(letter))
""",
        ),
        Wrong(
            why="wrong format",
            program="""\
from itertools import groupby
print(max(((k, len(list(g))) for k, g in groupby(input().strip())), key=lambda run: run[1]))
""",
        ),
    ),
)
