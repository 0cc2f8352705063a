"""Numbers without a great leap between digits: counting them digit by digit."""

from own_problems import TEST, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield from (
        lines([n, d]) for n, d in ((1, 0), (9, 3), (10, 0), (10, 1), (11, 0), (99, 0), (100, 9), (101, 1), (1000, 1))
    )
    yield lines([123456, 1])
    yield lines([10**18, 0])
    yield lines([10**18, 9])
    yield lines([10**18, 2])
    yield lines([987654321012345678, 1])
    yield lines([random.randint(10**16, 10**18), random.randint(2, 5)])


PROBLEM = StdinProblem(
    number=19,
    title="Gentle Numbers",
    split=TEST,
    level=3,
    statement="""\
A positive integer is gentle for d if any two digits next to each other in its decimal notation differ by at most d. \
For example, 2334 is gentle for 1, while 2534 is not. Numbers of one digit are always gentle. How many of the \
integers from 1 to n are gentle for d?

Input
One line with n and d (1 <= n <= 10^18, 0 <= d <= 9).

Output
One integer: how many of them are gentle.""",
    public=((lines([30, 1]), "15\n"), (lines([50, 2]), "28\n")),
    private=private,
    golden=(
        """\
from functools import cache
n, d = input().split()
d = int(d)

@cache
def ways(digits, last):
    # how many ways to append so many digits after `last`
    return 1 if digits == 0 else sum(ways(digits - 1, x) for x in range(10) if abs(x - last) <= d)

count = sum(ways(length - 1, x) for length in range(1, len(n)) for x in range(1, 10))
last = None
for at, digit in enumerate(map(int, n)):
    for x in range(at == 0, digit):
        if last is None or abs(x - last) <= d:
            count += ways(len(n) - at - 1, x)
    if last is not None and abs(digit - last) > d:
        break
    last = digit
else:
    count += 1
print(count)
""",
    ),
    wrong=(
        too_slow("""\
n, d = map(int, input().split())
count = 0
for number in range(1, n + 1):
    s = str(number)
    count += all(abs(int(a) - int(b)) <= d for a, b in zip(s, s[1:]))
print(count)
"""),
        Wrong(
            why="off by one: n itself is not counted",
            program="""\
from functools import cache
n, d = input().split()
d = int(d)
@cache
def ways(k, last):
    return 1 if k == 0 else sum(ways(k - 1, x) for x in range(10) if abs(x - last) <= d)
count = sum(ways(k - 1, x) for k in range(1, len(n)) for x in range(1, 10))
last = None
for i, c in enumerate(map(int, n)):
    count += sum(ways(len(n) - i - 1, x) for x in range(i == 0, c) if last is None or abs(x - last) <= d)
    if last is not None and abs(c - last) > d:
        break
    last = c
print(count)
""",
        ),
        Wrong(
            why="edge case: zeros in front count as digits",
            program="""\
from functools import cache
n, d = input().split()
d = int(d)
@cache
def count(i, last, tight):
    if i == len(n):
        return 1
    top = int(n[i]) if tight else 9
    return sum(count(i + 1, x, tight and x == top) for x in range(top + 1) if last < 0 or abs(x - last) <= d)
print(count(0, -1, True) - 1)
""",
        ),
    ),
)
