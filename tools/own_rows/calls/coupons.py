"""Coupons for a shopping basket: an assignment that a careless greedy choice misses."""

from own_problems import TRAIN, CallProblem, Wrong, too_slow


def private(random):
    yield [[], [[1, 1]]]
    yield [[5], []]
    yield [[5], [[5, 3]]]
    yield [[5], [[6, 3]]]
    yield [[5], [[1, 2], [3, 4]]]
    yield [[10, 20], [[5, 4], [15, 3]]]
    yield [[10, 20], [[10, 8], [20, 3], [5, 4]]]
    yield [[8, 8, 8], [[8, 1], [7, 2], [9, 100]]]
    yield [[10, 20, 30], [[25, 5], [28, 6], [5, 5]]]
    for items, coupons in ((4, 6), (6, 6), (10, 30), (60, 60)):
        prices = [random.randint(1, 40) for _ in range(items)]
        least = [random.randint(1, 40) for _ in range(coupons)]
        yield [prices, [[price, random.randint(1, price)] for price in least]]


PROBLEM = CallProblem(
    number=108,
    title="Best Use of Coupons",
    split=TRAIN,
    level=3,
    signature="best_saving(prices: List[int], coupons: List[List[int]]) -> int",
    statement="""\
`prices` are the prices of the things in a basket. Each coupon is a \
list `[least, off]` with off <= least: it may be used for one thing whose price is at least `least`, and takes `off` \
from that price. A coupon can be used once, and no more than one coupon can be used for a thing. Return the largest \
sum that can be saved. There are at most 100 things and 100 coupons; all numbers are positive.""",
    public=(([[10, 30], [[25, 5], [8, 4]]], 9), ([[12], [[10, 2], [12, 6]]], 6)),
    private=private,
    golden=(
        """\
def best_saving(prices, coupons):
    free = sorted(prices)
    saved = 0
    for off, least in sorted(((off, least) for least, off in coupons), reverse=True):
        fitting = [price for price in free if price >= least]
        if fitting:
            free.remove(fitting[0])
            saved += off
    return saved
""",
        """\
import heapq
def best_saving(prices, coupons):
    # dearest things last: going up in price, each thing may take any coupon seen so far that is still unused
    waiting, saved = [], 0
    coupons = sorted(coupons)
    i = 0
    for price in sorted(prices):
        while i < len(coupons) and coupons[i][0] <= price:
            heapq.heappush(waiting, -coupons[i][1])
            i += 1
        if waiting:
            saved -= heapq.heappop(waiting)
    return saved
""",
    ),
    wrong=(
        Wrong(
            why="wrong greedy: the best coupon takes the dearest thing",
            program="""\
def best_saving(prices, coupons):
    free = sorted(prices, reverse=True)
    saved = 0
    for least, off in sorted(coupons, key=lambda c: -c[1]):
        if free and free[0] >= least:
            free.pop(0)
            saved += off
    return saved
""",
        ),
        Wrong(
            why="uses a coupon as often as it fits",
            program="""\
def best_saving(prices, coupons):
    return sum(max((off for least, off in coupons if least <= price), default=0) for price in prices)
""",
        ),
        Wrong(
            why="wrong greedy: the dearest thing takes the best coupon",
            program="""\
def best_saving(prices, coupons):
    left, saved = list(coupons), 0
    for price in sorted(prices, reverse=True):
        fit = [c for c in left if c[0] <= price]
        if fit:
            best = max(fit, key=lambda c: c[1])
            left.remove(best)
            saved += best[1]
    return saved
""",
        ),
        too_slow("""\
def best_saving(prices, coupons):
    if not prices:
        return 0
    best = best_saving(prices[1:], coupons)
    for i, (least, off) in enumerate(coupons):
        if least <= prices[0]:
            best = max(best, off + best_saving(prices[1:], coupons[:i] + coupons[i + 1:]))
    return best
"""),
    ),
)
