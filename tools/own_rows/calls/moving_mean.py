"""Means over a window that grows and then moves: decimal numbers in a list."""

from own_problems import TRAIN, CallProblem, Wrong


def private(random):
    yield [[], 3]
    yield [[5], 1]
    yield [[1.5, 2.5], 1]
    yield [[1, 2], 5]
    yield [[0, 0, 1], 2]
    yield [[-1, -2, -4], 3]
    yield [[3, -3, 6, 0.5], 4]
    for length, window in ((10, 3), (40, 7)):
        yield [[random.randint(-1000, 1000) / 4 for _ in range(length)], window]
    yield [[random.randint(-9, 9) for _ in range(300)], 299]


PROBLEM = CallProblem(
    number=105,
    title="Moving Mean",
    split=TRAIN,
    level=2,
    tolerance=1e-6,
    signature="moving_mean(values: List[float], window: int) -> List[float]",
    statement="""\
Return a list as long as `values`, whose item at index i is the mean \
of the last `window` values up to and including index i, or of all values so far where there are fewer. `values` has \
at most 1000 numbers, and `window` is at least 1.

An answer is accepted if the absolute or relative error of each number does not exceed 10^{-6}.""",
    public=(([[2, 4, 6], 2], [2.0, 3.0, 5.0]), ([[1, 1, 4, 4], 3], [1.0, 1.0, 2.0, 3.0])),
    private=private,
    golden=(
        """\
def moving_mean(values, window):
    means, total = [], 0
    for i, value in enumerate(values):
        total += value
        if i >= window:
            total -= values[i - window]
        means.append(total / min(i + 1, window))
    return means
""",
        """\
def moving_mean(values, window):
    parts = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return [sum(part) / len(part) for part in parts]
""",
    ),
    wrong=(
        Wrong(
            why="divides by the window at the beginning too",
            program="""\
def moving_mean(values, window):
    return [sum(values[max(0, i + 1 - window):i + 1]) / window for i in range(len(values))]
""",
        ),
        Wrong(
            why="whole numbers",
            program="""\
def moving_mean(values, window):
    means = []
    for i in range(len(values)):
        part = values[max(0, i - window + 1):i + 1]
        means.append(sum(part) // len(part))
    return means
""",
        ),
        Wrong(
            why="off by one: the window is one too long",
            program="""\
def moving_mean(values, window):
    means, last = [], []
    for value in values:
        last.append(value)
        means.append(sum(last) / len(last))
        if len(last) > window:
            last.pop(0)
    return means
""",
        ),
        Wrong(
            why="edge case: no mean before the window is full",
            program="""\
def moving_mean(values, window):
    head = [sum(values[: i + 1]) / (i + 1) for i in range(window - 1)] if window <= len(values) else []
    return head + [sum(values[i : i + window]) / window for i in range(len(values) - window + 1)]
""",
        ),
    ),
)
