"""The longest time without a booking: intervals that overlap and contain each other."""

from own_problems import TRAIN, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield lines([0, 50])
    yield lines([1, 50], [0, 50])
    yield lines([1, 50], [49, 50])
    yield lines([2, 100], [0, 90], [10, 20])
    yield lines([3, 100], [10, 80], [20, 30], [85, 90])
    yield lines([2, 40], [0, 20], [20, 40])
    yield lines([2, 10], [4, 5], [6, 7])
    yield lines([2, 10**9], [5, 6], [10**9 - 1, 10**9])
    for count, end in ((5, 60), (10, 1000), (40, 10**6), (200, 10**9)):
        starts = [random.randrange(end - 1) for _ in range(count)]
        yield lines(
            [count, end], *([at, random.randint(at + 1, min(end, at + 1 + 2 * end // count))] for at in starts)
        )


PROBLEM = StdinProblem(
    number=12,
    title="Longest Free Time",
    split=TRAIN,
    level=2,
    statement="""\
A hall is open from minute 0 to minute T. It has n bookings; a booking from s to e occupies the hall from minute s up \
to minute e. Bookings may overlap, and one may lie within another. Find the length of the longest stretch of time \
within the opening hours in which there is no booking. If the hall is always occupied, the answer is 0.

Input
The first line has n and T (0 <= n <= 200, 1 <= T <= 10^9). Each of the next n lines has s and e (0 <= s < e <= T). \
The bookings are in no particular order.

Output
One integer: the length of the longest stretch in minutes.""",
    public=((lines([2, 20], [12, 15], [3, 8]), "5\n"), (lines([3, 30], [0, 10], [5, 14], [25, 30]), "11\n")),
    private=private,
    golden=(
        """\
n, T = map(int, input().split())
bookings = sorted(tuple(map(int, input().split())) for _ in range(n))
best = free_from = 0
for start, end in bookings:
    best = max(best, start - free_from)
    free_from = max(free_from, end)
print(max(best, T - free_from))
""",
    ),
    wrong=(
        Wrong(
            why="edge case: a booking within another",
            program="""\
n, T = map(int, input().split())
b = sorted(tuple(map(int, input().split())) for _ in range(n))
best, last = 0, 0
for s, e in b:
    best = max(best, s - last)
    last = e
print(max(best, T - last))
""",
        ),
        Wrong(
            why="edge case: the time before closing is forgotten",
            program="""\
n, T = map(int, input().split())
b = sorted(tuple(map(int, input().split())) for _ in range(n))
best, last = 0, 0
for s, e in b:
    best = max(best, s - last)
    last = max(last, e)
print(best)
""",
        ),
        too_slow("""\
n, T = map(int, input().split())
b = [tuple(map(int, input().split())) for _ in range(n)]
best = run = 0
for minute in range(T):
    if any(s <= minute < e for s, e in b):
        run = 0
    else:
        run += 1
        best = max(best, run)
print(best)
"""),
    ),
)
