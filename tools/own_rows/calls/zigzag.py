"""Whether numbers go up and down in turn."""

from own_problems import VALIDATION, CallProblem, Wrong


def private(random):
    yield [[]]
    yield [[5]]
    yield [[5, 5]]
    yield [[5, 6]]
    yield [[1, 2, 2]]
    yield [[1, 1, 2]]
    yield [[3, 1, 2, 0]]
    yield [[1, 3, 2, 4, 5]]
    yield [[9, 1, 8, 2, 7, 3]]
    yield [[1, 2, 1, 2, 1, 1]]
    for length in (10, 50):
        numbers = [random.randint(0, 50) + 100 * (at % 2) for at in range(length)]
        yield [numbers]
        yield [numbers[: length // 2] + numbers[length // 2 - 1 :]]


PROBLEM = CallProblem(
    number=104,
    title="Zigzag",
    split=VALIDATION,
    level=1,
    signature="is_zigzag(numbers: List[int]) -> bool",
    statement="""\
Say whether the list of integers `numbers` goes up and down in turn: of any two steps \
from one number to the next that follow each other, one must go strictly up and the other strictly down; and no two \
neighbours may be equal. It may begin with a step up or down. Lists with fewer than two numbers are zigzags.""",
    public=(([[1, 5, 2]], True), ([[1, 2, 3]], False)),
    private=private,
    golden=(
        """\
def is_zigzag(numbers):
    steps = [b - a for a, b in zip(numbers, numbers[1:])]
    return all(steps) and all(one * next_one < 0 for one, next_one in zip(steps, steps[1:]))
""",
        """\
def is_zigzag(numbers):
    direction = 0
    for before, now in zip(numbers, numbers[1:]):
        step = (now > before) - (now < before)
        if step == 0 or step == direction:
            return False
        direction = step
    return True
""",
    ),
    wrong=(
        Wrong(
            why="edge case: two equal numbers",
            program="""\
def is_zigzag(numbers):
    return all((b - a) * (c - b) < 0 for a, b, c in zip(numbers, numbers[1:], numbers[2:]))
""",
        ),
        Wrong(
            why="must begin with a step up",
            program="""\
def is_zigzag(n):
    return all(n[i] < n[i + 1] if i % 2 == 0 else n[i] > n[i + 1] for i in range(len(n) - 1))
""",
        ),
        Wrong(
            why="off by one: the last step is not looked at",
            program="""\
def is_zigzag(numbers):
    steps = [b - a for a, b in zip(numbers, numbers[1:])]
    return all(steps[:-1]) and all(steps[i] * steps[i + 1] < 0 for i in range(len(steps) - 2))
""",
        ),
    ),
)
