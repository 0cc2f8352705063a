"""Lamps that are switched in ranges: a billion lamps, a few hundred ranges."""

from own_problems import VALIDATION, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield lines([1, 1], [1, 1])
    yield lines([1, 2], [1, 1], [1, 1])
    yield lines([10, 0])
    yield lines([10, 2], [1, 5], [5, 10])
    yield lines([10, 2], [1, 5], [6, 10])
    yield lines([10, 3], [1, 10], [3, 4], [4, 4])
    yield lines([5, 3], [1, 5], [1, 5], [1, 5])
    yield lines([10**9, 2], [1, 10**9], [2, 10**9 - 1])
    for lamps, count in ((20, 4), (1000, 20), (10**6, 60), (10**9, 300)):
        yield lines([lamps, count], *(sorted(random.randint(1, lamps) for _ in range(2)) for _ in range(count)))


PROBLEM = StdinProblem(
    number=24,
    title="Rows of Lamps",
    split=VALIDATION,
    level=3,
    statement="""\
A street has n lamps, numbered from 1 and all off. A technician gives m orders; each one switches all lamps from \
number l to number r, both included: those that are off go on, and those that are on go off. How many lamps are on at \
the end?

Input
The first line has n and m (1 <= n <= 10^9, 0 <= m <= 300). Each of the next m lines has l and r (1 <= l <= r <= n).

Output
One integer: the number of lamps that are on.""",
    public=((lines([10, 2], [2, 6], [4, 8]), "4\n"), (lines([7, 1], [3, 5]), "3\n")),
    private=private,
    golden=(
        """\
n, m = map(int, input().split())
changes = []
for _ in range(m):
    l, r = map(int, input().split())
    changes += [l, r + 1]
changes.sort()
print(sum(end - start for start, end in zip(changes[::2], changes[1::2])))
""",
    ),
    wrong=(
        too_slow("""\
n, m = map(int, input().split())
orders = [tuple(map(int, input().split())) for _ in range(m)]
print(sum(sum(l <= lamp <= r for l, r in orders) % 2 for lamp in range(1, n + 1)))
"""),
        Wrong(
            why="off by one: the right end is left out",
            program="""\
n, m = map(int, input().split())
ends = []
for _ in range(m):
    ends += map(int, input().split())
ends.sort()
print(sum(ends[i + 1] - ends[i] + (m == 1) for i in range(0, 2 * m, 2)))
""",
        ),
        Wrong(
            why="counts lamps that were switched at all",
            program="""\
n, m = map(int, input().split())
total = last = 0
for l, r in sorted(tuple(map(int, input().split())) for _ in range(m)):
    total += max(0, r - max(l - 1, last))
    last = max(last, r)
print(total)
""",
        ),
    ),
)
