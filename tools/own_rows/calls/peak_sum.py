"""The sum of the peaks of a list: neighbours, and the ends."""

from own_problems import TRAIN, CallProblem, Wrong, crashes


def private(random):
    yield [[7]]
    yield [[-7]]
    yield [[4, 4]]
    yield [[4, 5]]
    yield [[5, 4]]
    yield [[1, 3, 3, 1]]
    yield [[-5, -1, -5]]
    yield [[2, 1, 2, 1, 2]]
    for length, most in ((6, 4), (15, 9), (100, 1000)):
        yield [[random.randint(-most, most) for _ in range(length)]]


PROBLEM = CallProblem(
    number=109,
    title="Sum of Peaks",
    split=TRAIN,
    level=1,
    method=True,
    signature="peakSum(heights: List[int]) -> int",
    statement="""\
You are given a list of integers `heights` with at least one item. A peak is an item that is strictly greater than \
each of its neighbours; the first and the last item have one neighbour only, and an item that is alone is a peak. \
Return the sum of all peaks, or 0 if there is none.""",
    public=(([[1, 4, 2, 0, 3]], 7), ([[2, 2, 5, 1]], 5)),
    private=private,
    golden=(
        """\
class Solution:
    def peakSum(self, heights: List[int]) -> int:
        low = float("-inf")
        walled = [low, *heights, low]
        return sum(b for a, b, c in zip(walled, walled[1:], walled[2:]) if a < b > c)
""",
        """\
class Solution:
    def peakSum(self, heights: List[int]) -> int:
        total = 0
        for i, height in enumerate(heights):
            neighbours = heights[max(0, i - 1):i] + heights[i + 1:i + 2]
            if all(height > other for other in neighbours):
                total += height
        return total
""",
    ),
    wrong=(
        Wrong(
            why="edge case: a wall of height 0 around negative heights",
            program="""\
class Solution:
    def peakSum(self, heights: List[int]) -> int:
        h = [0] + heights + [0]
        return sum(h[i] for i in range(1, len(h) - 1) if h[i - 1] < h[i] > h[i + 1])
""",
        ),
        Wrong(
            why="edge case: plateaus count",
            program="""\
class Solution:
    def peakSum(self, heights: List[int]) -> int:
        h = [-10**9] + heights + [-10**9]
        return sum(h[i] for i in range(1, len(h) - 1) if h[i - 1] < h[i] >= h[i + 1])
""",
        ),
        Wrong(
            why="edge case: the ends are no peaks",
            program="""\
class Solution:
    def peakSum(self, heights: List[int]) -> int:
        return sum(b for a, b, c in zip(heights, heights[1:], heights[2:]) if a < b > c)
""",
        ),
        crashes(
            "a single item",
            """\
class Solution:
    def peakSum(self, h: List[int]) -> int:
        total = sum(b for a, b, c in zip(h, h[1:], h[2:]) if a < b > c)
        if h[0] > h[1]:
            total += h[0]
        if h[-1] > h[-2]:
            total += h[-1]
        return total
""",
        ),
    ),
)
