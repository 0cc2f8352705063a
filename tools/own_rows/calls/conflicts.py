"""Which meetings overlap: pairs of names, in order."""

from own_problems import TEST, CallProblem, Wrong


def private(random):
    yield [[]]
    yield [[["a", 0, 5]]]
    yield [[["a", 0, 5], ["b", 5, 9]]]
    yield [[["b", 0, 9], ["a", 2, 3]]]
    yield [[["z", 1, 4], ["y", 1, 4], ["x", 1, 4]]]
    yield [[["c", 0, 10], ["b", 1, 2], ["a", 3, 4]]]
    yield [[["a", 3, 3], ["b", 0, 9]]]
    yield [[["b", 4, 8], ["a", 6, 6], ["c", 8, 8]]]
    for count in (4, 8, 15):
        starts = [random.randint(0, 30) for _ in range(count)]
        names = random.sample([f"m{number:02}" for number in range(30)], count)
        yield [[[name, at, at + random.randint(0, 8)] for name, at in zip(names, starts, strict=True)]]


PROBLEM = CallProblem(
    number=107,
    title="Meetings That Overlap",
    split=TEST,
    level=2,
    signature="conflicts(meetings: List[List[Any]]) -> List[List[str]]",
    statement="""\
Each of the `meetings` is a list `[name, start, end]` with start <= end; it takes place \
from the moment `start` up to, but not including, the moment `end`; one with start = end does not take place at all. \
No two meetings have the same name. Return all pairs of meetings that overlap, that is, have a moment in common. A \
pair is a list of two names in alphabetical order; the pairs too are in alphabetical order.""",
    public=(
        ([[["tea", 3, 6], ["chess", 5, 8]]], [["chess", "tea"]]),
        ([[["run", 1, 4], ["art", 6, 7], ["go", 2, 9]]], [["art", "go"], ["go", "run"]]),
    ),
    private=private,
    golden=(
        """\
def conflicts(meetings):
    held = sorted(meeting for meeting in meetings if meeting[1] < meeting[2])
    return [
        [held[i][0], held[j][0]]
        for i in range(len(held))
        for j in range(i + 1, len(held))
        if held[i][1] < held[j][2] and held[j][1] < held[i][2]
    ]
""",
        """\
def conflicts(meetings):
    pairs = set()
    for name, start, end in meetings:
        for other, begin, finish in meetings:
            if name < other and max(start, begin) < min(end, finish):
                pairs.add((name, other))
    return sorted(map(list, pairs))
""",
    ),
    wrong=(
        Wrong(
            why="off by one: meetings that only touch",
            program="""\
def conflicts(meetings):
    m = sorted(x for x in meetings if x[1] < x[2])
    return [[a[0], b[0]] for i, a in enumerate(m) for b in m[i + 1:] if a[1] <= b[2] and b[1] <= a[2]]
""",
        ),
        Wrong(
            why="edge case: meetings that do not take place",
            program="""\
def conflicts(meetings):
    m = sorted(meetings)
    return [[a[0], b[0]] for i, a in enumerate(m) for b in m[i + 1:] if a[1] < b[2] and b[1] < a[2]]
""",
        ),
        Wrong(
            why="compares neighbours in time only",
            program="""\
def conflicts(meetings):
    m = sorted((s, e, n) for n, s, e in meetings if s < e)
    return sorted(sorted([a[2], b[2]]) for a, b in zip(m, m[1:]) if b[0] < a[1])
""",
        ),
        Wrong(
            why="wrong order of the pairs",
            program="""\
def conflicts(meetings):
    m = sorted((s, e, n) for n, s, e in meetings if s < e)
    return [sorted([a[2], b[2]]) for i, a in enumerate(m) for b in m[i + 1:] if b[0] < a[1]]
""",
        ),
    ),
)
