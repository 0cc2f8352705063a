"""As few visits as possible, each of which takes a while: a greedy choice by the end."""

from own_problems import TEST, StdinProblem, Wrong, lines


def private(random):
    yield lines([1, 5], [3, 3])
    yield lines([2, 2], [0, 3], [5, 9])
    yield lines([2, 2], [0, 3], [6, 9])
    yield lines([3, 0], [0, 10], [2, 3], [5, 6])
    yield lines([3, 1], [0, 100], [40, 41], [60, 61])
    yield lines([4, 3], [1, 20], [2, 4], [8, 9], [13, 15])
    yield lines([3, 0], [1, 1], [1, 1], [2, 2])
    for count, end in ((4, 15), (6, 25), (8, 30), (50, 500), (300, 10**9)):
        starts = [random.randrange(end) for _ in range(count)]
        rows = [[at, at + random.randint(0, end // 4)] for at in starts]
        yield lines([count, random.randint(0, end // 10)], *rows)


PROBLEM = StdinProblem(
    number=14,
    title="Watering Visits",
    split=TEST,
    level=2,
    statement="""\
A gardener waters n plants. Plant i is thirsty from minute a_i to minute b_i, both included. A visit that begins at \
minute t lasts until minute t + d, both included, and waters every plant that is thirsty at any minute of the visit. \
What is the smallest number of visits after which every plant has been watered? Visits may begin at any whole minute.

Input
The first line has n and d (1 <= n <= 300, 0 <= d <= 10^9). Each of the next n lines has a_i and b_i \
(0 <= a_i <= b_i <= 2 * 10^9).

Output
One integer: the smallest number of visits.""",
    public=((lines([3, 1], [0, 2], [3, 5], [8, 9]), "2\n"), (lines([2, 0], [1, 4], [4, 6]), "1\n")),
    private=private,
    golden=(
        """\
n, d = map(int, input().split())
plants = sorted((tuple(map(int, input().split())) for _ in range(n)), key=lambda plant: plant[1])
visits, until = 0, -1
for start, end in plants:
    if start > until:
        visits += 1
        until = end + d
print(visits)
""",
        """\
n, d = map(int, input().split())
plants = sorted(tuple(map(int, input().split())) for _ in range(n))
# As many visits are needed as there are plants of which no two can share one.
most = [1] * n
for i in range(n):
    for j in range(i):
        if plants[i][0] > plants[j][1] + d:
            most[i] = max(most[i], most[j] + 1)
print(max(most))
""",
    ),
    wrong=(
        Wrong(
            why="wrong greedy: in the order of beginnings",
            program="""\
n, d = map(int, input().split())
plants = sorted(tuple(map(int, input().split())) for _ in range(n))
visits, until = 0, -1
for a, b in plants:
    if a > until:
        visits += 1
        until = b + d
print(visits)
""",
        ),
        Wrong(
            why="ignores that a visit lasts",
            program="""\
n, d = map(int, input().split())
plants = sorted((tuple(map(int, input().split())) for _ in range(n)), key=lambda p: p[1])
visits, at = 0, -1
for a, b in plants:
    if a > at:
        visits += 1
        at = b
print(visits)
""",
        ),
        Wrong(
            why="off by one: a plant thirsty from the last minute of a visit",
            program="""\
n, d = map(int, input().split())
plants = sorted((tuple(map(int, input().split())) for _ in range(n)), key=lambda p: p[1])
visits, until = 0, -1
for a, b in plants:
    if a >= until:
        visits += 1
        until = b + d
print(visits)
""",
        ),
    ),
)
