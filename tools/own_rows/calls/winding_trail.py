"""The best way down a grid without the same step twice: a table with the last step in it."""

from own_problems import TEST, CallProblem, Wrong, too_slow


def private(random):
    yield [[[5]]]
    yield [[[-3, -2, -9]]]
    yield [[[1], [2]]]
    yield [[[1], [2], [4]]]
    yield [[[1, 1], [1, 9], [1, 9]]]
    yield [[[0, 5, 0], [0, 5, 0], [0, 5, 0]]]
    yield [[[-1, -1, -1], [-1, -5, -1], [-1, -1, -1]]]
    yield [[[9, 0, 0], [0, 9, 0], [0, 0, 9]]]
    for rows, columns in ((4, 3), (6, 5), (10, 4), (20, 20)):
        yield [[[random.randint(-20, 30) for _ in range(columns)] for _ in range(rows)]]


PROBLEM = CallProblem(
    number=112,
    title="Winding Trail",
    split=TEST,
    level=3,
    method=True,
    signature="bestTrail(grid: List[List[int]]) -> Optional[int]",
    statement="""\
A trail leads through a grid of integers from any cell of the first row to any cell of the last row. Each step goes \
one row down: straight down, one column to the left, or one column to the right (never out of the grid). The same \
kind of step must not be taken twice in a row. Return the largest possible sum of the cells of a trail, or None if \
there is no such trail. The grid has 1 to 50 rows of 1 to 50 cells.""",
    public=(([[[1, 2], [3, 4]]], 6), ([[[1, 5, 1], [1, 8, 1], [1, 9, 2]]], 18)),
    private=private,
    golden=(
        """\
class Solution:
    def bestTrail(self, grid: List[List[int]]) -> Optional[int]:
        best = {(column, None): value for column, value in enumerate(grid[0])}
        for row in grid[1:]:
            further = {}
            for (column, last), total in best.items():
                for step in (-1, 0, 1):
                    at = column + step
                    if step != last and 0 <= at < len(row):
                        key = (at, step)
                        further[key] = max(further.get(key, total + row[at]), total + row[at])
            best = further
        return max(best.values(), default=None)
""",
    ),
    wrong=(
        Wrong(
            why="ignores the last step",
            program="""\
class Solution:
    def bestTrail(self, grid: List[List[int]]) -> Optional[int]:
        best = grid[0]
        for row in grid[1:]:
            best = [x + max(best[max(0, i - 1):i + 2]) for i, x in enumerate(row)]
        return max(best)
""",
        ),
        Wrong(
            why="wrong greedy: the best next cell",
            program="""\
class Solution:
    def bestTrail(self, grid: List[List[int]]) -> Optional[int]:
        results = []
        for start in range(len(grid[0])):
            at, last, total = start, None, grid[0][start]
            for row in grid[1:]:
                steps = [s for s in (-1, 0, 1) if s != last and 0 <= at + s < len(row)]
                if not steps:
                    break
                last = max(steps, key=lambda s: row[at + s])
                at += last
                total += row[at]
            else:
                results.append(total)
        return max(results, default=None)
""",
        ),
        Wrong(
            why="edge case: 0 instead of None and for negative sums",
            program="""\
class Solution:
    def bestTrail(self, grid: List[List[int]]) -> Optional[int]:
        best = {(c, 9): v for c, v in enumerate(grid[0])}
        for row in grid[1:]:
            nxt = {}
            for (c, last), t in best.items():
                for s in (-1, 0, 1):
                    if s != last and 0 <= c + s < len(row):
                        nxt[c + s, s] = max(nxt.get((c + s, s), -10**9), t + row[c + s])
            best = nxt
        return max([0, *best.values()])
""",
        ),
        too_slow("""\
class Solution:
    def bestTrail(self, grid: List[List[int]]) -> Optional[int]:
        def go(row, column, last):
            if row == len(grid) - 1:
                return grid[row][column]
            totals = [
                go(row + 1, column + step, step)
                for step in (-1, 0, 1)
                if step != last and 0 <= column + step < len(grid[0])
            ]
            totals = [total for total in totals if total is not None]
            return max(totals) + grid[row][column] if totals else None
        totals = [go(0, column, None) for column in range(len(grid[0]))]
        return max((total for total in totals if total is not None), default=None)
"""),
    ),
)
