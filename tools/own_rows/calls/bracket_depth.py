"""How deep brackets are nested, or None where they do not match."""

from own_problems import TRAIN, CallProblem, Wrong, crashes


def private(random):
    for text in (
        "",
        "abc",
        "()",
        "][",
        "(",
        ")",
        "([)]",
        "[()]{}",
        "((x)",
        "f(a[0]){g(h())}",
        "{[(((deep)))]}",
        "())(",
    ):
        yield [text]
    for pairs in (4, 20):
        text = ""
        for _ in range(pairs):
            opened, closed = random.choice(["()", "[]", "{}"])
            text = random.choice([f"{opened}{text}{closed}", f"{text}{opened}x{closed}"])
        yield [text]
        yield [text[:-1]]


PROBLEM = CallProblem(
    number=113,
    title="Bracket Depth",
    split=TRAIN,
    level=2,
    method=True,
    signature="bracketDepth(text: str) -> Optional[int]",
    statement="""\
A text contains round, square and curly brackets among other characters. It is well formed if every opening bracket \
is closed later by a bracket of the same kind, and brackets that are opened last are closed first. Return how many \
brackets are open at the same time at most (0 if there are no brackets), or None if the text is not well formed.""",
    public=((["a(b[c])d()"], 2), (["(]"], None)),
    private=private,
    golden=(
        """\
class Solution:
    def bracketDepth(self, text: str) -> Optional[int]:
        closing = {"(": ")", "[": "]", "{": "}"}
        waiting, deepest = [], 0
        for c in text:
            if c in closing:
                waiting.append(closing[c])
                deepest = max(deepest, len(waiting))
            elif c in ")]}" and (not waiting or waiting.pop() != c):
                return None
        return None if waiting else deepest
""",
        """\
class Solution:
    def bracketDepth(self, text: str) -> Optional[int]:
        left = "".join(c for c in text if c in "()[]{}")
        while left:  # the innermost pairs go, layer by layer
            fewer = left
            for pair in ("()", "[]", "{}"):
                fewer = fewer.replace(pair, "")
            if fewer == left:
                return None
            left = fewer
        heights = list(accumulate((c in "([{") - (c in ")]}") for c in text))
        return max([0, *heights])
""",
    ),
    wrong=(
        Wrong(
            why="edge case: brackets that are never closed",
            program="""\
class Solution:
    def bracketDepth(self, text: str) -> Optional[int]:
        pairs, stack, best = {")": "(", "]": "[", "}": "{"}, [], 0
        for c in text:
            if c in "([{":
                stack.append(c)
                best = max(best, len(stack))
            elif c in pairs:
                if not stack or stack.pop() != pairs[c]:
                    return None
        return best
""",
        ),
        crashes(
            "a closing bracket where none is open",
            """\
class Solution:
    def bracketDepth(self, text: str) -> Optional[int]:
        pairs, stack, best = {")": "(", "]": "[", "}": "{"}, [], 0
        for c in text:
            if c in "([{":
                stack.append(c)
                best = max(best, len(stack))
            elif c in pairs:
                if stack.pop() != pairs[c]:
                    return None
        return None if stack else best
""",
        ),
        Wrong(
            why="counts each kind apart",
            program="""\
class Solution:
    def bracketDepth(self, text: str) -> Optional[int]:
        best = depth = 0
        for kind in ("()", "[]", "{}"):
            if text.count(kind[0]) != text.count(kind[1]):
                return None
        for c in text:
            depth += (c in "([{") - (c in ")]}")
            best = max(best, depth)
        return best
""",
        ),
        Wrong(
            why="edge case: None where there is no bracket",
            program="""\
class Solution:
    def bracketDepth(self, text: str) -> Optional[int]:
        stack, best = [], 0
        for c in text:
            if c in "([{":
                stack.append(")]}"["([{".index(c)])
                best = max(best, len(stack))
            elif c in ")]}" and (not stack or c != stack.pop()):
                return None
        return best if best and not stack else None
""",
        ),
    ),
)
