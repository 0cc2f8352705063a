"""Customers at tills: who is free first, and time that must not be counted in seconds."""

from own_problems import TRAIN, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield lines([1, 1], 7)
    yield lines([3, 1], [5, 5, 5])
    yield lines([2, 5], [4, 9])
    yield lines([5, 2], [10, 1, 1, 1, 1])
    yield lines([4, 2], [1, 1, 1, 10])
    yield lines([6, 3], [2, 3, 4, 1, 1, 1])
    yield lines([5, 2], [10**9] * 5)
    for count, tills in ((10, 3), (30, 4), (100, 7), (200, 1)):
        yield lines([count, tills], [random.randint(1, 10**9) for _ in range(count)])


PROBLEM = StdinProblem(
    number=15,
    title="Tills",
    split=TRAIN,
    level=2,
    statement="""\
A shop has k tills, numbered from 1. At closing time n customers stand in one line. The customer at the head of the \
line goes to the till that becomes free first (of several, to the one with the smallest number) and needs t_i seconds \
there; then the next customer does the same, and so on. All tills are free at the beginning.

When does the last customer leave, and how many customers did till 1 serve?

Input
The first line has n and k (1 <= n <= 200, 1 <= k <= 200). The second line has n integers t_i (1 <= t_i <= 10^9), in \
the order of the line.

Output
Two integers, separated by a space: the number of seconds after which the last customer leaves, and the number of \
customers of till 1.""",
    public=((lines([4, 2], [3, 5, 4, 1]), "7 2\n"), (lines([3, 3], [2, 8, 5]), "8 1\n")),
    private=private,
    golden=(
        """\
import heapq
n, k = map(int, input().split())
tills = [(0, number) for number in range(1, k + 1)]
last = first_till = 0
for seconds in map(int, input().split()):
    free, number = heapq.heappop(tills)
    last = max(last, free + seconds)
    first_till += number == 1
    heapq.heappush(tills, (free + seconds, number))
print(last, first_till)
""",
    ),
    wrong=(
        Wrong(
            why="tills in turn, whether they are free or not",
            program="""\
n, k = map(int, input().split())
t = list(map(int, input().split()))
print(max(sum(t[i::k]) for i in range(k)), len(t[::k]))
""",
        ),
        Wrong(
            why="the time of the last in line, not of the last to leave",
            program="""\
n, k = map(int, input().split())
free, served = [0] * k, 0
for t in map(int, input().split()):
    till = free.index(min(free))
    free[till] += t
    served += till == 0
    last = free[till]
print(last, served)
""",
        ),
        Wrong(
            why="wrong greedy: the longest first",
            program="""\
n, k = map(int, input().split())
free, served = [0] * k, 0
for t in sorted(map(int, input().split()), reverse=True):
    till = free.index(min(free))
    free[till] += t
    served += till == 0
print(max(free), served)
""",
        ),
        too_slow("""\
n, k = map(int, input().split())
line = list(map(int, input().split()))
left, served, now = [0] * k, 0, 0
while line or any(left):
    for till in range(k):
        if left[till] == 0 and line:
            left[till] = line.pop(0)
            served += till == 0
    left = [max(0, seconds - 1) for seconds in left]
    now += 1
print(now, served)
"""),
    ),
)
