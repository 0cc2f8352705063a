"""A clock that chimes: counting over a range with both ends."""

from own_problems import TEST, StdinProblem, Wrong, lines


def private(random):
    for start, end in (
        ("00:00", "00:00"),
        ("00:01", "00:29"),
        ("00:00", "23:59"),
        ("12:00", "12:30"),
        ("11:59", "13:00"),
    ):
        yield lines(start, end)
    yield lines("23:30", "23:59")
    yield lines("00:00", "00:30")
    for _ in range(6):
        first, last = sorted(random.randrange(1440) for _ in range(2))
        yield lines(*(f"{moment // 60:02}:{moment % 60:02}" for moment in (first, last)))


PROBLEM = StdinProblem(
    number=2,
    title="Clock Chimes",
    split=TEST,
    level=1,
    statement="""\
A clock in a hall has twelve hours on its face. At every full hour it chimes as many times as the hour that it shows: \
once at 1 o'clock, ..., twelve times at 12 o'clock, at night and at noon alike. In addition it chimes once at every \
half hour, for example at 07:30.

Mina is in the hall from one moment to another on the same day, both moments included. How many chimes does she hear?

Input
Two lines, each with a time of the day in the form HH:MM, from 00:00 to 23:59. The second time is not before the first.

Output
One integer: the number of chimes.""",
    public=((lines("09:00", "10:30"), "21\n"), (lines("14:10", "14:50"), "1\n")),
    private=private,
    golden=(
        """\
def minutes(text):
    return int(text[:2]) * 60 + int(text[3:])

first, last = minutes(input().strip()), minutes(input().strip())
chimes = 0
for moment in range(first, last + 1):
    if moment % 60 == 0:
        chimes += (moment // 60 - 1) % 12 + 1
    elif moment % 60 == 30:
        chimes += 1
print(chimes)
""",
        """\
start, end = (60 * int(h) + int(m) for h, m in (input().split(":") for _ in range(2)))

def until(minute):
    # chimes from midnight, the one at 00:00 included, up to a minute
    hours, rest = divmod(minute, 60)
    full = sum([12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11][hour % 12] for hour in range(hours + 1))
    return full + hours + (rest >= 30)

print(until(end) - (until(start - 1) if start else 0))
""",
    ),
    wrong=(
        Wrong(
            why="off by one: the last minute is left out",
            program="""\
def minutes(text):
    return int(text[:2]) * 60 + int(text[3:])

first, last = minutes(input().strip()), minutes(input().strip())
chimes = 0
for moment in range(first, last):
    if moment % 60 == 0:
        chimes += (moment // 60 - 1) % 12 + 1
    elif moment % 60 == 30:
        chimes += 1
print(chimes)
""",
        ),
        Wrong(
            why="edge case: no chime at twelve",
            program="""\
h, m = map(int, input().split(":"))
H, M = map(int, input().split(":"))
print(sum(t // 60 % 12 if t % 60 == 0 else t % 60 == 30 for t in range(h * 60 + m, H * 60 + M + 1)))
""",
        ),
        Wrong(
            why="edge case: twenty-four hours on the face",
            program="""\
h, m = map(int, input().split(":"))
H, M = map(int, input().split(":"))
total = 0
for t in range(h * 60 + m, H * 60 + M + 1):
    if t % 60 == 0:
        total += t // 60 if t else 12
    if t % 60 == 30:
        total += 1
print(total)
""",
        ),
    ),
)
