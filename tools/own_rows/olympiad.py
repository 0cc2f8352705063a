"""Problems in the manner of OlympiadBench: numbers, expressions, equations, tuples, intervals."""

import math
from fractions import Fraction
from itertools import combinations, product

from own_problems import TEST, TRAIN, VALIDATION, OlympiadProblem


GRID = [Fraction(n, 4) for n in range(-60, 61)]


def worst_of_the_best(teams: int) -> int:
    """The most points that the last team of a double round can have."""
    games = [(a, b) for a in range(teams) for b in range(teams) if a != b]
    best = 0
    for outcomes in product(((3, 0), (1, 1), (0, 3)), repeat=len(games)):
        points = [0] * teams
        for (a, b), (one, other) in zip(games, outcomes, strict=True):
            points[a] += one
            points[b] += other
        best = max(best, min(points))
    return best


def squares(rows: int) -> int:
    """In a grid of so many rows and one column more, by their corners."""
    return sum(
        row + size <= rows and column + size <= rows + 1
        for row in range(rows)
        for column in range(rows + 1)
        for size in range(1, rows + 1)
    )


def nested_subsets(size: int) -> int:
    return sum(a & b == a for a in range(2**size) for b in range(2**size))


def primes(most: int) -> list[int]:
    return [n for n in range(2, most) if all(n % d for d in range(2, n))]


def right_triangles() -> Fraction:
    corners = [(math.cos(math.pi * k / 3), math.sin(math.pi * k / 3)) for k in range(6)]
    right = 0
    for three in combinations(corners, 3):
        sides = sorted(math.dist(one, other) ** 2 for one, other in combinations(three, 2))
        right += math.isclose(sides[0] + sides[1], sides[2])
    return Fraction(right, 20)


def meeting_minutes() -> int:
    gap, minutes = 30_000, 0  # metres
    while gap > 0:
        gap -= 300 + 450
        minutes += 1
    return minutes


def steps_of_two() -> list[tuple[dict[str, int], int]]:
    values = [1]
    for x in range(8):
        values.append(values[-1] + 2 * x + 3)
    return [({"x": x}, value) for x, value in enumerate(values)]


def twice(a: int, b: int) -> bool:
    return all(a * (a * x + b) + b == 9 * x + 8 for x in range(3))


def is_acute(x: Fraction) -> bool:
    if not 2 < x < 14:
        return False
    sides = sorted([Fraction(6), Fraction(8), x])
    return sides[0] ** 2 + sides[1] ** 2 > sides[2] ** 2


def is_value(y: Fraction) -> bool:
    """Whether 4x / (x^2 + 4) is y somewhere, by its sign on a fine grid."""
    differences = [4 * Fraction(n, 4) - y * (Fraction(n, 4) ** 2 + 4) for n in range(-24, 25)]
    return min(differences) <= 0 <= max(differences)


