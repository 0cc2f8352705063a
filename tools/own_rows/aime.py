"""Problems in the manner of AIME: the answer is an integer from 0 to 999."""

import math
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product

from own_problems import TEST, TRAIN, VALIDATION, AnswerProblem


def interpolated(points: dict[int, int], at: int) -> Fraction:
    """The value of the polynomial of least degree through the points (Lagrange)."""
    total = Fraction(0)
    for x, y in points.items():
        total += y * math.prod(Fraction(at - other, x - other) for other in points if other != x)
    return total


def digit_sum(value: int, base: int) -> int:
    """The sum of the digits of a value in a base."""
    return value and value % base + digit_sum(value // base, base)


def walks(steps: int) -> int:
    """Walks on the corners of a cube, from one to the opposite one."""
    ways = [1] + [0] * 7
    for _ in range(steps):
        ways = [sum(ways[corner ^ bit] for bit in (1, 2, 4)) for corner in range(8)]
    return ways[7]


def plain_grids(columns: int) -> int:
    """Grids of two rows in two colours without a 2 x 2 block of one colour."""
    return sum(
        all(len(set(one + other)) == 2 for one, other in pairwise(grid))
        for grid in product(list(product("br", repeat=2)), repeat=columns)
    )


def lattice_paths(right: int, up: int, closed: set[tuple[int, int]]) -> int:
    ways = {(0, 0): 1}
    for x in range(right + 1):
        for y in range(up + 1):
            if (x, y) in closed:
                ways[x, y] = 0
            elif (x, y) != (0, 0):
                ways[x, y] = ways.get((x - 1, y), 0) + ways.get((x, y - 1), 0)
    return ways[right, up]


def foot_area(length: float, width: float) -> int:
    """Of triangle BPD, where P is the point of diagonal AC nearest to B, found by ternary search."""
    low, high = 0.0, 1.0
    for _ in range(200):
        one, two = low + (high - low) / 3, high - (high - low) / 3
        distances = [math.hypot(t * length - length, t * width) for t in (one, two)]
        low, high = (low, two) if distances[0] < distances[1] else (one, high)
    px, py = low * length, low * width
    return round(abs((px - length) * width - py * -length) / 2)


def trapezoid(small: float, large: float) -> int:
    """Between two touching circles on one tangent, the line y = 0, by the distance of their centres."""
    low, high = 0.0, small + large
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.hypot(middle, large - small) < small + large else (low, middle)
    return round((small + large) / 2 * low)


def tosses() -> Fraction:
    """The expected number until there are two heads and two tails, by states backwards."""

    def more(heads: int, tails: int) -> Fraction:
        if heads >= 2 and tails >= 2:
            return Fraction(0)
        if heads >= 2:  # waits for tails only, two tosses for each on average
            return Fraction(2 * (2 - tails))
        if tails >= 2:
            return Fraction(2 * (2 - heads))
        return 1 + (more(heads + 1, tails) + more(heads, tails + 1)) / 2

    return more(0, 0)


def sum_of_parts(value: Fraction) -> int:
    return value.numerator + value.denominator


def rooks() -> int:
    cells = [cell for cell in product(range(4), range(5)) if cell not in {(0, 0), (0, 4), (3, 0), (3, 4)}]
    return sum(len({r for r, _ in three}) == len({c for _, c in three}) == 3 for three in combinations(cells, 3))


def odd_power(difference: int, exponent: int) -> int:
    x = (difference + math.sqrt(difference**2 + 4)) / 2
    return round(x**exponent - x**-exponent)


PROBLEMS = (
    AnswerProblem(
        problem=r"How many ordered pairs $(a, b)$ of integers with $1 \le a \le 60$ and $1 \le b \le 60$ are there such "
        r"that $a^2 + b^2$ is divisible by $7$?",
        answer="64",
        solution=r"The squares modulo $7$ are $0, 1, 2, 4$, and no two of $1, 2, 4$ add up to $7$ or $0$. So both "
        r"numbers are multiples of $7$. There are $8$ of those up to $60$, hence $8 \cdot 8 = 64$ pairs.",
        found=lambda: sum((a * a + b * b) % 7 == 0 for a in range(1, 61) for b in range(1, 61)),
        subject="Number Theory",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"For how many positive integers $n \le 1000$ does the decimal notation of $n$ end in exactly as many "
        r"zeros as its binary notation?",
        answer="556",
        solution=r"With $2^a$ and $5^b$ the highest powers that divide $n$, the notations end in $\min(a, b)$ and $a$ "
        r"zeros, so we need $a \le b$. With $a = 0$ there are $500$ odd numbers; with $a = 1$ the odd multiples of "
        r"$10$, $50$ of them; with $a = 2$ the odd multiples of $100$, $5$; with $a = 3$ only $1000$. Together $556$.",
        found=lambda: sum(
            len(str(n)) - len(str(n).rstrip("0")) == len(f"{n:b}") - len(f"{n:b}".rstrip("0")) for n in range(1, 1001)
        ),
        subject="Number Theory",
        split=TEST,
    ),
    AnswerProblem(
        problem="A beetle sits at a corner of a cube. Each minute it walks along an edge to a neighbouring corner, where "
        "it may also walk back. In how many ways can it walk for seven minutes so that it ends at the corner opposite "
        "to the one where it started?",
        answer="546",
        solution=r"Write the corners as triples of bits; each step flips one of the three. We count sequences of seven "
        r"flips in which every bit is flipped an odd number of times: $7!$ times the coefficient of $x^7$ in "
        r"$\sinh^3 x = \frac{1}{4}(\sinh 3x - 3 \sinh x)$, that is $\frac{1}{4}(3^7 - 3) = 546$.",
        found=lambda: walks(7),
        subject="Combinatorics",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"Find the sum of all positive integers $n < 200$ for which $n^2 + 5n + 12$ is divisible by $23$.",
        answer="909",
        solution=r"Modulo $23$ we have $4(n^2 + 5n + 12) = (2n + 5)^2 + 23 \equiv (2n + 5)^2$, so $2n \equiv -5 \equiv "
        r"18$, that is $n \equiv 9$. The numbers are $9, 32, \ldots, 193$, nine of them, with the sum "
        r"$9 \cdot 101 = 909$.",
        found=lambda: sum(n for n in range(1, 200) if (n * n + 5 * n + 12) % 23 == 0),
        subject="Number Theory",
        split=VALIDATION,
    ),
    AnswerProblem(
        problem=r"Each of the ten cells of a grid with two rows and five columns is painted blue or red so that no block "
        r"of $2 \times 2$ cells has only one colour. In how many ways can this be done?",
        answer="634",
        solution=r"Let $a$ count the paintings whose last column has one colour and $b$ those whose last column has "
        r"two. A plain column can be followed by one plain column and two mixed ones, a mixed column by two of each. "
        r"So $(a, b) \to (a + 2b, 2a + 2b)$, from $(2, 2)$ to $(6, 8)$, $(22, 28)$, $(78, 100)$, $(278, 356)$, "
        r"together $634$.",
        found=lambda: plain_grids(5),
        subject="Combinatorics",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"How many subsets of $\{1, 2, \ldots, 10\}$, the empty one included, have a sum that is divisible by "
        r"$3$?",
        answer="344",
        solution=r"With $\omega$ a third root of unity, $\prod_k (1 + \omega^k) = 2^3 (1 + \omega)^4 (1 + \omega^2)^3 "
        r"= 8 (1 + \omega) = -8 \omega^2$. The number is $\frac{1}{3}(2^{10} - 8 \omega^2 - 8 \omega) = "
        r"\frac{1}{3}(1024 + 8) = 344$.",
        found=lambda: sum(sum(k for k in range(1, 11) if mask >> k & 1) % 3 == 0 for mask in range(0, 2048, 2)),
        subject="Combinatorics",
        split=TEST,
    ),
    AnswerProblem(
        problem=r"How many positive integers less than $729$ have the same sum of digits in base $3$ as in base $9$?",
        answer="26",
        solution=r"A digit $3u + v$ in base $9$ is the two digits $u, v$ in base $3$; it adds $3u + v$ to one sum and "
        r"$u + v$ to the other. So all $u$ are $0$, and each of the three digits in base $9$ is $0$, $1$ or $2$: "
        r"$27$ numbers, of which $0$ is not positive. There are $26$.",
        found=lambda: sum(digit_sum(n, 3) == digit_sum(n, 9) for n in range(1, 729)),
        subject="Number Theory",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"How many points with integer coordinates lie strictly inside the triangle with the corners $(0, 0)$, "
        r"$(40, 0)$ and $(0, 30)$?",
        answer="561",
        solution=r"The area is $600$. On the boundary there are $40 + 30 + \gcd(40, 30) = 80$ points. By Pick's theorem "
        r"there are $600 - 40 + 1 = 561$ points inside.",
        found=lambda: sum(30 * x + 40 * y < 1200 for x in range(1, 40) for y in range(1, 30)),
        subject="Geometry",
        split=TEST,
    ),
    AnswerProblem(
        problem=r"In the rectangle $ABCD$ we have $AB = 40$ and $BC = 30$. The point $P$ lies on the diagonal $AC$ so "
        r"that $BP$ is perpendicular to $AC$. Find the area of triangle $BPD$.",
        answer="168",
        solution=r"$AC = 50$, so $AP = 40^2 / 50 = 32$, and $P$ is $7$ away from the centre $M$ of the rectangle. The "
        r"distance of $B$ from $AC$ is $24$, so triangle $BPM$ has the area $84$. As $M$ is the midpoint of $BD$, "
        r"triangle $BPD$ has twice that area, $168$.",
        found=lambda: foot_area(40, 30),
        subject="Geometry",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"Two circles of radius $9$ and $16$ touch each other from outside. A line touches the circles in two "
        r"different points $S$ and $T$. The centres of the circles are $M$ and $N$. Find the area of the quadrilateral "
        r"with the corners $M$, $N$, $S$ and $T$.",
        answer="300",
        solution=r"It is a trapezoid with the parallel sides $9$ and $16$ at right angles to $ST$. "
        r"$ST^2 = (9 + 16)^2 - (16 - 9)^2 = 576$, so $ST = 24$, and the area is $\frac{9 + 16}{2} \cdot 24 = 300$.",
        found=lambda: trapezoid(9, 16),
        subject="Geometry",
        split=VALIDATION,
    ),
    AnswerProblem(
        problem=r"Find the remainder when $1 \cdot 1! + 2 \cdot 2! + 3 \cdot 3! + \cdots + 97 \cdot 97!$ is divided by "
        r"$101$.",
        answer="49",
        solution=r"Because $k \cdot k! = (k + 1)! - k!$, the sum is $98! - 1$. As $101$ is prime, Wilson's theorem gives "
        r"$100! \equiv -1$. Here $100 \equiv -1$ and $99 \equiv -2$, so $2 \cdot 98! \equiv -1$, that is $98! \equiv 50$, and "
        r"the remainder is $49$.",
        found=lambda: sum(k * math.factorial(k) for k in range(1, 98)) % 101,
        subject="Number Theory",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"How many positive divisors of $20!$ are perfect squares that are not divisible by $10$?",
        answer="120",
        solution=r"$20! = 2^{18} \cdot 3^8 \cdot 5^4 \cdot 7^2 \cdot 11 \cdot 13 \cdot 17 \cdot 19$. A square takes even "
        r"exponents: $10 \cdot 5 \cdot 3 \cdot 2 = 300$ choices. Divisible by $10$ are those in which $2$ and $5$ both "
        r"occur: $9 \cdot 5 \cdot 2 \cdot 2 = 180$. There remain $120$.",
        found=lambda: sum(
            math.factorial(20) % (root * root) == 0 and root % 10 != 0
            for root in (
                2**a * 3**b * 5**c * 7**d for a in range(11) for b in range(6) for c in range(4) for d in range(3)
            )
        ),
        subject="Number Theory",
        split=TEST,
    ),
    AnswerProblem(
        problem=r"Six books, the volumes $1$ to $6$ of one work, are put on a shelf in some order so that nowhere a "
        r"volume stands directly to the left of the volume that follows it in the numbering. How many such orders are "
        r"there?",
        answer="309",
        solution=r"Choose $k$ of the five pairs $(i, i + 1)$ that shall stand together: $6 - k$ blocks remain. By "
        r"inclusion and exclusion the number is $\sum_{k=0}^{5} (-1)^k \binom{5}{k} (6 - k)! = 720 - 600 + 240 - 60 + "
        r"10 - 1 = 309$.",
        found=lambda: sum(
            all(right != left + 1 for left, right in pairwise(order)) for order in permutations(range(6))
        ),
        subject="Combinatorics",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"Three fair dice with the numbers $1$ to $6$ are rolled. The probability that the product of the three "
        r"numbers is a perfect square is $\frac{m}{n}$, where $m$ and $n$ are positive integers without a common "
        r"divisor greater than $1$. Find $m + n$.",
        answer="127",
        solution=r"Up to squares the faces are $1, 2, 3, 1, 5, 6$. Three squares: $2^3 = 8$ rolls. One square and two "
        r"equal numbers among $2, 3, 5, 6$: $3 \cdot 2 \cdot 4 = 24$ rolls. No square: the numbers $2, 3, 6$ in any "
        r"order, $6$ rolls. So the probability is $\frac{38}{216} = \frac{19}{108}$, and $19 + 108 = 127$.",
        found=lambda: sum_of_parts(
            Fraction(sum(math.isqrt(a * b * c) ** 2 == a * b * c for a, b, c in product(range(1, 7), repeat=3)), 216)
        ),
        subject="Combinatorics",
        split=TEST,
    ),
    AnswerProblem(
        problem=r"A polynomial $P$ of degree $3$ satisfies $P(1) = 1$, $P(2) = 4$, $P(3) = 9$ and $P(0) = -60$. Find "
        r"$P(5)$.",
        answer="265",
        solution=r"$P(x) - x^2$ has the roots $1, 2, 3$, so $P(x) = x^2 + c(x - 1)(x - 2)(x - 3)$. From $P(0) = -6c = "
        r"-60$ we get $c = 10$, and $P(5) = 25 + 10 \cdot 4 \cdot 3 \cdot 2 = 265$.",
        found=lambda: interpolated({0: -60, 1: 1, 2: 4, 3: 9}, 5),
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"A real number $x$ satisfies $x - \frac{1}{x} = 3$. Find $x^5 - \frac{1}{x^5}$.",
        answer="393",
        solution=r"Squaring gives $x^2 + x^{-2} = 11$, and $x^3 - x^{-3} = 3 \cdot (11 + 1) = 36$. The product of both is "
        r"$x^5 - x^{-5} + x - x^{-1}$, so the number is $11 \cdot 36 - 3 = 393$.",
        found=lambda: odd_power(3, 5),
        split=VALIDATION,
    ),
    AnswerProblem(
        problem=r"Find $\lfloor \log_2 1 \rfloor + \lfloor \log_2 2 \rfloor + \lfloor \log_2 3 \rfloor + \cdots + "
        r"\lfloor \log_2 150 \rfloor$, where $\lfloor t \rfloor$ is the greatest integer that is at most $t$.",
        answer="803",
        solution=r"The value $k$ is taken $2^k$ times for $k \le 6$, which gives $2 + 8 + 24 + 64 + 160 + 384 = 642$. The "
        r"value $7$ is taken from $128$ to $150$, $23$ times, which gives $161$. The sum is $803$.",
        found=lambda: sum(n.bit_length() - 1 for n in range(1, 151)),
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"For how many positive integers $n$ is $\left\lfloor \frac{n}{15} \right\rfloor = \left\lfloor "
        r"\frac{n}{17} \right\rfloor$? Here $\lfloor t \rfloor$ is the greatest integer that is at most $t$.",
        answer="63",
        solution=r"Both are $q$ exactly for $17q \le n \le 15q + 14$, which are $15 - 2q$ numbers for $q = 0, \ldots, 7$. "
        r"That makes $15 + 13 + \cdots + 1 = 64$ numbers, one of which is $0$, so $63$ positive ones.",
        found=lambda: sum(n // 15 == n // 17 for n in range(1, 10_000)),
        subject="Number Theory",
        split=TEST,
    ),
    AnswerProblem(
        problem=r"A path leads from $(0, 0)$ to $(7, 5)$ in steps of length $1$ to the right or upwards. How many such "
        r"paths pass neither through $(3, 2)$ nor through $(5, 4)$?",
        answer="244",
        solution=r"All paths: $\binom{12}{5} = 792$. Through $(3, 2)$: $\binom{5}{2} \binom{7}{3} = 350$. Through "
        r"$(5, 4)$: $\binom{9}{4} \binom{3}{1} = 378$. Through both: $\binom{5}{2} \binom{4}{2} \binom{3}{1} = 180$. "
        r"Hence $792 - 350 - 378 + 180 = 244$.",
        found=lambda: lattice_paths(7, 5, {(3, 2), (5, 4)}),
        subject="Combinatorics",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"How many triangles with three different integer side lengths have the perimeter $60$? Congruent "
        r"triangles count once.",
        answer="61",
        solution=r"Let $a < b < c$ with $a + b + c = 60$ and $c \le 29$. For given $c$ we have $a + b = 60 - c$, and $b$ "
        r"runs from $\lfloor (60 - c) / 2 \rfloor + 1$ to $c - 1$. For $c = 29, 28, \ldots, 21$ that gives "
        r"$13, 11, 10, 8, 7, 5, 4, 2, 1$ triangles, together $61$.",
        found=lambda: sum(a + b > 60 - a - b > b for a in range(1, 60) for b in range(a + 1, 60) if 60 - a - b > 0),
        subject="Geometry",
        split=TEST,
    ),
    AnswerProblem(
        problem="In how many positive integers of four digits are the digits, read from left to right, strictly "
        "increasing or strictly decreasing?",
        answer="336",
        solution=r"Increasing digits are a choice of four of the digits $1$ to $9$: $\binom{9}{4} = 126$. Decreasing "
        r"digits are a choice of four of all ten digits: $\binom{10}{4} = 210$. Together $336$.",
        found=lambda: sum(
            list(str(n)) in (sorted(set(str(n))), sorted(set(str(n)), reverse=True)) for n in range(1000, 10_000)
        ),
        subject="Combinatorics",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"The sum $\frac{1}{1 \cdot 3} + \frac{1}{2 \cdot 4} + \frac{1}{3 \cdot 5} + \cdots + \frac{1}{20 \cdot "
        r"22}$ is $\frac{m}{n}$, where $m$ and $n$ are positive integers without a common divisor greater than $1$. "
        r"Find $m + n$.",
        answer="787",
        solution=r"As $\frac{1}{k(k + 2)} = \frac{1}{2} \left( \frac{1}{k} - \frac{1}{k + 2} \right)$, the sum is "
        r"$\frac{1}{2} \left( 1 + \frac{1}{2} - \frac{1}{21} - \frac{1}{22} \right) = \frac{325}{462}$, and "
        r"$325 + 462 = 787$.",
        found=lambda: sum_of_parts(sum((Fraction(1, k * (k + 2)) for k in range(1, 21)), Fraction(0))),
        split=VALIDATION,
    ),
    AnswerProblem(
        problem=r"A fair coin is tossed until heads and tails have both come up at least twice. The expected number of "
        r"tosses is $\frac{m}{n}$, where $m$ and $n$ are positive integers without a common divisor greater than $1$. "
        r"Find $m + n$.",
        answer="13",
        solution=r"The first three tosses are always needed. After $n \ge 3$ tosses one more is needed if one side has "
        r"come up at most once, with the probability $2(n + 1) / 2^n$. So the expectation is "
        r"$3 + \sum_{n \ge 3} \frac{n + 1}{2^{n - 1}} = 3 + \frac{5}{2} = \frac{11}{2}$, and $11 + 2 = 13$.",
        found=lambda: sum_of_parts(tosses()),
        subject="Combinatorics",
        split=TRAIN,
    ),
    AnswerProblem(
        problem=r"In how many ways can three rooks that look the same be placed on a board with $4$ rows and $5$ columns "
        r"so that no two of them are in the same row or column and none of them is in a corner of the board?",
        answer="108",
        solution=r"Without the condition on corners: $\binom{4}{3} \cdot 5 \cdot 4 \cdot 3 = 240$. With a rook in a given "
        r"corner: $\binom{3}{2} \cdot 4 \cdot 3 = 36$. Rooks in two opposite corners: $2 \cdot 3 = 6$, for two pairs of "
        r"corners. Hence $240 - 4 \cdot 36 + 2 \cdot 6 = 108$.",
        found=rooks,
        subject="Combinatorics",
        split=TEST,
    ),
)
