"""The first letter that a text lacks, or None."""

from own_problems import TRAIN, CallProblem, Wrong, crashes


def private(random):
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    yield [""]
    yield [alphabet]
    yield [alphabet.upper()]
    yield [alphabet[:-1]]
    yield [alphabet[1:]]
    yield ["ABCdef"]
    yield ["a b c ! d"]
    yield [alphabet.replace("q", "Q")]
    for length in (10, 60, 300):
        yield ["".join(random.choice(alphabet + alphabet.upper() + " ,.") for _ in range(length))]


PROBLEM = CallProblem(
    number=103,
    title="First Missing Letter",
    split=TRAIN,
    level=1,
    signature="first_missing_letter(text: str) -> Optional[str]",
    statement="""\
Return the first letter of the English alphabet that does not \
occur in `text`, as a small letter. Capital and small letters count as the same; the text may hold other characters \
too. If the text has every letter of the alphabet, return None.""",
    public=((["a bad cab"], "e"), (["hello"], "a")),
    private=private,
    golden=(
        """\
def first_missing_letter(text):
    return next((letter for letter in "abcdefghijklmnopqrstuvwxyz" if letter not in text.lower()), None)
""",
        """\
def first_missing_letter(text):
    seen = [False] * 26
    for c in text:
        for first in (65, 97):
            if 0 <= ord(c) - first < 26:
                seen[ord(c) - first] = True
    return chr(97 + seen.index(False)) if False in seen else None
""",
    ),
    wrong=(
        Wrong(
            why="edge case: capital letters do not count",
            program="""\
def first_missing_letter(text):
    for letter in "abcdefghijklmnopqrstuvwxyz":
        if letter not in text:
            return letter
    return None
""",
        ),
        Wrong(
            why="edge case: an empty string instead of None",
            program="""\
def first_missing_letter(text):
    missing = sorted(set("abcdefghijklmnopqrstuvwxyz") - set(text.lower()))
    return missing[0] if missing else ""
""",
        ),
        crashes(
            "no letter is missing",
            """\
def first_missing_letter(text):
    return min(set("abcdefghijklmnopqrstuvwxyz") - set(text.lower()))
""",
        ),
        Wrong(
            why="off by one: the alphabet ends with y",
            program="""\
def first_missing_letter(text):
    for code in range(ord("a"), ord("z")):
        if chr(code) not in text.lower():
            return chr(code)
    return None
""",
        ),
    ),
)
