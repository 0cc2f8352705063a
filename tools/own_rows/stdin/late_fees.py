"""Fees of a library: a rule with thresholds and a cap."""

from own_problems import TRAIN, StdinProblem, Wrong, lines


def private(random):
    yield from (lines(1, days) for days in (0, 3, 4, 10, 11, 19, 20, 21, 365))
    yield lines(2, [365, 365])
    for count in (5, 10, 50, 100):
        yield lines(count, [random.choice([0, 3, 4, 10, 11, random.randint(0, 60)]) for _ in range(count)])


PROBLEM = StdinProblem(
    number=6,
    title="Late Fees",
    split=TRAIN,
    level=1,
    statement="""\
A library asks a fee for every book that comes back late. The first 3 days are free. Each of the next 7 days (days 4 \
to 10) costs 2 coins. Each day after day 10 costs 5 coins. But no book ever costs more than 60 coins.

Given how many days late each of n books is, find the fee for all of them together.

Input
The first line has n (1 <= n <= 100). The second line has n integers from 0 to 365: the days of each book.

Output
One integer: the number of coins.""",
    public=((lines(3, [2, 5, 12]), "28\n"), (lines(2, [4, 9]), "14\n")),
    private=private,
    golden=(
        """\
input()
print(sum(min(60, 2 * max(0, min(d, 10) - 3) + 5 * max(0, d - 10)) for d in map(int, input().split())))
""",
        """\
n = int(input())
total = 0
for days in map(int, input().split()):
    fee = 0
    for day in range(1, days + 1):
        if 4 <= day <= 10:
            fee += 2
        elif day > 10:
            fee += 5
    total += min(fee, 60)
print(total)
""",
    ),
    wrong=(
        Wrong(
            why="the cap is on the sum",
            program="""\
input()
print(min(60, sum(2 * max(0, min(d, 10) - 3) + 5 * max(0, d - 10) for d in map(int, input().split()))))
""",
        ),
        Wrong(
            why="edge case: no cap",
            program="""\
input()
print(sum(2 * max(0, min(d, 10) - 3) + 5 * max(0, d - 10) for d in map(int, input().split())))
""",
        ),
        Wrong(
            why="off by one: day 10 costs 5",
            program="""\
input()
total = 0
for d in map(int, input().split()):
    fee = 0
    for day in range(1, d + 1):
        if day >= 10:
            fee += 5
        elif day > 3:
            fee += 2
    total += min(fee, 60)
print(total)
""",
        ),
    ),
)
