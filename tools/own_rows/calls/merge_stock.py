"""Two stocks made one: dictionaries, and entries that vanish."""

from own_problems import TRAIN, CallProblem, Wrong, crashes


def private(random):
    yield [{}, {}]
    yield [{"nail": 3}, {}]
    yield [{}, {"nail": 3}]
    yield [{"nail": 3}, {"nail": -3}]
    yield [{"nail": 0}, {"bolt": 1}]
    yield [{"a": 1, "b": 2}, {"b": -5, "c": 4}]
    yield [{"x": -1}, {"y": -2}]
    for size in (3, 6, 12):
        names = [f"part{number}" for number in range(size)]
        yield [{name: random.randint(-3, 3) for name in random.sample(names, size - 1)} for _ in range(2)]


PROBLEM = CallProblem(
    number=101,
    title="Merged Stock",
    split=TRAIN,
    level=1,
    signature="merge_stock(first: Dict[str, int], second: Dict[str, int]) -> Dict[str, int]",
    statement="""\
Both arguments are dictionaries from the name of a part to a number of \
pieces (which may be negative: a debt). Return a new dictionary with every name of either of them and the sum of its \
pieces, where a name that is missing counts as 0 pieces. Leave out the names whose sum is 0.""",
    public=(
        ([{"bolt": 2, "nut": 5}, {"bolt": 1}], {"bolt": 3, "nut": 5}),
        ([{"cog": 1}, {"gear": 4}], {"cog": 1, "gear": 4}),
    ),
    private=private,
    golden=(
        """\
def merge_stock(first, second):
    total = dict(first)
    for name, pieces in second.items():
        total[name] = total.get(name, 0) + pieces
    return {name: pieces for name, pieces in total.items() if pieces != 0}
""",
        """\
def merge_stock(first, second):
    names = set(first) | set(second)
    sums = {name: sum(stock[name] for stock in (first, second) if name in stock) for name in names}
    return dict(item for item in sums.items() if item[1])
""",
    ),
    wrong=(
        Wrong(
            why="edge case: sums of 0 stay",
            program="""\
def merge_stock(first, second):
    return {name: first.get(name, 0) + second.get(name, 0) for name in first | second}
""",
        ),
        Wrong(
            why="edge case: debts are dropped, as Counter's + does",
            program="""\
from collections import Counter
def merge_stock(first, second):
    return dict(Counter(first) + Counter(second))
""",
        ),
        Wrong(
            why="the second stock replaces the first",
            program="""\
def merge_stock(first, second):
    return {k: v for k, v in {**first, **second}.items() if v}
""",
        ),
        crashes(
            "a name that only the second stock has",
            """\
def merge_stock(first, second):
    total = dict(first)
    for name in second:
        total[name] += second[name]
    return {k: v for k, v in total.items() if v}
""",
        ),
    ),
)
