"""Parcels on a shelf: a loop that has to stop."""

from own_problems import TRAIN, StdinProblem, Wrong, crashes, lines


def private(random):
    yield lines([5, 0])
    yield lines([3, 1], 3)
    yield lines([3, 1], 4)
    yield lines([10, 4], [4, 7, 2, 1])
    yield lines([6, 3], [1, 2, 3])
    yield lines([6, 3], [1, 2, 4])
    yield lines([1, 3], [2, 1, 1])
    for count in (5, 8, 20, 40):
        yield lines([10 * count, count], [random.randint(1, 25) for _ in range(count)])


PROBLEM = StdinProblem(
    number=1,
    title="Parcel Shelf",
    split=TRAIN,
    level=1,
    statement="""\
A courier fills a shelf of length L with n parcels, which come in a fixed order. Each parcel is put directly to the \
right of the one before it. As soon as a parcel does not fit into the length that is left, the courier stops for the \
day: neither that parcel nor any later one is put on the shelf. A parcel that fills the shelf exactly does fit.

How many parcels are on the shelf at the end?

Input
The first line has two integers L and n (1 <= L <= 1000, 0 <= n <= 100). If n is not 0, the second line has the n \
widths of the parcels in the order in which they come, integers from 1 to 100.

Output
One integer: the number of parcels on the shelf.""",
    public=((lines([10, 4], [3, 4, 5, 1]), "2\n"), (lines([7, 3], [2, 2, 2]), "3\n")),
    private=private,
    golden=(
        """\
import sys
length, n, *widths = map(int, sys.stdin.read().split())
placed = 0
for width in widths:
    if width > length:
        break
    length -= width
    placed += 1
print(placed)
""",
        """\
import sys
from itertools import accumulate, takewhile
data = [int(x) for x in sys.stdin.read().split()]
print(len(list(takewhile(lambda end: end <= data[0], accumulate(data[2:])))))
""",
    ),
    wrong=(
        Wrong(
            why="skips what does not fit and goes on",
            program="""\
import sys
length, n, *widths = map(int, sys.stdin.read().split())
placed = 0
for width in widths:
    if width <= length:
        length -= width
        placed += 1
print(placed)
""",
        ),
        Wrong(
            why="off by one: an exact fit is refused",
            program="""\
import sys
length, n, *widths = map(int, sys.stdin.read().split())
placed = 0
for width in widths:
    if width >= length:
        break
    length -= width
    placed += 1
print(placed)
""",
        ),
        crashes(
            "no second line where there is no parcel",
            """\
length, n = map(int, input().split())
widths = list(map(int, input().split()))
placed = 0
for width in widths:
    if width > length:
        break
    length -= width
    placed += 1
print(placed)
""",
        ),
    ),
)
