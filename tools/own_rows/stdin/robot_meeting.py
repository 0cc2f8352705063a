"""Two timetables that meet: remainders, and the later of two beginnings."""

from own_problems import TRAIN, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield lines([1, 1], [1, 1])
    yield lines([5, 3], [5, 9])
    yield lines([0, 2], [1, 2])
    yield lines([0, 2], [1, 4])
    yield lines([100, 3], [1, 2])
    yield lines([7, 10], [50, 15])
    yield lines([3, 6], [8, 10])
    yield lines([0, 6], [9, 9])
    yield lines([10**9, 10**9], [0, 1])
    yield lines([1, 10**9], [2, 10**9 - 1])
    yield lines([0, 10**9], [1, 10**9])
    for most in (20, 1000, 10**6, 10**9, 10**9):
        yield lines(*([random.randint(0, most), random.randint(1, most)] for _ in range(2)))


PROBLEM = StdinProblem(
    number=18,
    title="Two Robots",
    split=TRAIN,
    level=3,
    statement="""\
Two robots use the same charging station. The first one comes on day x for the first time and then again every a \
days, that is on days x, x + a, x + 2a, and so on. The second one comes on days y, y + b, y + 2b, and so on. Find the \
first day on which both come, or -1 if there is no such day.

Input
Two lines, the first with x and a, the second with y and b (0 <= x, y <= 10^9, 1 <= a, b <= 10^9).

Output
One integer: the day, or -1.""",
    public=((lines([1, 4], [3, 5]), "13\n"), (lines([2, 6], [5, 9]), "14\n")),
    private=private,
    golden=(
        """\
from math import gcd
x, a = map(int, input().split())
y, b = map(int, input().split())
g = gcd(a, b)
if (y - x) % g:
    print(-1)
else:
    period = a // g * b
    times = (y - x) // g * pow(a // g, -1, b // g) % (b // g)
    day = (x + times * a) % period
    latest = max(x, y)
    print(day + max(0, -(-(latest - day) // period)) * period)
""",
    ),
    wrong=(
        too_slow("""\
x, a = map(int, input().split())
y, b = map(int, input().split())
for visit in range(b + 10**9 // a + 2):
    day = x + visit * a
    if day >= y and (day - y) % b == 0:
        print(day)
        break
else:
    print(-1)
"""),
        Wrong(
            why="edge case: a day before one of the robots begins",
            program="""\
from math import gcd
x, a = map(int, input().split())
y, b = map(int, input().split())
g = gcd(a, b)
if (y - x) % g:
    print(-1)
else:
    t = (y - x) // g * pow(a // g, -1, b // g) % (b // g)
    print((x + t * a) % (a // g * b))
""",
        ),
        Wrong(
            why="gives up whenever a and b have a common divisor",
            program="""\
from math import gcd
x, a = map(int, input().split())
y, b = map(int, input().split())
if gcd(a, b) > 1 and (x - y) % (a * b // gcd(a, b)):
    print(-1)
else:
    g = gcd(a, b)
    t = (y - x) // g * pow(a // g, -1, b // g) % (b // g)
    d, p = x + t * a, a // g * b
    while d < y:
        d += p
    print(d)
""",
        ),
    ),
)
