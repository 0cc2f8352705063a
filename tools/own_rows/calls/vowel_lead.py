"""Where a string can be cut so that the left part has more vowels."""

from own_problems import TEST, CallProblem, Wrong, too_slow


def private(random):
    for text in ("a", "b", "ab", "ba", "aa", "AbEb", "xyz", "aeiou", "bcaeb", "eeezzzee"):
        yield [text]
    for length in (10, 60, 400):
        yield ["".join(random.choice("aAeEbcdx") for _ in range(length))]
    yield ["".join(random.choice("aEbx") for _ in range(14000))]


PROBLEM = CallProblem(
    number=110,
    title="Vowel Lead",
    split=TEST,
    level=1,
    method=True,
    signature="vowelLead(text: str) -> int",
    statement="""\
A string of 1 to 20000 English letters is cut into a left and a right part, both of which must not be empty. In how \
many of the possible cuts does the left part have strictly more vowels than the right part? The vowels are a, e, i, o \
and u, as small or as capital letters.""",
    public=((["aebi"], 2), (["moon"], 1)),
    private=private,
    golden=(
        """\
class Solution:
    def vowelLead(self, text: str) -> int:
        right = sum(letter in "aeiouAEIOU" for letter in text)
        left = cuts = 0
        for letter in text[:-1]:
            if letter in "aeiouAEIOU":
                left += 1
                right -= 1
            cuts += left > right
        return cuts
""",
    ),
    wrong=(
        Wrong(
            why="edge case: capital letters are no vowels",
            program="""\
class Solution:
    def vowelLead(self, text: str) -> int:
        right, left, cuts = sum(c in "aeiou" for c in text), 0, 0
        for c in text[:-1]:
            if c in "aeiou":
                left, right = left + 1, right - 1
            cuts += left > right
        return cuts
""",
        ),
        Wrong(
            why="off by one: an empty right part",
            program="""\
class Solution:
    def vowelLead(self, text: str) -> int:
        right, left, cuts = sum(c in "aeiou" for c in text.lower()), 0, 0
        for c in text.lower():
            if c in "aeiou":
                left, right = left + 1, right - 1
            cuts += left > right
        return cuts
""",
        ),
        too_slow("""\
class Solution:
    def vowelLead(self, text: str) -> int:
        cuts = 0
        for cut in range(1, len(text)):
            left = len([c for c in text[:cut] if c in "aeiouAEIOU"])
            right = len([c for c in text[cut:] if c in "aeiouAEIOU"])
            if left > right:
                cuts += 1
        return cuts
"""),
    ),
)
