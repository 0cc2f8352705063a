"""Seconds in which an odd number of lights flash: inclusion and exclusion."""

from own_problems import TRAIN, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield lines([1, 1], 1)
    yield lines([1, 1], 2)
    yield lines([12, 2], [4, 4])
    yield lines([24, 2], [4, 6])
    yield lines([100, 3], [2, 2, 2])
    yield lines([1000, 3], [6, 10, 15])
    yield lines([10**15, 1], 1)
    yield lines([10**15, 2], [3, 9])
    yield lines([10**15, 10], [2, 3, 5, 7, 11, 13, 17, 19, 23, 29])
    for end in (50, 500, 10**15):
        count = random.randint(3, 8)
        yield lines([end, count], [random.randint(1, 30) for _ in range(count)])
    yield lines([10**15, 6], [random.randint(10**5, 10**9) for _ in range(6)])


PROBLEM = StdinProblem(
    number=21,
    title="Odd Lighthouses",
    split=TRAIN,
    level=3,
    statement="""\
On a coast there are k lighthouses. Lighthouse i flashes in every second whose number is a multiple of p_i. In how \
many of the seconds 1, 2, ..., n does an odd number of lighthouses flash? Two lighthouses may have the same p_i; they \
are still two.

Input
The first line has n and k (1 <= n <= 10^15, 1 <= k <= 10). The second line has k integers p_i (1 <= p_i <= 10^9).

Output
One integer: the number of those seconds.""",
    public=((lines([10, 2], [2, 3]), "6\n"), (lines([20, 1], 6), "3\n")),
    private=private,
    golden=(
        """\
from math import lcm
n, k = map(int, input().split())
periods = list(map(int, input().split()))
total = 0
for chosen in range(1, 1 << k):
    together = 1
    for i in range(k):
        if chosen >> i & 1:
            together = lcm(together, periods[i])
    total += (-2) ** (chosen.bit_count() - 1) * (n // together)
print(total)
""",
    ),
    wrong=(
        too_slow("""\
n, k = map(int, input().split())
p = list(map(int, input().split()))
print(sum(sum(second % x == 0 for x in p) % 2 for second in range(1, n + 1)))
"""),
        Wrong(
            why="the product instead of the least common multiple",
            program="""\
n, k = map(int, input().split())
p = list(map(int, input().split()))
total = 0
for mask in range(1, 2**k):
    m, bits = 1, 0
    for i in range(k):
        if mask >> i & 1:
            m *= p[i]
            bits += 1
    total += (-2) ** (bits - 1) * (n // m)
print(total)
""",
        ),
        Wrong(
            why="counts the seconds with at least one flash",
            program="""\
from math import lcm
n, k = map(int, input().split())
p = list(map(int, input().split()))
total = 0
for mask in range(1, 2**k):
    m = lcm(*(p[i] for i in range(k) if mask >> i & 1))
    total += n // m if mask.bit_count() % 2 else -(n // m)
print(total)
""",
        ),
        Wrong(
            why="edge case: equal lighthouses count once",
            program="""\
from math import lcm
n, k = map(int, input().split())
p = list(set(map(int, input().split())))
total = 0
for mask in range(1, 2 ** len(p)):
    m = lcm(*(x for i, x in enumerate(p) if mask >> i & 1))
    total += (-2) ** (mask.bit_count() - 1) * (n // m)
print(total)
""",
        ),
    ),
)
