"""Problems to train on, from a word problem of two steps (level 1) to the end of school (level 5)."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, count, permutations, product
from typing import Any

from own_problems import TEST, TRAIN, VALIDATION, AnswerProblem


def posed(level: int, split: str, answer: str, problem: str, found: Callable[[], Any]) -> AnswerProblem:
    return AnswerProblem(problem=problem, answer=answer, found=found, level=level, split=split)


def compounded(amount: Fraction, percent: int, years: int) -> Fraction:
    for _ in range(years):
        amount += amount * percent / 100
    return amount


def of_dice(dice: int, holds: Callable[..., bool]) -> Fraction:
    rolls = list(product(range(1, 7), repeat=dice))
    return Fraction(sum(map(bool, (holds(*roll) for roll in rolls))), len(rolls))


def draws(colours: str, number: int, holds: Callable[[tuple[str, ...]], bool]) -> Fraction:
    ways = list(combinations(colours, number))
    return Fraction(sum(map(holds, ways)), len(ways))


def terms(first: int, following: Callable[[int], int], number: int) -> int:
    for _ in range(number - 1):
        first = following(first)
    return first


LEVEL_1 = (
    posed(
        1,
        TRAIN,
        "17",
        "A baker puts 6 rolls into each of 9 bags and then sells 37 of the rolls. How many rolls are left?",
        lambda: len([roll for bag in range(9) for roll in range(6)][37:]),
    ),
    posed(
        1,
        TRAIN,
        "28",
        "Tom has 12 marbles. Ida has 4 marbles more than Tom. How many marbles do they have together?",
        lambda: 12 + (12 + 4),
    ),
    posed(
        1,
        TRAIN,
        "8",
        "A ferry carries 25 people at a time. How many trips does it need to take 190 people across?",
        lambda: next(trips for trips in count() if 25 * trips >= 190),
    ),
    posed(
        1,
        TRAIN,
        "210",
        "A gardener plants 14 rows of 15 tulips. How many tulips is that?",
        lambda: sum(15 for _ in range(14)),
    ),
    posed(
        1,
        TRAIN,
        "9",
        "Lea buys 3 pens for 2 coins each and a book for 5 coins. She pays with a note of 20 coins. How "
        "many coins does she get back?",
        lambda: 20 - 3 * 2 - 5,
    ),
    posed(
        1,
        TRAIN,
        "105",
        "A film starts at 18:50 and ends at 20:35. How many minutes long is it?",
        lambda: (20 * 60 + 35) - (18 * 60 + 50),
    ),
    posed(
        1,
        TRAIN,
        "6",
        "Four friends share 30 nuts. Each of them gets the same number, as many as possible. One of "
        "them then gives away a single nut. How many nuts does that friend have?",
        lambda: 30 // 4 - 1,
    ),
    posed(
        1,
        TRAIN,
        "54",
        "Every day Noor reads 18 pages. Her book has 180 pages, and she has read for 7 days. How many "
        "pages has she still to read?",
        lambda: 180 - sum(18 for _ in range(7)),
    ),
    posed(
        1,
        VALIDATION,
        "31",
        "A jar holds 50 sweets. Eva takes 12 and Max takes 7. How many sweets are left in the jar?",
        lambda: 50 - 12 - 7,
    ),
    posed(
        1,
        VALIDATION,
        "96",
        "A box has 4 layers of 6 oranges. How many oranges are in 4 such boxes?",
        lambda: len(list(product(range(4), range(6), range(4)))),
    ),
    posed(
        1,
        TEST,
        "33",
        "A bus has 52 seats. At the first stop 27 people get on; at the second stop 11 get off and 17 "
        "get on. How many people are on the bus then?",
        lambda: 27 - 11 + 17,
    ),
    posed(
        1,
        TEST,
        "7",
        "A rope of 100 metres is cut into pieces of 13 metres. How many whole pieces are there?",
        lambda: len(range(13, 101, 13)),
    ),
)

LEVEL_2 = (
    posed(
        2,
        TRAIN,
        r"\frac{3}{8}",
        r"Write $\frac{1}{8} + \frac{1}{4}$ as a single fraction in lowest terms.",
        lambda: Fraction(1, 8) + Fraction(1, 4),
    ),
    posed(2, TRAIN, "72", "What is $15\\%$ of $480$?", lambda: Fraction(15 * 480, 100)),
    posed(2, TRAIN, "-11", r"Evaluate $4 - 3 \cdot (7 - 2)$.", lambda: 4 - sum(7 - 2 for _ in range(3))),
    posed(
        2,
        TRAIN,
        "12",
        "A number is doubled, and then 9 is added. The result is 33. What is the number?",
        lambda: next(x for x in range(99) if 2 * x + 9 == 33),
    ),
    posed(2, TRAIN, "0.35", r"Write $\frac{7}{20}$ as a decimal number.", lambda: Fraction(7, 20)),
    posed(
        2,
        TRAIN,
        "84",
        "The sides of a rectangle are 7 cm and 12 cm long. What is its area in square centimetres?",
        lambda: len(list(product(range(7), range(12)))),
    ),
    posed(
        2,
        TRAIN,
        "24",
        "What is the least common multiple of 6 and 8?",
        lambda: next(n for n in count(1) if n % 6 == n % 8 == 0),
    ),
    posed(
        2,
        VALIDATION,
        "17",
        "The mean of the four numbers 8, 11, 20 and $x$ is 14. What is $x$?",
        lambda: next(x for x in range(99) if 8 + 11 + 20 + x == 4 * 14),
    ),
    posed(
        2,
        VALIDATION,
        r"\frac{5}{6}",
        r"Add $\frac{1}{2}$ and $\frac{1}{3}$. Give the sum as one fraction.",
        lambda: Fraction(1, 2) + Fraction(1, 3),
    ),
    posed(
        2,
        TEST,
        "150",
        "A coat costs 200 coins. Its price is lowered by a quarter. What does it cost then?",
        lambda: 200 - Fraction(200, 4),
    ),
    posed(
        2,
        TEST,
        "18",
        "What is the greatest common divisor of 54 and 90?",
        lambda: max(n for n in range(1, 55) if 54 % n == 90 % n == 0),
    ),
)

LEVEL_3 = (
    posed(
        3,
        TRAIN,
        "5",
        r"Solve $3(x - 1) = x + 7$ for $x$.",
        lambda: next(x for x in range(-99, 99) if 3 * (x - 1) == x + 7),
    ),
    posed(
        3, TRAIN, "121", r"What is the sum of the first eleven odd positive integers?", lambda: sum(range(1, 22, 2))
    ),
    posed(
        3,
        TRAIN,
        r"\frac{5}{36}",
        "Ana and Bo roll an ordinary die each. What is the probability that their numbers add up to 8?",
        lambda: of_dice(2, lambda a, b: a + b == 8),
    ),
    posed(
        3, TRAIN, "x^2+2x-15", r"Expand $(x - 3)(x + 5)$.", lambda: [({"x": x}, (x - 3) * (x + 5)) for x in range(9)]
    ),
    posed(
        3,
        TRAIN,
        "441",
        "A sum of 400 coins earns $5\\%$ interest a year, and the interest is added at the end of each "
        "year. How many coins are there after two years?",
        lambda: compounded(Fraction(400), 5, 2),
    ),
    posed(
        3,
        TRAIN,
        "120",
        "In how many different orders can the letters of the word LEMON be written?",
        lambda: len(set(permutations("LEMON"))),
    ),
    posed(
        3,
        VALIDATION,
        "2.5",
        "A car covers 150 km at a steady speed of 60 km/h. How many hours does it take?",
        lambda: Fraction(150, 60),
    ),
    posed(
        3,
        VALIDATION,
        "36",
        "How many three-digit numbers can be written with the digits 1, 2, 3, 4 and 5 if no digit "
        "is used twice and the number is odd?",
        lambda: sum(c % 2 for a, b, c in permutations((1, 2, 3, 4, 5), 3)),
    ),
    posed(
        3,
        TEST,
        r"\frac{2}{5}",
        "A bag holds 4 red balls and 2 blue balls. Two balls are drawn at random without "
        "putting any back. What is the probability that both are red?",
        lambda: draws("rrrrbb", 2, lambda drawn: drawn == ("r", "r")),
    ),
    posed(
        3,
        TEST,
        "37",
        "A sequence begins with 1, and each further term is 4 more than the one before. What is its tenth term?",
        lambda: terms(1, lambda term: term + 4, 10),
    ),
)

LEVEL_4 = (
    posed(
        4,
        TRAIN,
        "(3,-1)",
        r"Find the ordered pair $(x, y)$ with $2x + 5y = 1$ and $x - y = 4$.",
        lambda: [(x, y) for x in range(-9, 10) for y in range(-9, 10) if 2 * x + 5 * y == 1 and x - y == 4],
    ),
    posed(
        4,
        TRAIN,
        "36",
        r"How many positive divisors does $1260$ have?",
        lambda: sum(1260 % d == 0 for d in range(1, 1261)),
    ),
    posed(
        4,
        TRAIN,
        r"5 \sqrt{3}",
        r"Write $\sqrt{75}$ in the form $a \sqrt{b}$ with positive integers $a$ and $b$, where "
        r"$b$ is as small as possible.",
        lambda: 75**0.5,
    ),
    posed(4, TRAIN, "6", "What is the last digit of $2^{2024}$?", lambda: int(str(2**2024)[-1])),
    posed(
        4,
        TRAIN,
        r"\frac{1}{3}",
        r"A geometric series begins $\frac{1}{4} + \frac{1}{16} + \frac{1}{64} + \cdots$ and "
        r"goes on for ever. What is its sum?",
        lambda: float(sum(Fraction(1, 4**k) for k in range(1, 60))),
    ),
    posed(
        4,
        VALIDATION,
        "20",
        "A polygon has $170$ diagonals. How many sides does it have?",
        lambda: next(n for n in count(3) if len(list(combinations(range(n), 2))) - n == 170),
    ),
    posed(
        4,
        VALIDATION,
        "-7",
        r"The equation $x^2 + bx + 10 = 0$ has the roots $2$ and $5$. What is $b$?",
        lambda: next(b for b in range(-50, 50) if 4 + 2 * b + 10 == 25 + 5 * b + 10 == 0),
    ),
    posed(
        4,
        TEST,
        "80",
        r"How many of the integers from $1$ to $200$ are divisible neither by $2$ nor by $5$?",
        lambda: sum(n % 2 != 0 and n % 5 != 0 for n in range(1, 201)),
    ),
    posed(
        4,
        TEST,
        r"24 \pi",
        "A cone has a circular base of radius 3 and a height of 8. What is its volume?",
        lambda: sum(math.pi * (3 * (k + 0.5) / 20_000) ** 2 * 8 / 20_000 for k in range(20_000)),
    ),
)

LEVEL_5 = (
    posed(
        5,
        TRAIN,
        "14",
        r"Find the smallest positive integer that leaves the remainder $2$ when divided by $3$, $4$ when "
        r"divided by $5$ and $0$ when divided by $7$.",
        lambda: next(n for n in count(1) if (n % 3, n % 5, n % 7) == (2, 4, 0)),
    ),
    posed(
        5,
        TRAIN,
        "35",
        r"How many ways are there to choose four positive integers, in order, whose sum is $8$?",
        lambda: sum(sum(four) == 8 for four in product(range(1, 9), repeat=4)),
    ),
    posed(
        5,
        TRAIN,
        r"\frac{7}{2}",
        r"The numbers $a$ and $b$ satisfy $a + b = 7$ and $ab = 2$. What is $\frac{1}{a} + "
        r"\frac{1}{b}$?",
        lambda: 1 / ((7 + 41**0.5) / 2) + 1 / ((7 - 41**0.5) / 2),
    ),
    posed(
        5,
        TRAIN,
        "n^2+n",
        r"Let $n$ be a positive integer. Find $2 + 4 + 6 + \cdots + 2n$ in terms of $n$.",
        lambda: [({"n": n}, sum(range(2, 2 * n + 1, 2))) for n in range(1, 9)],
    ),
    posed(
        5,
        TRAIN,
        "44",
        "Five guests leave their hats at a party. In how many ways can the five hats be handed back, one "
        "to each guest, so that nobody gets their own hat?",
        lambda: sum(all(hat != guest for guest, hat in enumerate(hats)) for hats in permutations(range(5))),
    ),
    posed(
        5,
        VALIDATION,
        r"\frac{19}{27}",
        r"A fair die with the numbers $1$ to $6$ is rolled three times. What is the "
        r"probability that at least one of the rolls is a multiple of $3$?",
        lambda: of_dice(3, lambda *rolls: any(roll % 3 == 0 for roll in rolls)),
    ),
    posed(
        5,
        VALIDATION,
        "60",
        r"The sides of a triangle are $8$, $15$ and $17$. What is its area?",
        lambda: round(math.sqrt(20 * (20 - 8) * (20 - 15) * (20 - 17))),
    ),
    posed(5, TEST, "81", r"What is the remainder when $3^{104}$ is divided by $200$?", lambda: 3**104 % 200),
    posed(
        5,
        TEST,
        r"\frac{15}{4}",
        r"Find the smallest value of $x^2 - 3x + 6$ for real $x$.",
        lambda: min(x * x - 3 * x + 6 for x in (Fraction(n, 10) for n in range(-100, 101))),
    ),
)

PROBLEMS = LEVEL_1 + LEVEL_2 + LEVEL_3 + LEVEL_4 + LEVEL_5
