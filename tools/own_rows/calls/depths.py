"""Numbers with the depth at which they stand in nested lists."""

from own_problems import TEST, CallProblem, Wrong


def nested(random, depth):
    return [
        nested(random, depth - 1) if depth and random.random() < 0.4 else random.randint(-9, 9)
        for _ in range(random.randint(0, 4))
    ]


def private(random):
    yield [[]]
    yield [[[], [[]]]]
    yield [[0]]
    yield [[[[[7]]]]]
    yield [[1, [2], 3, [[4], 5]]]
    yield [[[1, [2, [3, [4, [5]]]]]]]
    for depth in (2, 3, 4, 6):
        yield [nested(random, depth)]


PROBLEM = CallProblem(
    number=102,
    title="Depths of Numbers",
    split=TEST,
    level=2,
    signature="with_depths(items: List[Any]) -> List[List[int]]",
    statement="""\
The argument `items` is a list of integers and of lists of the same kind, nested at \
most 20 deep. Return a list of pairs `[number, depth]`, one for each integer, in the order in which they are read from \
left to right. A number that stands directly in `items` has depth 1, one that stands in a list within `items` has \
depth 2, and so on.""",
    public=(([[4, [5]]], [[4, 1], [5, 2]]), ([[[1, 2], 3]], [[1, 2], [2, 2], [3, 1]])),
    private=private,
    golden=(
        """\
def with_depths(items, depth=1):
    pairs = []
    for item in items:
        if isinstance(item, list):
            pairs += with_depths(item, depth + 1)
        else:
            pairs.append([item, depth])
    return pairs
""",
        """\
def with_depths(items):
    pairs, waiting = [], [(items, 0)]
    while waiting:
        item, depth = waiting.pop()
        if type(item) is int:
            pairs.append([item, depth])
        else:
            waiting += [(part, depth + 1) for part in reversed(item)]
    return pairs
""",
    ),
    wrong=(
        Wrong(
            why="edge case: two levels only",
            program="""\
def with_depths(items):
    out = []
    for x in items:
        if isinstance(x, list):
            out += [[y, 2] for y in x if not isinstance(y, list)]
        else:
            out.append([x, 1])
    return out
""",
        ),
        Wrong(
            why="wrong order: level by level",
            program="""\
def with_depths(items):
    out, level, depth = [], items, 1
    while level:
        out += [[x, depth] for x in level if not isinstance(x, list)]
        level = [y for x in level if isinstance(x, list) for y in x]
        depth += 1
    return out
""",
        ),
        Wrong(
            why="edge case: 0 is left out",
            program="""\
def with_depths(items, depth=1):
    if isinstance(items, int):
        return [[items, depth - 1]] if items else []
    return [pair for item in items for pair in with_depths(item, depth + 1)]
""",
        ),
    ),
)
