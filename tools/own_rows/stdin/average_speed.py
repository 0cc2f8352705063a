"""The average speed of a journey: a decimal number, and the wrong mean."""

from own_problems import VALIDATION, StdinProblem, Wrong, crashes, lines


def private(random):
    yield lines(1, [0, 9])
    yield lines(2, [0, 7], [0, 3])
    yield lines(1, [1, 1000])
    yield lines(2, [1000, 1], [1, 1000])
    yield lines(3, [1, 3], [1, 7], [1, 11])
    yield lines(2, [5, 10], [0, 1])
    for count in (3, 6, 20, 50):
        yield lines(count, *([random.randint(0, 1000), random.randint(1, 1000)] for _ in range(count)))


PROBLEM = StdinProblem(
    number=5,
    title="Average Speed",
    split=VALIDATION,
    level=1,
    tolerance=1e-6,
    statement="""\
A train journey has n legs. On leg i the train covers d_i kilometres at a steady v_i kilometres per hour. The average \
speed of the journey is the whole distance divided by the whole time. If the train covers no distance at all, the \
average speed is 0.

Input
The first line has n (1 <= n <= 50). Each of the next n lines has two integers d_i and v_i (0 <= d_i <= 1000, \
1 <= v_i <= 1000).

Output
The average speed in kilometres per hour. The answer is accepted if its absolute or relative error does not exceed \
10^{-6}.""",
    public=((lines(2, [60, 60], [60, 60]), "60.000000000\n"), (lines(2, [100, 50], [50, 100]), "60.000000000\n")),
    private=private,
    golden=(
        """\
legs = [tuple(map(int, input().split())) for _ in range(int(input()))]
distance = sum(d for d, _ in legs)
time = sum(d / v for d, v in legs)
print(f"{distance / time if distance else 0:.9f}")
""",
        """\
from fractions import Fraction
n = int(input())
distance, time = 0, Fraction(0)
for _ in range(n):
    d, v = map(int, input().split())
    distance += d
    time += Fraction(d, v)
print(float(distance / time) if time else 0.0)
""",
    ),
    wrong=(
        Wrong(
            why="the mean of the speeds",
            program="""\
n = int(input())
legs = [list(map(int, input().split())) for _ in range(n)]
print(sum(v for d, v in legs) / n)
""",
        ),
        crashes(
            "no distance",
            """\
n = int(input())
legs = [list(map(int, input().split())) for _ in range(n)]
print(sum(d for d, v in legs) / sum(d / v for d, v in legs))
""",
        ),
        Wrong(
            why="rounded to two places",
            program="""\
n = int(input())
legs = [list(map(int, input().split())) for _ in range(n)]
time = sum(d / v for d, v in legs)
print(round(sum(d for d, v in legs) / time, 2) if time else 0)
""",
        ),
    ),
)
