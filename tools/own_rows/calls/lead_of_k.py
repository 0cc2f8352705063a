"""The longest part of a string in which one letter leads by exactly k."""

from own_problems import TEST, CallProblem, Wrong, too_slow


def private(random):
    yield ["", 1]
    yield ["a", 1]
    yield ["b", 1]
    yield ["aaa", 2]
    yield ["bbb", 0]
    yield ["abab", 0]
    yield ["xaxbx", 0]
    yield ["bbaab", 1]
    yield ["aabbbbaa", 2]
    yield ["baaab", -1]
    yield ["ccc", 3]
    for length in (12, 60, 300):
        yield ["".join(random.choice("abc") for _ in range(length)), random.randint(-2, 4)]
    yield ["".join(random.choice("aabbc") for _ in range(14000)), 9]


PROBLEM = CallProblem(
    number=115,
    title="A Lead of k",
    split=TEST,
    level=3,
    method=True,
    signature="longestLead(text: str, k: int) -> int",
    statement="""\
Given a string of small letters and an integer `k` (which may be 0 or negative), find the longest substring in which \
the number of letters "a" minus the number of letters "b" is exactly `k`. Return its length. The empty substring \
counts too (for it the difference is 0); if no substring will do, return -1. The string has at most 20000 letters.""",
    public=((["abacab", 2], 5), (["bab", 2], -1)),
    private=private,
    golden=(
        """\
class Solution:
    def longestLead(self, text: str, k: int) -> int:
        first = {0: 0}
        lead, best = 0, 0 if k == 0 else -1
        for end, letter in enumerate(text, 1):
            lead += (letter == "a") - (letter == "b")
            first.setdefault(lead, end)
            if lead - k in first:
                best = max(best, end - first[lead - k])
        return best
""",
    ),
    wrong=(
        Wrong(
            why="at least k instead of exactly k",
            program="""\
class Solution:
    def longestLead(self, text: str, k: int) -> int:
        best, p = -1, [0]
        for c in text[:500]:
            p.append(p[-1] + (c == "a") - (c == "b"))
        for i in range(len(p)):
            for j in range(i, len(p)):
                if p[j] - p[i] >= k:
                    best = max(best, j - i)
        return best
""",
        ),
        Wrong(
            why="looks at beginnings of the string only",
            program="""\
class Solution:
    def longestLead(self, text: str, k: int) -> int:
        lead, best = 0, 0 if k == 0 else -1
        for i, c in enumerate(text):
            lead += (c == "a") - (c == "b")
            if lead == k:
                best = i + 1
        return best
""",
        ),
        Wrong(
            why="keeps the last place of each lead, not the first",
            program="""\
class Solution:
    def longestLead(self, text: str, k: int) -> int:
        place, lead, best = {0: 0}, 0, 0 if k == 0 else -1
        for i, c in enumerate(text, 1):
            lead += (c == "a") - (c == "b")
            if lead - k in place:
                best = max(best, i - place[lead - k])
            place[lead] = i
        return best
""",
        ),
        too_slow("""\
class Solution:
    def longestLead(self, text: str, k: int) -> int:
        best = 0 if k == 0 else -1
        for start in range(len(text)):
            lead = 0
            for end in range(start, len(text)):
                lead += (text[end] == "a") - (text[end] == "b")
                if lead == k and end + 1 - start > best:
                    best = end + 1 - start
        return best
"""),
    ),
)
