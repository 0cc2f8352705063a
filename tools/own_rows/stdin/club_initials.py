"""The initials of a name: small words and letter case."""

from own_problems import TEST, StdinProblem, Wrong, crashes, lines


def private(random):
    yield from map(lines, ("a", "the", "Of The And", "OF mice AND men", "The Order Of The Quill", "  two   spaces  "))
    yield from map(lines, ("thee often andy", "x y z", "and and and and", "Theory of Andes"))
    words = ["of", "The", "AND", "lake", "Hill", "oak", "tHe", "Offer", "sand"]
    for count in (4, 8, 15):
        yield lines(" ".join(random.choice(words) for _ in range(count)))


PROBLEM = StdinProblem(
    number=7,
    title="Club Initials",
    split=TEST,
    level=1,
    statement="""\
The initials of a club are the first letters of the words of its name, as capital letters, without anything between \
them. The words "of", "the" and "and" are left out, however they are written (a word such as "OF" or "The" is left \
out too). If no word remains, the initials are a single minus sign.

Input
One line with the name: words of letters, separated by one or more spaces, at most 100 characters. There is at least \
one word.

Output
One line with the initials.""",
    public=((lines("Friends of old maps"), "FOM\n"), (lines("north river rowers"), "NRR\n")),
    private=private,
    golden=(
        """\
words = [word for word in input().split() if word.lower() not in ("of", "the", "and")]
print("".join(word[0].upper() for word in words) or "-")
""",
        """\
import re
name = " " + input() + " "
name = re.sub(r"(?<= )(?:of|the|and)(?= )", "", name, flags=re.IGNORECASE)
print("".join(re.findall(r"(?<= )[A-Za-z]", name)).upper() or "-")
""",
    ),
    wrong=(
        Wrong(
            why="edge case: small words in capital letters stay",
            program="""\
words = [word for word in input().split() if word not in ("of", "the", "and")]
print("".join(word[0].upper() for word in words) or "-")
""",
        ),
        Wrong(
            why="edge case: prints nothing where no word remains",
            program="""\
print("".join(w[0].upper() for w in input().split() if w.lower() not in {"of", "the", "and"}))
""",
        ),
        crashes(
            "several spaces give empty words",
            """\
out = ""
for word in input().split(" "):
    if word.lower() not in ("of", "the", "and"):
        out += word[0].upper()
print(out or "-")
""",
        ),
        Wrong(
            why="wrong format: dots between",
            program="""\
print(".".join(w[0].upper() for w in input().split() if w.lower() not in {"of", "the", "and"}) or "-")
""",
        ),
    ),
)
