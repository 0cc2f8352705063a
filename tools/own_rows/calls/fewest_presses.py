"""The fewest presses of three buttons: a search in width."""

from own_problems import VALIDATION, CallProblem, Wrong, crashes


def private(random):
    yield [1, 1]
    yield [7, 7]
    yield [1, 2]
    yield [9, 3]
    yield [100, 1]
    yield [1, 1000]
    yield [21, 12]
    yield [10, 9]
    yield [3, 1]
    yield [999, 1]
    for _ in range(6):
        yield [random.randint(1, 999), random.randint(1, 1000)]


PROBLEM = CallProblem(
    number=116,
    title="Three Buttons",
    split=VALIDATION,
    level=3,
    method=True,
    signature="fewestPresses(start: int, target: int) -> int",
    statement="""\
A machine shows a number from 1 to 1000. It has three buttons: the first adds 3, the second doubles, and the third \
writes the digits in reverse order (zeros that come to stand in front vanish, so 120 becomes 21). A button that would \
lead to a number above 1000 does nothing. Return the smallest number of presses that lead from `start` to `target`, \
or -1 if it is impossible.""",
    public=(([5, 11], 2), ([4, 41], 3)),
    private=private,
    golden=(
        """\
class Solution:
    def fewestPresses(self, start: int, target: int) -> int:
        presses = {start: 0}
        waiting = deque([start])
        while waiting:
            number = waiting.popleft()
            if number == target:
                return presses[number]
            for further in (number + 3, 2 * number, int(str(number)[::-1])):
                if further <= 1000 and further not in presses:
                    presses[further] = presses[number] + 1
                    waiting.append(further)
        return -1
""",
        """\
class Solution:
    def fewestPresses(self, start: int, target: int) -> int:
        level, seen, presses = {start}, {start}, 0
        while target not in seen:
            level = {y for x in level for y in (x + 3, x + x, int("".join(reversed(str(x))))) if y <= 1000} - seen
            if not level:
                return -1
            seen |= level
            presses += 1
        return presses
""",
    ),
    wrong=(
        Wrong(
            why="forgets to reverse",
            program="""\
class Solution:
    def fewestPresses(self, start: int, target: int) -> int:
        level, presses, seen = {start}, 0, set()
        while level:
            if target in level:
                return presses
            seen |= level
            level = {y for x in level for y in (x + 3, 2 * x) if y <= 1000} - seen
            presses += 1
        return -1
""",
        ),
        Wrong(
            why="a search in depth: the first way, not the shortest",
            program="""\
class Solution:
    def fewestPresses(self, start: int, target: int) -> int:
        seen, stack = set(), [(start, 0)]
        while stack:
            x, n = stack.pop()
            if x == target:
                return n
            if x in seen:
                continue
            seen.add(x)
            stack += [(y, n + 1) for y in (int(str(x)[::-1]), x + 3, 2 * x) if y <= 1000]
        return -1
""",
        ),
        Wrong(
            why="numbers up to the target only",
            program="""\
class Solution:
    def fewestPresses(self, start: int, target: int) -> int:
        level, presses, seen = {start}, 0, set()
        while level:
            if target in level:
                return presses
            seen |= level
            level = {y for x in level for y in (x + 3, 2 * x, int(str(x)[::-1])) if y <= max(start, target)} - seen
            presses += 1
        return -1
""",
        ),
        crashes(
            "a target that cannot be reached",
            """\
class Solution:
    def fewestPresses(self, start: int, target: int) -> int:
        seen, waiting = {start: 0}, [start]
        while target not in seen:
            x = waiting.pop(0)
            for y in (x + 3, 2 * x, int(str(x)[::-1])):
                if y <= 1000 and y not in seen:
                    seen[y] = seen[x] + 1
                    waiting.append(y)
        return seen[target]
""",
        ),
    ),
)
