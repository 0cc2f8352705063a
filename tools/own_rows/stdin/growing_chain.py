"""The longest chain of numbers that grow by one or double: a table by value, not by pairs."""

from own_problems import TEST, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield lines(1, 5)
    yield lines(4, [4, 3, 2, 1])
    yield lines(3, [2, 4, 8])
    yield lines(4, [1, 2, 2, 3])
    yield lines(5, [3, 6, 4, 5, 12])
    yield lines(6, [5, 1, 6, 2, 7, 4])
    yield lines(6, [1, 3, 2, 3, 4, 8])
    yield lines(4, [7, 7, 7, 7])
    for count, most in ((10, 8), (30, 20), (300, 60)):
        yield lines(count, [random.randint(1, most) for _ in range(count)])
    yield lines(13000, [random.randint(1, 99) for _ in range(13000)])


PROBLEM = StdinProblem(
    number=22,
    title="Growing Chain",
    split=TEST,
    level=3,
    statement="""\
From a list of numbers you may strike out any numbers; the rest stays in its order. The rest is a chain if each of \
its numbers but the first is either the number before it plus 1 or twice the number before it. A single number is a \
chain. How long is the longest chain that can be left?

Input
The first line has n (1 <= n <= 15000). The second line has n integers from 1 to 1000.

Output
One integer: the length of the longest chain.""",
    public=((lines(6, [3, 4, 9, 8, 5, 9]), "4\n"), (lines(5, [10, 2, 3, 6, 11]), "3\n")),
    private=private,
    golden=(
        """\
input()
longest = {}
for number in map(int, input().split()):
    before = longest.get(number - 1, 0)
    if number % 2 == 0:
        before = max(before, longest.get(number // 2, 0))
    longest[number] = max(longest.get(number, 0), before + 1)
print(max(longest.values()))
""",
    ),
    wrong=(
        Wrong(
            why="wrong greedy: takes the first number that goes on",
            program="""\
n = int(input())
a = list(map(int, input().split()))
best = 0
for i in range(min(n, 400)):
    last, length = a[i], 1
    for x in a[i + 1:]:
        if x in (last + 1, 2 * last):
            last, length = x, length + 1
    best = max(best, length)
print(best)
""",
        ),
        Wrong(
            why="edge case: halves odd numbers, rounding down",
            program="""\
input()
longest = {}
for x in map(int, input().split()):
    before = max(longest.get(x - 1, 0), longest.get(x // 2, 0))
    longest[x] = max(longest.get(x, 0), before + 1)
print(max(longest.values()))
""",
        ),
        Wrong(
            why="only numbers next to each other in the list",
            program="""\
n = int(input())
a = list(map(int, input().split()))
best = run = 1
for x, y in zip(a, a[1:]):
    run = run + 1 if y in (x + 1, 2 * x) else 1
    best = max(best, run)
print(best)
""",
        ),
        too_slow("""\
n = int(input())
a = list(map(int, input().split()))
length = [1] * n
for i in range(n):
    for j in range(i):
        if a[i] == a[j] + 1 or a[i] == 2 * a[j]:
            length[i] = max(length[i], length[j] + 1)
print(max(length))
"""),
    ),
)
