"""Water that runs downhill on a grid: a search over neighbours."""

from own_problems import TRAIN, StdinProblem, Wrong, lines


def snake(size):
    """A single way downhill through all cells, row by row and back."""
    rows = [[size * size - (row * size + column) for column in range(size)] for row in range(size)]
    for row in rows[1::2]:
        row.reverse()
    return rows


def private(random):
    yield lines([1, 1], [1, 1], 5)
    yield lines([1, 3], [1, 2], [1, 2, 1])
    yield lines([2, 2], [1, 1], [3, 3], [3, 3])
    yield lines([2, 2], [1, 1], [9, 9], [9, 1])
    yield lines([3, 3], [2, 2], [1, 2, 1], [2, 3, 2], [1, 2, 1])
    yield lines([3, 3], [2, 2], [1, 3, 1], [3, 2, 3], [1, 3, 1])
    yield lines([4, 4], [1, 1], *snake(4))
    for size, highest in ((5, 3), (8, 5), (12, 9), (20, 40)):
        grid = [[random.randint(0, highest) for _ in range(size)] for _ in range(size)]
        row, column = max(((r, c) for r in range(size) for c in range(size)), key=lambda at: grid[at[0]][at[1]])
        yield lines([size, size], [row + 1, column + 1], *grid)
    yield lines([35, 35], [1, 1], *snake(35))


PROBLEM = StdinProblem(
    number=11,
    title="Water Downhill",
    split=TRAIN,
    level=2,
    statement="""\
A field is a grid of R rows and C columns; every cell has a height. Water is poured onto one cell. From a wet cell it \
runs into each of the neighbouring cells above, below, to the left and to the right that is strictly lower, and from \
there on in the same way. How many cells become wet, the first one included?

Input
The first line has R and C (1 <= R, C <= 40). The second line has the row and the column of the first cell, counted \
from 1. Each of the next R lines has C integers from 0 to 2000: the heights.

Output
One integer: the number of wet cells.""",
    public=(
        (lines([2, 3], [1, 1], [5, 4, 6], [3, 2, 1]), "5\n"),
        (lines([3, 3], [2, 2], [1, 2, 3], [4, 5, 6], [7, 8, 9]), "4\n"),
    ),
    private=private,
    golden=(
        """\
import sys
data = list(map(int, sys.stdin.read().split()))
R, C, r, c = data[:4]
height = [data[4 + i * C : 4 + (i + 1) * C] for i in range(R)]
wet = {(r - 1, c - 1)}
waiting = list(wet)
while waiting:
    r, c = waiting.pop()
    for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
        if 0 <= y < R and 0 <= x < C and (y, x) not in wet and height[y][x] < height[r][c]:
            wet.add((y, x))
            waiting.append((y, x))
print(len(wet))
""",
        """\
R, C = map(int, input().split())
r, c = (int(x) - 1 for x in input().split())
H = [list(map(int, input().split())) for _ in range(R)]
wet = [[False] * C for _ in range(R)]
wet[r][c] = True
for _, y, x in sorted(((H[y][x], y, x) for y in range(R) for x in range(C)), reverse=True):
    for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        if wet[y][x] and 0 <= y + dy < R and 0 <= x + dx < C and H[y + dy][x + dx] < H[y][x]:
            wet[y + dy][x + dx] = True
print(sum(map(sum, wet)))
""",
    ),
    wrong=(
        Wrong(
            why="edge case: runs over cells of the same height",
            program="""\
R, C = map(int, input().split())
r, c = (int(x) - 1 for x in input().split())
H = [list(map(int, input().split())) for _ in range(R)]
wet, todo = {(r, c)}, [(r, c)]
for y, x in todo:
    for v, u in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
        if 0 <= v < R and 0 <= u < C and H[v][u] <= H[y][x] and (v, u) not in wet:
            wet.add((v, u))
            todo.append((v, u))
print(len(wet))
""",
        ),
        Wrong(
            why="runs over corners too",
            program="""\
R, C = map(int, input().split())
r, c = (int(x) - 1 for x in input().split())
H = [list(map(int, input().split())) for _ in range(R)]
wet, todo = {(r, c)}, [(r, c)]
for y, x in todo:
    for v in (y - 1, y, y + 1):
        for u in (x - 1, x, x + 1):
            if 0 <= v < R and 0 <= u < C and H[v][u] < H[y][x] and (v, u) not in wet:
                wet.add((v, u))
                todo.append((v, u))
print(len(wet))
""",
        ),
        Wrong(
            why="edge case: index -1 is the other side of the field",
            program="""\
R, C = map(int, input().split())
r, c = (int(x) - 1 for x in input().split())
H = [list(map(int, input().split())) for _ in range(R)]
wet = [[False] * C for _ in range(R)]
todo = [(r, c)]
while todo:
    y, x = todo.pop()
    if not wet[y][x]:
        wet[y][x] = True
        for v, u in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
            if v < R and u < C and H[v][u] < H[y][x]:
                todo.append((v, u))
print(sum(map(sum, wet)))
""",
        ),
    ),
)
