"""Copies of test problems in a training set: planted ones are found, and different problems are not."""

import json
import random
from pathlib import Path

import pytest

from pettingllms_envs import cli
from pettingllms_envs.datasets.overlap import Overlap, Statement, overlaps


# Of our own making. To each a copy such as another data set would have it: spelled, worded or framed otherwise.
PAIRS = [
    (
        "A gardener plants $12$ rows of tulips with $\\frac{3}{4}$ as many bulbs in each row as in the row"
        " before, starting with $256$ bulbs. How many bulbs are in the fourth row?",
        "A gardener plants 12 rows of tulips with \\dfrac34 as many bulbs in each row as in the row "
        "before, starting with 256 bulbs. How many bulbs are in the fourth row",
    ),
    (
        "Let $a$ and $b$ be positive integers with $a^2 - b^2 = 77$ and $a < 30$. Find the sum of all "
        "possible values of $a + b$.",
        "Suppose that $a$ and $b$ are positive integers such that $a^{2}-b^{2}=77$ and $a<30$. Determine "
        "the sum of all possible values of $a+b$.",
    ),
    (
        "A ferry crosses a river of width $900$ metres at a speed of $5$ metres per second while the "
        "current carries it downstream at $3$ metres per second. How far downstream does it land?",
        "A river is $900$ metres wide. A ferry crosses it at a speed of $5$ metres per second while the "
        "current carries it downstream at $3$ metres per second. How many metres downstream does the "
        "ferry land?",
    ),
    (
        "Each of the $40$ lockers in a corridor is painted red, green or blue so that no two neighbouring"
        " lockers have the same colour. Let $N$ be the number of ways to do so. Find the remainder when "
        "$N$ is divided by $1000$.",
        "Each of the 40 lockers in a corridor is painted red, green or blue so that no two neighbouring "
        "lockers have the same colour. Find the number of ways to do so. The answer is of the form $m "
        "\\cdot 2^{n}$ with odd m; give $m + n$.",
    ),
    (
        "In triangle $PQR$ the bisector of angle $P$ meets $QR$ at $S$, with $PQ = 15$, $PR = 21$ and $QR"
        " = 24$. What is the length of $QS$?",
        "What is the length of $QS$ if, in triangle $PQR$, the bisector of angle $P$ meets $QR$ at $S$, "
        "and $PQ=15$, $PR=21$, $QR=24$?",
    ),
    (
        "You are given a string of brackets. In one move you may turn one bracket around. Print the least"
        " number of moves after which the string is balanced, or -1 if it never can be. The string has at"
        " most 100000 characters.",
        "You are given a string that consists of brackets. In one operation you may turn one bracket "
        "around. Output the least number of operations after which the string is balanced, or -1 if it "
        "never can be. (The string has at most $10^5$ characters.)",
    ),
]

# Different problems in much the same words.
DIFFERENT = [
    (
        "Find the remainder when $7^{100}$ is divided by $1000$.",
        "Find the remainder when $3^{2024}$ is divided by $1000$.",
    ),
    (
        "How many positive integers less than $500$ are divisible by $6$ and by $15$?",
        "How many positive integers less than $800$ have exactly three divisors?",
    ),
    (
        "Let $ABCD$ be a square of side $4$. Find the area of the circle in it.",
        "Let $ABCD$ be a square. Find angle $ABD$.",
    ),
    (
        "The first line contains a single integer $n$, the number of cities. Print the length of the shortest tour.",
        "The first line contains a single integer $n$, the number of coins. Print the least total of the "
        "heavier pile.",
    ),
]

WORDS = (
    *("cat", "river", "seven", "sum", "tower", "blue", "number", "line", "cost", "light", "path"),
    *("of", "the", "a", "and", "to", "is", "in", "with", "from", "each", "by"),
)


def crowd(size: int, seed: int) -> list[Statement]:
    """Statements that have nothing to do with each other but their words."""
    chance = random.Random(seed)
    return [Statement("crowd", str(each), " ".join(chance.choices(WORDS, k=40))) for each in range(size)]


def planted() -> list[Overlap]:
    tests = [*crowd(300, 1), *(Statement("test", str(each), pair[0]) for each, pair in enumerate(PAIRS))]
    tests += [Statement("test", f"x{each}", pair[0]) for each, pair in enumerate(DIFFERENT)]
    train = [*crowd(2000, 2), *(Statement("train", str(each), pair[1]) for each, pair in enumerate(PAIRS))]
    train += [Statement("train", f"x{each}", pair[1]) for each, pair in enumerate(DIFFERENT)]
    return list(overlaps(train, tests))


