"""The area of a polygon: signs, the last edge, halves."""

from own_problems import VALIDATION, StdinProblem, Wrong, lines


def private(random):
    yield lines(3, [0, 0], [1, 0], [0, 1])
    yield lines(3, [0, 0], [0, 1], [1, 0])
    yield lines(4, [5, 5], [-5, 5], [-5, -5], [5, -5])
    yield lines(5, [0, 0], [4, 0], [4, 4], [2, 1], [0, 4])
    yield lines(4, [10000, 10000], [-10000, 10000], [-10000, -10000], [10000, -10000])
    yield lines(3, [1, 1], [2, 3], [4, 4])
    yield lines(6, [0, 0], [0, 3], [1, 3], [1, 1], [3, 1], [3, 0])
    for count in (5, 12, 40):
        xs = sorted(random.sample(range(-100, 100), count))
        lower = [[x, -random.randint(1, 50)] for x in xs]
        upper = [[x, random.randint(1, 50)] for x in reversed(xs)]
        around = lower + upper
        yield lines(2 * count, *(around if count % 2 else around[::-1]))


PROBLEM = StdinProblem(
    number=13,
    title="Area of a Pond",
    split=VALIDATION,
    level=2,
    tolerance=1e-6,
    statement="""\
The shore of a pond is a polygon whose sides do not cross. A surveyor walks along it, clockwise or counterclockwise, \
and notes its corners in order. Find the area of the pond.

Input
The first line has the number n of corners (3 <= n <= 100). Each of the next n lines has two integers x and y from \
-10000 to 10000: the coordinates of a corner. The last corner is joined to the first one.

Output
The area. The answer is accepted if its absolute or relative error does not exceed 10^{-6}.""",
    public=(
        (lines(4, [0, 0], [4, 0], [4, 3], [0, 3]), "12.0\n"),
        (lines(3, [0, 0], [5, 0], [0, 4]), "10.0\n"),
    ),
    private=private,
    golden=(
        """\
corners = [tuple(map(int, input().split())) for _ in range(int(input()))]
double = sum(x * v - u * y for (x, y), (u, v) in zip(corners, corners[1:] + corners[:1]))
print(abs(double) / 2)
""",
        """\
n = int(input())
corners = [tuple(map(int, input().split())) for _ in range(n)]
area, (ox, oy) = 0, corners[0]
for (ax, ay), (bx, by) in zip(corners[1:], corners[2:]):
    area += ((ax - ox) * (by - oy) - (bx - ox) * (ay - oy)) / 2
print(f"{abs(area):.6f}")
""",
    ),
    wrong=(
        Wrong(
            why="edge case: negative where the corners run clockwise",
            program="""\
n = int(input())
p = [tuple(map(int, input().split())) for _ in range(n)]
print(sum(p[i][0] * p[(i + 1) % n][1] - p[(i + 1) % n][0] * p[i][1] for i in range(n)) / 2)
""",
        ),
        Wrong(
            why="edge case: half units are cut off",
            program="""\
n = int(input())
p = [tuple(map(int, input().split())) for _ in range(n)]
print(abs(sum(p[i][0] * p[(i + 1) % n][1] - p[(i + 1) % n][0] * p[i][1] for i in range(n))) // 2)
""",
        ),
        Wrong(
            why="off by one: the side from the last corner to the first is missing",
            program="""\
n = int(input())
p = [tuple(map(int, input().split())) for _ in range(n)]
print(abs(sum(p[i][0] * p[i + 1][1] - p[i + 1][0] * p[i][1] for i in range(n - 1))) / 2)
""",
        ),
        Wrong(
            why="the area of the box around it",
            program="""\
n = int(input())
p = [tuple(map(int, input().split())) for _ in range(n)]
xs, ys = zip(*p)
print((max(xs) - min(xs)) * (max(ys) - min(ys)) / (1 if n == 4 else 2))
""",
        ),
    ),
)
