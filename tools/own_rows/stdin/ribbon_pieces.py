"""A ribbon cut into many pieces, no two neighbours alike: a table over length and last piece."""

from own_problems import TEST, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield lines([5, 1], 5)
    yield lines([10, 1], 5)
    yield lines([3, 1], 5)
    yield lines([6, 2], [2, 4])
    yield lines([8, 2], [2, 4])
    yield lines([7, 3], [1, 2, 5])
    yield lines([12, 3], [3, 4, 5])
    yield lines([1, 1], 1)
    yield lines([11, 2], [3, 4])
    for length, count in ((30, 3), (61, 4), (300, 5), (1000, 8)):
        yield lines([length, count], sorted(random.sample(range(1, 20), count)))


PROBLEM = StdinProblem(
    number=16,
    title="Ribbon Pieces",
    split=TEST,
    level=2,
    statement="""\
A ribbon of length n is to be cut into pieces from its left end to its right end, with nothing left over. Every \
piece must have one of k given lengths, and two pieces that were next to each other on the ribbon must not have the \
same length. What is the largest possible number of pieces? If the ribbon cannot be cut so, the answer is -1.

Input
The first line has n and k (1 <= n <= 1000, 1 <= k <= 10). The second line has k different integers from 1 to 1000: \
the lengths that are allowed.

Output
One integer: the largest number of pieces, or -1.""",
    public=((lines([9, 2], [2, 5]), "3\n"), (lines([4, 2], [2, 3]), "-1\n")),
    private=private,
    golden=(
        """\
n, k = map(int, input().split())
sizes = list(map(int, input().split()))
best = [{0: 0}]  # best[length][last piece]: the most pieces
for length in range(1, n + 1):
    here = {}
    for size in sizes:
        if size <= length:
            options = [pieces for last, pieces in best[length - size].items() if last != size]
            if options:
                here[size] = max(options) + 1
    best.append(here)
print(max(best[n].values(), default=-1))
""",
    ),
    wrong=(
        Wrong(
            why="ignores the neighbours",
            program="""\
n, k = map(int, input().split())
sizes = list(map(int, input().split()))
best = [0] + [-1] * n
for i in range(1, n + 1):
    for s in sizes:
        if s <= i and best[i - s] >= 0:
            best[i] = max(best[i], best[i - s] + 1)
print(best[n])
""",
        ),
        Wrong(
            why="keeps one best cut for each length",
            program="""\
n, k = map(int, input().split())
sizes = list(map(int, input().split()))
best = [(0, 0)] + [(-1, 0)] * n
for i in range(1, n + 1):
    for s in sizes:
        if s <= i and best[i - s][0] >= 0 and best[i - s][1] != s:
            best[i] = max(best[i], (best[i - s][0] + 1, s))
print(best[n][0])
""",
        ),
        Wrong(
            why="wrong greedy: the two shortest in turn",
            program="""\
n, k = map(int, input().split())
sizes = sorted(map(int, input().split()))
pieces, last = 0, 0
while n > 0:
    fit = [s for s in sizes if s != last and s <= n]
    if not fit:
        break
    last = fit[0]
    n -= last
    pieces += 1
print(pieces if n == 0 else -1)
""",
        ),
        too_slow("""\
n, k = map(int, input().split())
sizes = list(map(int, input().split()))
def most(left, last):
    if left == 0:
        return 0
    options = [most(left - s, s) for s in sizes if s != last and s <= left]
    options = [o for o in options if o >= 0]
    return max(options) + 1 if options else -1
import sys
sys.setrecursionlimit(10000)
print(most(n, 0))
"""),
    ),
)
