"""The answers of AIME and OlympiadBench: right as they stand and rewritten, wrong when changed, all of them."""

import re

import pytest

from golds import Asked, rows
from pettingllms_envs.graders import numbers, shapes
from pettingllms_envs.graders.math import MathGrader, Verdict
from pettingllms_envs.graders.reading import read
from pettingllms_envs.graders.verdicts import Finding


def settings(row):
    """What the data set says of a gold; `error` is a text, such as "1e-1", and `unit` may be missing or NaN."""
    unit, error = row["unit"], row["error"]
    return {
        "multiple": bool(row["is_multiple_answer"]),
        "unit": unit if isinstance(unit, str) else "",
        "tolerance": tuple(float(each) for each in error.split(",")) if isinstance(error, str) else (),
    }


@pytest.fixture(scope="module")
def golds():
    found = [(row["final_answer"][0], settings(row)) for row in rows("olympiadbench_math_en.jsonl")]
    assert len(found) == 675
    return found


def rewritten(gold, multiple):
    """The same answer, in other words."""
    yield gold
    yield gold.replace("$", "")
    yield gold.replace(r"\frac", r"\dfrac")
    yield re.sub(r"(?<![\\a-zA-Z])([+\-=,(])", r" \1 ", gold)
    yield re.sub(r"\\left|\\right", "", gold)
    if r"\left" not in gold:
        yield gold.replace("(", r"\left(").replace(")", r"\right)")
    parts = [item.text for item in read(gold, multiple=multiple).items]
    yield ", ".join(reversed(parts))
    yield r" \text{ and } ".join(parts[1:] + parts[:1])


def test_every_gold_of_olympiadbench_is_right_as_it_stands_and_rewritten(golds):
    # What needs math-verify would be refused by this one: permuted parts are told apart by arithmetic, or by it.
    grader = MathGrader(Asked(Finding.DIFFERENT))
    wrong = [
        (gold, answer)
        for gold, given in golds
        for answer in rewritten(gold, given["multiple"])
        if not grader.grade(answer, gold, **given).correct
    ]
    assert wrong == []


def swapped(part):
    """A tuple with its first two numbers the other way round; None if that is the same one, or none."""
    shape = shapes.shape(part)
    if not isinstance(shape, shapes.Ordered) or shape.parts[0].text == shape.parts[1].text:
        return None
    texts = [each.text for each in shape.parts]
    return shape.opening + ",".join([texts[1], texts[0], *texts[2:]]) + shape.closing


def added(part):
    """The answer with one more: the first number of a tuple, or the right side of an equation. None for infinity."""
    if part[0] in "([":
        first = part[1:].split(",")[0]
        return None if "infty" in first else part.replace(first, f"{first}+1", 1)
    *names, value = part.split("=")
    number = numbers.read(value)
    if number is not None and number.value.denominator == 1:
        value = str(number.value + 1) if number.value < 10**50 else f"{value}+1"
    else:
        value = f"{value}+1"
    return "=".join([*names, value])


def other_sign(part):
    *names, value = part.split("=")
    if value[0] in "([" or numbers.read(value) is None or numbers.read(value).value == 0:
        return None
    return "=".join([*names, value[1:] if value[0] == "-" else f"-{value}"])


def changed(gold, multiple):
    """Answers that are wrong: one of several missing, one too many, one more, the other sign, a swapped tuple."""
    parts = [item.text for item in read(gold, multiple=multiple).items]
    if len(parts) > 1:
        yield ",".join(parts[:-1])
        yield ",".join(parts[1:])
    yield ",".join([*parts, "987654321"])
    for change in (added, other_sign, swapped):
        other = change(parts[0])
        if other is not None and other not in parts:  # (2,1) among (1,2),(2,1) would be there twice: wrong as well
            yield ",".join([other, *parts[1:]])


