"""Strings of beads without two red neighbours: a recurrence, and more steps than can be taken."""

from own_problems import TRAIN, StdinProblem, Wrong, lines, too_slow


def private(random):
    yield from (lines([n, 2]) for n in (1, 3, 4, 5, 10, 50, 10**18))
    yield lines([1, 1])
    yield lines([2, 1])
    yield lines([3, 0])
    yield lines([1, 0])
    yield lines([2, 0])
    yield lines([10**18, 10**9])
    yield lines([random.randint(10**17, 10**18), random.randint(1, 10**9)])


PROBLEM = StdinProblem(
    number=17,
    title="Red Beads",
    split=TRAIN,
    level=3,
    statement="""\
A string of n beads is made of red beads and of beads of c other colours; the string has a left end and a right end. \
Two red beads must never be next to each other; otherwise every choice of colours is allowed. How many different \
strings are there? The number may be huge, so give its remainder after division by 1000000007.

Input
One line with n and c (1 <= n <= 10^18, 0 <= c <= 10^9).

Output
One integer: the remainder.""",
    public=((lines([2, 2]), "8\n"), (lines([3, 1]), "5\n")),
    private=private,
    golden=(
        """\
M = 10**9 + 7
def product(a, b):
    return [[sum(a[i][k] * b[k][j] for k in (0, 1)) % M for j in (0, 1)] for i in (0, 1)]

n, c = map(int, input().split())
power, step = [[1, 0], [0, 1]], [[c, c], [1, 0]]  # from (ends in other, ends in red) to those of one bead more
while n:
    if n & 1:
        power = product(power, step)
    step = product(step, step)
    n >>= 1
print((power[0][0] + power[1][0]) % M)
""",
        """\
M = 10**9 + 7
n, c = map(int, input().split())
# a(m) = c * (a(m - 1) + a(m - 2)), by powers of x modulo x^2 - c x - c
def times(p, q):
    high = p[1] * q[1]
    return ((p[0] * q[0] + c * high) % M, (p[0] * q[1] + p[1] * q[0] + c * high) % M)
result, base = (1, 0), (0, 1)
while n:
    if n % 2:
        result = times(result, base)
    base = times(base, base)
    n //= 2
print((result[0] + result[1] * (c + 1)) % M)
""",
    ),
    wrong=(
        too_slow("""\
M = 10**9 + 7
n, c = map(int, input().split())
other, red = c, 1
for _ in range(n - 1):
    other, red = (other + red) * c % M, other
print((other + red) % M)
"""),
        Wrong(
            why="edge case: no other colour",
            program="""\
M = 10**9 + 7
n, c = map(int, input().split())
c = max(c, 1)
def mul(a, b):
    return [[sum(a[i][k] * b[k][j] for k in (0, 1)) % M for j in (0, 1)] for i in (0, 1)]
p, s = [[1, 0], [0, 1]], [[c, c], [1, 0]]
while n:
    if n & 1:
        p = mul(p, s)
    s = mul(s, s)
    n >>= 1
print((p[0][0] + p[1][0]) % M)
""",
        ),
        Wrong(
            why="a ring instead of a string",
            program="""\
M = 10**9 + 7
n, c = map(int, input().split())
if n == 1:
    print((c + 1) % M)
else:
    def mul(a, b):
        return [[sum(a[i][k] * b[k][j] for k in (0, 1)) % M for j in (0, 1)] for i in (0, 1)]
    p, s = [[1, 0], [0, 1]], [[c, c], [1, 0]]
    while n:
        if n & 1:
            p = mul(p, s)
        s = mul(s, s)
        n >>= 1
    print((p[0][0] + p[1][1]) % M)
""",
        ),
        Wrong(
            why="decimal powers are not exact",
            program="""\
n, c = map(int, input().split())
root = (c * c + 4 * c) ** 0.5
x, y = (c + root) / 2, (c - root) / 2
if n > 60:
    print(0)
elif c == 0:
    print(int(n == 1))
else:
    print(round(((c + 1 - y) * x**n - (c + 1 - x) * y**n) / (x - y)) % (10**9 + 7))
""",
        ),
    ),
)