def test_every_planted_copy_is_found_and_nothing_else():
    found = {(each.train.id, each.test.id) for each in planted()}
    assert found == {(str(each), str(each)) for each in range(len(PAIRS))}


def test_a_copy_that_is_only_spelled_otherwise_is_exact():
    exact = [each.test.id for each in planted() if each.exact]
    assert exact == ["0"]
    assert all(0.5 <= each.similarity <= 1 for each in planted())


def test_the_same_problem_in_two_test_sets_is_reported_for_both():
    tests = [Statement("one", "1", PAIRS[0][0]), Statement("other", "2", PAIRS[0][0])]
    found = list(overlaps([Statement("train", "3", PAIRS[0][1])], tests))
    assert [(each.test.data, each.exact) for each in found] == [("one", True), ("other", True)]


def test_short_statements_are_compared_as_a_whole_only():
    tests = [Statement("test", "1", "What is $2 + 3$?"), Statement("test", "2", "What is $2 + 4$?")]
    found = list(overlaps([Statement("train", "3", "what is 2+3")], tests))
    assert [(each.test.id, each.exact) for each in found] == [("1", True)]


def test_words_that_all_test_statements_share_do_not_count():
    form = "Write a program that reads a number from standard input and prints it after {}."
    tests = [Statement("test", str(each), form.format(f"{each} days of rain over town {each}")) for each in range(30)]
    assert list(overlaps([Statement("train", "x", form.format("a long and windy night at sea"))], tests)) == []


def test_half_a_statement_is_found_under_words_that_all_test_statements_share():
    form = "Write a program that reads two numbers from standard input and prints one to standard output, where {}."
    half = "a heron stands on the third pole counted from the left bank of a slow canal"
    tests = [Statement("test", str(each), form.format(f"town {each} is {each} miles off")) for each in range(30)]
    whole = (
        f"{half} and every hour it hops as many poles to the right as hours have gone by since it last caught a fish"
    )
    tests.append(Statement("test", "heron", form.format(whole)))
    (copy,) = overlaps([Statement("train", "x", form.format(half))], tests)
    assert (copy.test.id, copy.similarity > 0.8) == ("heron", True)


@pytest.mark.parametrize("threshold", [0, 1.5, float("nan")])
def test_a_threshold_is_a_share(threshold):
    with pytest.raises(ValueError, match="threshold is"):
        list(overlaps([], [], threshold))


def write(path: Path, statements: list[str]) -> str:
    path.write_text("".join(json.dumps({"problem": each, "answer": "1"}) + "\n" for each in statements))
    return f"math={path}"


def test_the_command_shows_both_texts_and_ends_with_status_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    tests = write(tmp_path / "test.jsonl", [PAIRS[0][0], PAIRS[1][0], DIFFERENT[0][0]])
    train = write(tmp_path / "train.jsonl", [PAIRS[0][1], PAIRS[1][1], DIFFERENT[0][1]])
    assert cli.main(["data", "check", train, "--against", tests]) == 1
    said = capsys.readouterr().out
    assert "2 of 3 test problems are in the training set, 1 of them word for word." in said
    assert "the same words" in said
    assert "Suppose that" in said
    assert "Let $a$" in said
    assert cli.main(["data", "check", train, "--against", tests, "--quiet"]) == 1
    assert "Suppose that" not in capsys.readouterr().out


def test_the_command_ends_with_status_0_where_nothing_is_shared(tmp_path, capsys):
    tests = write(tmp_path / "test.jsonl", [pair[0] for pair in DIFFERENT])
    train = write(tmp_path / "train.jsonl", [pair[1] for pair in DIFFERENT])
    assert cli.main(["data", "check", train, "--against", tests]) == 0
    assert capsys.readouterr().out == "0 of 4 test problems are in the training set, 0 of them word for word.\n"


def test_the_command_counts_the_rows_that_it_cannot_compare(tmp_path, capsys):
    tests = write(tmp_path / "test.jsonl", [pair[0] for pair in DIFFERENT])
    train = write(tmp_path / "train.jsonl", [DIFFERENT[0][1], DIFFERENT[1][1], DIFFERENT[1][1]])
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write(json.dumps({"problem": DIFFERENT[2][0], "answer": None}) + "\n")  # a copy that cannot be read
    assert cli.main(["data", "check", train, "--against", tests]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "0 of 4 test problems are in the training set, 0 of them word for word."
    assert "1 training row not compared: malformed." in others