PROBLEMS = (
    OlympiadProblem(
        problem=r"Find all positive integers $n$ for which $n^2 + 18n + 9$ is a perfect square.",
        answer="2,10",
        solution=r"Let $(n + 9)^2 - 72 = k^2$ with $k \ge 0$, so $(n + 9 - k)(n + 9 + k) = 72$, where both factors are "
        r"even. $2 \cdot 36$, $4 \cdot 18$ and $6 \cdot 12$ give $n + 9 = 19, 11, 9$, so $n = 10$ and $n = 2$.",
        found=lambda: [n for n in range(1, 2000) if math.isqrt(n * n + 18 * n + 9) ** 2 == n * n + 18 * n + 9],
        subject="Number Theory",
        multiple=True,
        split=TRAIN,
    ),
    OlympiadProblem(
        problem="Two villages are $30$ km apart by road. At noon a cyclist starts from each of them towards the other "
        "one, one at $18$ km/h and the other at $27$ km/h. After how many minutes do they meet?",
        answer="40",
        solution=r"Together they cover $45$ km in an hour, so $30$ km take $\frac{2}{3}$ of an hour, $40$ minutes.",
        found=meeting_minutes,
        unit="minutes",
        split=TEST,
    ),
    OlympiadProblem(
        problem="A regular polygon with twelve sides has its corners on a circle of radius $10$. Find its perimeter, "
        "rounded to two decimal places.",
        answer="62.12",
        solution=r"Each side is $20 \sin 15^\circ = 5 (\sqrt{6} - \sqrt{2}) \approx 5.1764$, and twelve of them are "
        r"about $62.12$.",
        found=lambda: 12 * math.dist((10, 0), (10 * math.cos(math.pi / 6), 10 * math.sin(math.pi / 6))),
        subject="Geometry",
        error="1e-2",
        split=TRAIN,
    ),
    OlympiadProblem(
        problem="Find, in degrees, the angle of less than $180$ degrees between the two hands of a clock at ten minutes "
        "to five.",
        answer="155",
        solution=r"The minute hand stands at $50 \cdot 6 = 300$ degrees, the hour hand at $4 \cdot 30 + 25 = 145$ "
        r"degrees. The angle is $155$ degrees.",
        found=lambda: abs(sum(6 for _ in range(50)) - sum(Fraction(1, 2) for _ in range(4 * 60 + 50))),
        subject="Geometry",
        unit=r"^{\circ}",
        split=VALIDATION,
    ),
    OlympiadProblem(
        problem=r"The perimeter of a rhombus is $40$ cm, and its diagonals are in the ratio $3 : 4$. Find its area in "
        r"$cm^2$.",
        answer="96",
        solution=r"The sides are $10$ cm long. Half the diagonals, $3t$ and $4t$, make a right triangle with a side, so "
        r"$5t = 10$. The diagonals are $12$ cm and $16$ cm, and the area is $\frac{12 \cdot 16}{2} = 96$.",
        found=lambda: next(6 * t * 8 * t // 2 for t in range(1, 99) if 4 * math.hypot(3 * t, 4 * t) == 40),
        subject="Geometry",
        unit="$cm^2$",
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"Find all real numbers $x$ with $|x - 2| + |x - 5| = 7$.",
        answer="0,7",
        solution=r"Between $2$ and $5$ the left side is $3$. To the left of $2$ it is $7 - 2x$, which gives $x = 0$; to "
        r"the right of $5$ it is $2x - 7$, which gives $x = 7$.",
        found=lambda: [x for x in GRID if abs(x - 2) + abs(x - 5) == 7],
        multiple=True,
        split=TEST,
    ),
    OlympiadProblem(
        problem="Three different corners of a regular hexagon are chosen at random, each choice being equally likely. "
        "Find the probability that they are the corners of a right-angled triangle.",
        answer=r"\frac{3}{5}",
        solution=r"A triangle in a circle is right-angled if one side is a diameter. There are $3$ diameters and $4$ "
        r"other corners for each, $12$ of $\binom{6}{3} = 20$ triangles.",
        found=right_triangles,
        subject="Combinatorics",
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"Find the smallest value of $\sqrt{x^2 + 1} + \sqrt{(x - 6)^2 + 9}$ for real $x$.",
        answer=r"2 \sqrt{13}",
        solution=r"It is the length of a way from $(0, -1)$ over $(x, 0)$ to $(6, 3)$. The shortest way is straight, of "
        r"length $\sqrt{6^2 + 4^2} = 2 \sqrt{13}$.",
        found=lambda: min(math.hypot(n / 1000, 1) + math.hypot(n / 1000 - 6, 3) for n in range(6001)),
        subject="Geometry",
        split=TEST,
    ),
    OlympiadProblem(
        problem=r"Let $n$ be a positive integer. How many ordered pairs $(A, B)$ of subsets of $\{1, 2, \ldots, n\}$ are "
        r"there such that $A$ is a subset of $B$? Give the answer in terms of $n$.",
        answer="3^{n}",
        solution=r"Each of the $n$ elements is in neither set, in $B$ only, or in both: three possibilities, so $3^n$.",
        found=lambda: [({"n": n}, nested_subsets(n)) for n in range(1, 7)],
        subject="Combinatorics",
        kind="Expression",
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"Let $n$ be a positive integer. Find $1 \cdot n + 2 \cdot (n - 1) + 3 \cdot (n - 2) + \cdots + n \cdot 1$ "
        r"in terms of $n$.",
        answer=r"\frac{n(n+1)(n+2)}{6}",
        solution=r"$k(n + 1 - k)$ is the number of ways to choose three of the numbers $0, \ldots, n + 1$ with $k$ in the "
        r"middle. So the sum is $\binom{n + 2}{3} = \frac{n(n + 1)(n + 2)}{6}$.",
        found=lambda: [({"n": n}, sum(k * (n + 1 - k) for k in range(1, n + 1))) for n in range(1, 9)],
        kind="Expression",
        split=VALIDATION,
    ),
    OlympiadProblem(
        problem=r"A rectangle is divided into unit squares in $n$ rows and $n + 1$ columns. How many squares of any size, "
        r"with their sides along the lines of this grid, are there? Give the answer in terms of $n$.",
        answer=r"\frac{n(n+1)(n+2)}{3}",
        solution=r"There are $(n + 1 - k)(n + 2 - k)$ squares of side $k$. With $m = n + 1 - k$ the number is "
        r"$\sum_{m=1}^{n} m(m + 1) = \frac{n(n + 1)(n + 2)}{3}$.",
        found=lambda: [({"n": n}, squares(n)) for n in range(1, 9)],
        subject="Combinatorics",
        kind="Expression",
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"In a league of $n \ge 2$ teams, every team plays twice against every other team. A win gives $3$ points "
        r"and a loss none; a draw gives each of both teams $1$ point. What is the largest number of points that the "
        r"team with the fewest points can have at the end? Give the answer in terms of $n$.",
        answer="3(n-1)",
        solution=r"There are $n(n - 1)$ games with at most $3$ points each, so the mean of the teams is at most "
        r"$3(n - 1)$. If every team wins its home games, all have $3(n - 1)$ points.",
        found=lambda: [({"n": n}, worst_of_the_best(n)) for n in (2, 3)],
        subject="Combinatorics",
        kind="Expression",
        split=TEST,
    ),
    OlympiadProblem(
        problem=r"A polynomial $f$ satisfies $f(0) = 1$ and $f(x + 1) - f(x) = 2x + 3$ for all real $x$. Find $f(x)$.",
        answer="x^{2}+2 x+1",
        solution=r"For integers $x \ge 0$, $f(x) = 1 + \sum_{k=0}^{x-1} (2k + 3) = 1 + x(x - 1) + 3x = x^2 + 2x + 1$, and "
        r"polynomials that agree for infinitely many numbers are equal.",
        found=steps_of_two,
        kind="Expression",
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"Find all functions of the form $f(x) = ax + b$ with real numbers $a$ and $b$ such that "
        r"$f(f(x)) = 9x + 8$ for all real $x$.",
        answer="-3 x-4,3 x+2",
        solution=r"$f(f(x)) = a^2 x + ab + b$. So $a = 3$ with $4b = 8$, or $a = -3$ with $-2b = 8$: $f(x) = 3x + 2$ and "
        r"$f(x) = -3x - 4$.",
        found=lambda: [f"{a} x{b:+}" for a in range(-20, 21) for b in range(-20, 21) if twice(a, b)],
        kind="Expression",
        multiple=True,
        split=TEST,
    ),
    OlympiadProblem(
        problem=r"Find an equation of the line that consists of all points $(x, y)$ with the same distance from $(1, 2)$ "
        r"as from $(5, 4)$.",
        answer="2 x+y=9",
        solution=r"$(x - 1)^2 + (y - 2)^2 = (x - 5)^2 + (y - 4)^2$ becomes $8x + 4y = 36$, that is $2x + y = 9$.",
        found=lambda: [
            ({"x": x, "y": y}, math.dist((x, y), (1, 2)) == math.dist((x, y), (5, 4)))
            for x in range(-9, 10)
            for y in range(-9, 28)
        ],
        subject="Geometry",
        kind="Equation",
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"A parabola whose axis is parallel to the $y$-axis passes through $(0, 3)$, $(1, 0)$ and $(2, 1)$. Find "
        r"its equation in the form $y = ax^2 + bx + c$.",
        answer="y=2 x^{2}-5 x+3",
        solution=r"$c = 3$, $a + b = -3$ and $4a + 2b = -2$, so $a = 2$ and $b = -5$.",
        found=lambda: [
            ({"x": x, "y": y}, y == 3 * (x - 1) * (x - 2) // 2 + x * (x - 1) // 2)
            for x in range(-3, 5)
            for y in range(-2, 37)
        ],
        kind="Equation",
        split=TEST,
    ),
    OlympiadProblem(
        problem=r"Find all pairs $(a, b)$ of positive integers with $a^2 - b^2 = 24$.",
        answer="(5,1),(7,5)",
        solution=r"$(a - b)(a + b) = 24$ with both factors even: $2 \cdot 12$ gives $(7, 5)$ and $4 \cdot 6$ gives "
        r"$(5, 1)$.",
        found=lambda: [(a, b) for a in range(1, 99) for b in range(1, 99) if a * a - b * b == 24],
        subject="Number Theory",
        kind="Tuple",
        multiple=True,
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"Find the triple $(x, y, z)$ of real numbers with $x + y = 7$, $y + z = 11$ and $z + x = 8$.",
        answer="(2,5,6)",
        solution=r"Adding all three gives $x + y + z = 13$, so $z = 6$, $x = 2$ and $y = 5$.",
        found=lambda: [(x, 7 - x, 4 + x) for x in GRID if 4 + x + x == 8],
        kind="Tuple",
        split=VALIDATION,
    ),
    OlympiadProblem(
        problem=r"Find all pairs $(x, y)$ of integers with $xy = 2x + 3y$.",
        answer="(-3,1),(0,0),(1,-1),(2,-4),(4,8),(5,5),(6,4),(9,3)",
        solution=r"The equation is $(x - 3)(y - 2) = 6$. The eight divisors of $6$, negative ones included, for $x - 3$ "
        r"give the eight pairs.",
        found=lambda: [(x, y) for x in range(-99, 100) for y in range(-99, 100) if x * y == 2 * x + 3 * y],
        subject="Number Theory",
        kind="Tuple",
        multiple=True,
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"Find all pairs $(p, q)$ of primes with $p \le q$ and $pq = p + q + 71$.",
        answer="(2,73),(3,37),(5,19),(7,13)",
        solution=r"The equation is $(p - 1)(q - 1) = 72$. Of $1 \cdot 72$, $2 \cdot 36$, $3 \cdot 24$, $4 \cdot 18$, "
        r"$6 \cdot 12$, $8 \cdot 9$ the third and the last do not give primes.",
        found=lambda: [(p, q) for p in primes(200) for q in primes(200) if p <= q and p * q == p + q + 71],
        subject="Number Theory",
        kind="Tuple",
        multiple=True,
        split=TEST,
    ),
    OlympiadProblem(
        problem=r"For which real numbers $a$ is $x^2 - 2ax + a + 6 > 0$ for all real $x$?",
        answer="(-2,3)",
        solution=r"The smallest value, at $x = a$, is $-a^2 + a + 6 = (3 - a)(a + 2)$, which is positive for "
        r"$-2 < a < 3$.",
        found=lambda: [(a, all(x * x - 2 * a * x + a + 6 > 0 for x in GRID)) for a in GRID],
        kind="Interval",
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"Find all real numbers $x \ne -2$ with $\frac{x - 1}{x + 2} \le 2$.",
        answer=r"(-\infty,-5] \cup (-2,\infty)",
        solution=r"$\frac{x - 1}{x + 2} - 2 = -\frac{x + 5}{x + 2}$, which is at most $0$ if $x \le -5$ or $x > -2$.",
        found=lambda: [(x, x != -2 and (x - 1) / (x + 2) <= 2) for x in GRID],
        kind="Interval",
        split=VALIDATION,
    ),
    OlympiadProblem(
        problem=r"Find the set of all values that $\frac{4x}{x^2 + 4}$ takes for real $x$.",
        answer="[-1,1]",
        solution=r"The value $y \ne 0$ is taken if $yx^2 - 4x + 4y = 0$ has a real root, that is if $16 - 16y^2 \ge 0$; the "
        r"value $0$ is taken at $x = 0$.",
        found=lambda: [(y, is_value(y)) for y in GRID if abs(y) <= 3],
        kind="Interval",
        split=TRAIN,
    ),
    OlympiadProblem(
        problem=r"The lengths of the sides of an acute triangle are $6$, $8$ and $x$. Find all possible values of $x$.",
        answer=r"(2 \sqrt{7},10)",
        solution=r"If $x$ is the longest side, the triangle is acute for $x^2 < 100$; if $8$ is, for $36 + x^2 > 64$, that "
        r"is $x > 2 \sqrt{7}$.",
        found=lambda: [(x, is_acute(x)) for x in GRID],
        subject="Geometry",
        kind="Interval",
        split=TEST,
    ),
)
