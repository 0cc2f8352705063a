"""The largest change from one day to the next."""

from own_problems import TRAIN, StdinProblem, Wrong, crashes, lines


def private(random):
    yield lines(1, -7)
    yield lines(2, [3, 3])
    yield lines(2, [-40, 50])
    yield lines(2, [50, -40])
    yield lines(4, [1, 4, 8, 13])
    yield lines(4, [20, 11, 3, -4])
    for count in (5, 9, 30, 100):
        yield lines(count, [random.randint(-40, 50) for _ in range(count)])


PROBLEM = StdinProblem(
    number=4,
    title="Temperature Swing",
    split=TRAIN,
    level=1,
    statement="""\
A weather station writes down one temperature a day, in whole degrees. Find the largest change, up or down, from one \
day to the next. If there is only one day, the answer is 0.

Input
The first line has the number of days n (1 <= n <= 100). The second line has n integers from -50 to 50.

Output
One integer: the largest change.""",
    public=((lines(5, [10, 12, 15, 14, 13]), "3\n"), (lines(3, [0, 5, 6]), "5\n")),
    private=private,
    golden=(
        """\
n = int(input())
days = list(map(int, input().split()))
print(max((abs(a - b) for a, b in zip(days, days[1:])), default=0))
""",
        """\
input()
best, before = 0, None
for now in map(int, input().split()):
    if before is not None:
        best = max(best, now - before, before - now)
    before = now
print(best)
""",
    ),
    wrong=(
        Wrong(
            why="only changes upwards",
            program="""\
n = int(input())
days = list(map(int, input().split()))
best = 0
for i in range(1, n):
    best = max(best, days[i] - days[i - 1])
print(best)
""",
        ),
        crashes(
            "a single day",
            """\
n = int(input())
days = list(map(int, input().split()))
print(max(abs(days[i] - days[i + 1]) for i in range(n - 1)))
""",
        ),
        Wrong(
            why="of any two days",
            program="""\
n = int(input())
days = list(map(int, input().split()))
print(max(days) - min(days))
""",
        ),
        Wrong(
            why="off by one: the last day is left out",
            program="""\
n = int(input())
days = list(map(int, input().split()))
best = 0
for i in range(n - 2):
    best = max(best, abs(days[i] - days[i + 1]))
print(best)
""",
        ),
    ),
)
