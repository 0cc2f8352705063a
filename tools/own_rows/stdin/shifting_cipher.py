"""A cipher whose shift grows from word to word."""

from own_problems import TRAIN, StdinProblem, Wrong, lines


def private(random):
    yield lines(0, "Plain text.")
    yield lines(25, "Az, zA!")
    yield lines(3, "a a a a")
    yield lines(24, "z y x w")
    yield lines(1, "!?")
    yield lines(5, "F")
    yield lines(9, "zZ-aA it's")
    yield lines(10, "Mixed CASE, with: punctuation; and 42 digits")
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'-."
    for words in (5, 12, 40):
        sizes = [random.randint(1, 6) for _ in range(words)]
        yield lines(random.randint(0, 25), " ".join("".join(random.choice(letters) for _ in range(n)) for n in sizes))


PROBLEM = StdinProblem(
    number=8,
    title="Shifting Cipher",
    split=TRAIN,
    level=1,
    statement="""\
A message was made secret as follows. Its words are numbered 0, 1, 2, ... from the left. In word number i every \
letter was moved forward by k + i places in the alphabet, going on at the beginning after the last letter; capital \
letters stayed capital and small letters small. Whatever is not a letter stayed as it was.

Given k and the secret message, find the message.

Input
The first line has k (0 <= k <= 25). The second line has the secret message: at most 60 words with a single space \
between them.

Output
One line with the message.""",
    public=((lines(1, "bcd dg"), "abc be\n"), (lines(2, "Jgoor!"), "Hemmp!\n")),
    private=private,
    golden=(
        """\
def back(letter, places):
    if not letter.isalpha():
        return letter
    first = ord("a") if letter.islower() else ord("A")
    return chr((ord(letter) - first - places) % 26 + first)

k = int(input())
words = input().split(" ")
print(" ".join("".join(back(c, k + i) for c in word) for i, word in enumerate(words)))
""",
        """\
from string import ascii_lowercase as small
shift = int(input())
out = []
for letter in input():
    if letter == " ":
        shift += 1
    turned = small[-shift % 26 or 26:] + small[:-shift % 26 or 26]
    out.append(letter.translate(str.maketrans(small + small.upper(), turned + turned.upper())))
print("".join(out))
""",
    ),
    wrong=(
        Wrong(
            why="edge case: letters before the first do not go round",
            program="""\
k = int(input())
out = []
for i, word in enumerate(input().split()):
    out.append("".join(chr(ord(c) - k - i) if c.isalpha() else c for c in word))
print(*out)
""",
        ),
        Wrong(
            why="the same shift for every word",
            program="""\
k = int(input())
out = ""
for c in input():
    if c.isalpha():
        base = 97 if c.islower() else 65
        c = chr((ord(c) - base - k) % 26 + base)
    out += c
print(out)
""",
        ),
        Wrong(
            why="edge case: capital letters become small",
            program="""\
k = int(input())
out = []
for i, word in enumerate(input().split()):
    out.append("".join(chr((ord(c.lower()) - 97 - k - i) % 26 + 97) if c.isalpha() else c for c in word))
print(*out)
""",
        ),
    ),
)
