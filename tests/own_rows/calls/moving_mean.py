"""Means over a window that grows and then moves: decimal numbers in a list."""

from own_problems import TRAIN, CallProblem, Wrong, too_slow


def private(random):
    yield [[], 3]
    yield [[5], 1]
    yield [[1.5, 2.5], 1]
    yield [[1, 2], 5]
    yield [[3, -3, 6, 0.5], 4]
    for length, window in ((10, 3), (40, 7)):
        yield [[random.randint(-1000, 1000) / 4 for _ in range(length)], window]
    yield [[random.randint(-9, 9) for _ in range(12000)], 10000]


PROBLEM = CallProblem(
    number=105,
    title="Moving Mean",
    split=TRAIN,
    level=2,
    tolerance=1e-6,
    signature="moving_mean(values: List[float], window: int) -> List[float]",
    statement="""\
Write a function `moving_mean(values, window)`. Return a list as long as `values`, whose item at index i is the mean \
of the last `window` values up to and including index i, or of all values so far where there are fewer. `values` has \
at most 20000 numbers, and `window` is at least 1.

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
    ),
    wrong=(
        Wrong(
            why="divides by the window at the beginning too",
            program="""\
def moving_mean(values, window):
    return [sum(values[max(0, i + 1 - window):i + 1]) / window for i in range(len(values))][:1000]
""",
        ),
        Wrong(
            why="whole numbers",
            program="""\
def moving_mean(values, window):
    means = []
    for i in range(min(len(values), 1000)):
        part = values[max(0, i - window + 1):i + 1]
        means.append(sum(part) // len(part))
    return means
""",
        ),
        too_slow("""\
def moving_mean(values, window):
    means = []
    for i in range(len(values)):
        total = count = 0
        for j in range(max(0, i - window + 1), i + 1):
            total += values[j]
            count += 1
        means.append(total / count)
    return means
"""),
    ),
)
