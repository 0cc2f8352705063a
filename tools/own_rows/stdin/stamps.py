"""Stamps of 1, 7 and 10: where the largest first is wrong, and a table is too large."""

from own_problems import TRAIN, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield from map(lines, (1, 7, 10, 13, 15, 21, 28, 35, 42, 49, 56, 63, 64, 70, 1000, 10**15, 10**15 - 1))
    for digits in (3, 5, 15):
        yield lines(random.randint(10 ** (digits - 1), 10**digits))


PROBLEM = StdinProblem(
    number=9,
    title="Three Stamps",
    split=TRAIN,
    level=2,
    statement="""\
A post office sells stamps of only three values: 1, 7 and 10 coins. A letter costs exactly n coins. What is the \
smallest number of stamps whose values add up to n?

Input
One integer n (1 <= n <= 10^15).

Output
One integer: the smallest number of stamps.""",
    public=((lines(12), "3\n"), (lines(27), "3\n")),
    private=private,
    golden=(
        """\
n = int(input())
best = n
for sevens in range(10):
    for ones in range(10):
        rest = n - 7 * sevens - ones
        if rest >= 0 and rest % 10 == 0:
            best = min(best, sevens + ones + rest // 10)
print(best)
""",
        """\
n = int(input())
tens = max(0, n // 10 - 10)
small = n - 10 * tens
fewest = [0] + [10**9] * small
for value in range(1, small + 1):
    fewest[value] = 1 + min(fewest[value - coin] for coin in (1, 7, 10) if coin <= value)
print(tens + fewest[small])
""",
    ),
    wrong=(
        Wrong(
            why="wrong greedy: the largest first",
            program="""\
n = int(input())
print(n // 10 + n % 10 // 7 + n % 10 % 7)
""",
        ),
        Wrong(
            why="edge case: two sevens are seen for a rest of 4 only",
            program="""\
n = int(input())
if n % 10 == 4 and n >= 14:
    print(n // 10 + 1)
else:
    print(n // 10 + n % 10 // 7 + n % 10 % 7)
""",
        ),
        too_slow("""\
from collections import deque
n = int(input())
last = deque([0], maxlen=10)
for value in range(1, n + 1):
    last.append(1 + min(last[-c] for c in (1, 7, 10) if c <= len(last)))
print(last[-1])
"""),
    ),
)