@pytest.mark.parametrize("part", range(4))
def test_every_gold_of_olympiadbench_is_wrong_when_changed(grader, golds, part):
    right = []
    num_changed = 0
    for gold, given in golds[part::4]:
        answers = list(dict.fromkeys(changed(gold, given["multiple"])))
        num_changed += len(answers)
        grades = grader.grade_many(answers, gold, **given)
        right += [(gold, answer) for answer, each in zip(answers, grades, strict=True) if each.correct]
    assert num_changed > 400
    assert right == []


def test_the_row_with_a_tolerance_accepts_what_is_within_it(golds):
    (gold, given) = next((gold, given) for gold, given in golds if given["tolerance"])
    grader = MathGrader(Asked())
    assert (gold, given["tolerance"], given["unit"]) == ("4.2", (0.1,), "%")
    for answer in ("4.2", "4.3", r"4.1\%", "4.25", "4.2 percent"):
        assert grader.grade(answer, gold, **given).correct
    for answer in ("4.4", "4", "420", r"42\%"):
        assert not grader.grade(answer, gold, **given).correct


def test_every_row_with_a_unit_accepts_it_repeated_and_left_out(golds):
    with_unit = [(gold, given) for gold, given in golds if given["unit"]]
    assert len(with_unit) == 8
    grader = MathGrader(Asked())
    for gold, given in with_unit:
        if given["multiple"]:
            continue
        bare = gold.replace("$", "")
        unit = given["unit"].replace("$", "")
        for answer in (bare, f"{bare}{unit}" if unit == "%" else rf"{bare} \text{{ {unit} }}".replace("^2 }", " }^2")):
            assert grader.grade(answer, gold, **given).correct, answer


def test_the_hubs_layout_of_olympiadbench_grades_itself():
    grader = MathGrader(Asked())
    for row in rows("hub_layout/Hothan__OlympiadBench__OE_TO_maths_en_COMP.jsonl"):
        for gold in row["final_answer"]:
            assert grader.grade(gold, gold, **settings(row)).correct


@pytest.mark.parametrize("name", ["aime24.jsonl", "aime25.jsonl"])
def test_every_answer_of_aime_is_an_integer_and_only_itself(name):
    grader = MathGrader(Asked())
    answers = [str(row["answer"]) for row in rows(name)]
    assert len(answers) == 30
    for answer in answers:
        number = int(re.sub(r"\D", "", answer))
        for text in (answer, f"{number:03d}", f"{number}.", f"{number}.0", f"${number}$", rf"\text{{{number}}}"):
            assert grader.grade(text, answer, kind="integer").verdict == Verdict.CORRECT
        for text in (f"n = {number}", rf"{number}^\circ", f"+{number}", f"m+n={number}", f"{number}={number}"):
            assert grader.grade(text, answer, kind="integer").verdict == Verdict.CORRECT
        for text in (
            f"{number + 1}",
            f"{number}.5",
            f"-{number}",
            f"{number}0",
            rf"{number}\%",
            f"{number + 1}={number}",
        ):
            assert grader.grade(text, answer, kind="integer").verdict in (Verdict.INCORRECT, Verdict.UNPARSED)


def test_the_answers_of_the_training_sample_grade_themselves():
    grader = MathGrader(Asked(Finding.DIFFERENT))
    answers = [str(row["answer"]) for row in rows("math_train_sample.jsonl")]
    assert len(answers) == 617
    assert [answer for answer in answers if not grader.grade(f"${answer}$", answer).correct] == []


def test_the_perturbations_are_what_they_say():
    assert added("7") == "8"
    assert added("x=2") == "x=3"
    assert added("(1,2)") == "(1+1,2)"
    assert added(r"(-\infty,2)") is None
    assert swapped("(1,2,3)") == "(2,1,3)"
    assert swapped("(2,2)") is None
    assert other_sign("x=-7") == "x=7"
    assert list(changed("1,3", True)) == ["1", "3", "1,3,987654321", "2,3", "-1,3"]
