"""A jury's mean without its extremes: decimal numbers."""

from own_problems import VALIDATION, CallProblem, Wrong, crashes


def private(random):
    yield [[]]
    yield [[7.5]]
    yield [[1.0, 9.0]]
    yield [[1.0, 1.0, 9.0, 9.0]]
    yield [[5.5, 5.5, 5.5]]
    yield [[10.0, 10.0, 10.0, 1.0]]
    yield [[0.25, 0.5, 0.75, 1.0]]
    yield [[9, 8, 1]]
    for count in (5, 9, 30):
        yield [[random.randint(0, 40) / 4 for _ in range(count)]]


PROBLEM = CallProblem(
    number=114,
    title="Mean of a Jury",
    split=VALIDATION,
    level=1,
    tolerance=1e-6,
    method=True,
    signature="juryMean(marks: List[float]) -> Optional[float]",
    statement="""\
Each member of a jury gives a mark. One of the highest marks and one of the lowest marks are struck out, and the \
result is the mean of the others. Return the result, or None if no mark remains (there may be fewer than three marks, \
or none at all). Marks are at most 10 and at least 0.

An answer is accepted if its absolute or relative error does not exceed 10^{-6}.""",
    public=(([[6.0, 8.5, 7.5, 2.0]], 6.75), ([[9.0, 4.0, 5.0]], 5.0)),
    private=private,
    golden=(
        """\
class Solution:
    def juryMean(self, marks: List[float]) -> Optional[float]:
        kept = sorted(marks)[1:-1]
        return sum(kept) / len(kept) if kept else None
""",
        """\
class Solution:
    def juryMean(self, marks: List[float]) -> Optional[float]:
        if len(marks) < 3:
            return None
        return (sum(marks) - max(marks) - min(marks)) / (len(marks) - 2)
""",
    ),
    wrong=(
        Wrong(
            why="edge case: strikes out all of the highest and lowest marks",
            program="""\
class Solution:
    def juryMean(self, marks: List[float]) -> Optional[float]:
        kept = [m for m in marks if m not in (max(marks), min(marks))]
        return sum(kept) / len(kept) if kept else None
""",
        ),
        crashes(
            "fewer than three marks",
            """\
class Solution:
    def juryMean(self, marks: List[float]) -> Optional[float]:
        return (sum(marks) - max(marks) - min(marks)) / (len(marks) - 2)
""",
        ),
        Wrong(
            why="edge case: 0 instead of None",
            program="""\
class Solution:
    def juryMean(self, marks: List[float]) -> Optional[float]:
        if len(marks) < 3:
            return 0.0
        return (sum(marks) - max(marks) - min(marks)) / (len(marks) - 2)
""",
        ),
        Wrong(
            why="rounded to one place",
            program="""\
class Solution:
    def juryMean(self, marks: List[float]) -> Optional[float]:
        kept = sorted(marks)[1:-1]
        return round(sum(kept) / len(kept) * 4) / 4 if kept else None
""",
        ),
    ),
)
