"""A lift that repeats its instructions: where it stands after more of them than can be followed."""

from own_problems import VALIDATION, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield lines([0, 0, 10**18], "UD")
    yield lines([5, 0, 3], "U")
    yield lines([5, 5, 10**18], "U")
    yield lines([5, 2, 4], "UDD")
    yield lines([1, 0, 10**18], "UUD")
    yield lines([9, 9, 10**18], "DDDU")
    yield lines([3, 1, 10**18 - 1], "UUUDD")
    yield lines([7, 3, 0], "UD")
    for floors, length in ((5, 6), (20, 15), (300, 80), (300, 100)):
        text = "".join(random.choice("UD") for _ in range(length))
        yield lines([floors, random.randint(0, floors), random.randint(10**17, 10**18)], text)


PROBLEM = StdinProblem(
    number=20,
    title="Tireless Lift",
    split=VALIDATION,
    level=3,
    statement="""\
A lift in a house with floors 0 to F follows a list of instructions, U (one floor up) and D (one floor down), again \
and again from the beginning. An instruction that would take it below floor 0 or above floor F has no effect, but \
counts as followed. The lift starts on floor s. On which floor is it after k instructions?

Input
The first line has F, s and k (0 <= s <= F <= 300, 0 <= k <= 10^18). The second line has the list: 1 to 100 letters, \
each U or D.

Output
One integer: the floor.""",
    public=((lines([3, 1, 5], "UUD"), "3\n"), (lines([10, 4, 7], "UUDU"), "7\n")),
    private=private,
    golden=(
        """\
F, s, k = map(int, input().split())
steps = [1 if letter == "U" else -1 for letter in input().strip()]

def follow(floor, steps):
    for step in steps:
        floor = min(F, max(0, floor + step))
    return floor

rounds, rest = divmod(k, len(steps))
seen, order = {}, []
while s not in seen and len(order) < rounds:
    seen[s] = len(order)
    order.append(s)
    s = follow(s, steps)
if len(order) < rounds:
    start = seen[s]
    s = order[start + (rounds - start) % (len(order) - start)]
print(follow(s, steps[:rest]))
""",
        """\
F, s, k = map(int, input().split())
text = input().strip()
def once(floor, letters):
    for c in letters:
        floor = max(floor - 1, 0) if c == "D" else min(floor + 1, F)
    return floor
jump = [once(f, text) for f in range(F + 1)]
rounds, rest = divmod(k, len(text))
while rounds:
    if rounds % 2:
        s = jump[s]
    jump = [jump[jump[f]] for f in range(F + 1)]
    rounds //= 2
print(once(s, text[:rest]))
""",
    ),
    wrong=(
        too_slow("""\
F, s, k = map(int, input().split())
t = input().strip()
for i in range(k):
    s = min(F, s + 1) if t[i % len(t)] == "U" else max(0, s - 1)
print(s)
"""),
        Wrong(
            why="adds up all steps and stops at the ends only once",
            program="""\
F, s, k = map(int, input().split())
t = input().strip()
rounds, rest = divmod(k, len(t))
net = t.count("U") - t.count("D")
s += rounds * net + t[:rest].count("U") - t[:rest].count("D")
print(min(F, max(0, s)))
""",
        ),
        Wrong(
            why="instructions without effect are not counted",
            program="""\
F, s, k = map(int, input().split())
t = input().strip()
i = done = 0
while done < min(k, 5000) and i < 20000:
    n = s + (1 if t[i % len(t)] == "U" else -1)
    if 0 <= n <= F:
        s = n
        done += 1
    i += 1
print(s)
""",
        ),
    ),
)
