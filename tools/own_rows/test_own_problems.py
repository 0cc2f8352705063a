"""Our own problems: right programs pass, wrong ones fail as their labels say, answers are what a search finds."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from sympy import Symbol, oo, pi, sqrt
from sympy.parsing.sympy_parser import implicit_multiplication, parse_expr, standard_transformations

import aime
import arithmetic
import olympiad
from build_own_rows import coding
from own_problems import SPLITS, AnswerProblem, Solved
from pettingllms_envs.sandbox import Limits, Report, Task, Verdict, run_many


ANSWERS = (*aime.PROBLEMS, *olympiad.PROBLEMS, *arithmetic.PROBLEMS)

# A golden program takes a tenth of this at most, and one that is too slow more than ten times as much.
SHORT = Limits(cpu=0.5, wall=30.0)


def ran(solved: Sequence[Solved], kind: str, limits: Limits | None = None, **settings: Any) -> list[Report]:
    """The reports of all golden or all wrong programs, in order."""
    tasks: list[Task] = []
    for each in solved:
        wrong = [one.program for one in each.problem.wrong]
        tasks += [each.task(program) for program in (each.problem.golden if kind == "golden" else wrong)]
    return run_many(tasks, limits=limits, **settings)


@pytest.fixture(scope="module")
def solved() -> list[Solved]:
    return [each for family in coding().values() for each in family]


@pytest.fixture(scope="module")
def wrong_reports(solved: list[Solved]) -> dict[tuple[str, str], Report]:
    names = [(each.problem.title, wrong.why) for each in solved for wrong in each.problem.wrong]
    return dict(zip(names, ran(solved, "wrong", SHORT, isolation="per_solution"), strict=True))


def golden_failures(solved: list[Solved], reports: list[Report]) -> list[tuple[str, int, Verdict]]:
    names = [(each.problem.title, place) for each in solved for place in range(len(each.problem.golden))]
    return [(*name, report.verdict) for name, report in zip(names, reports, strict=True) if not report.passed]


def test_every_golden_program_passes_all_tests_in_a_fraction_of_the_time(solved: list[Solved]) -> None:
    reports = ran(solved, "golden", SHORT, isolation="per_solution")
    assert golden_failures(solved, reports) == []
    assert all(len(report.results) >= 12 for report in reports)


def test_what_a_test_expects_is_what_two_programs_give(solved: list[Solved]) -> None:
    # One that is too slow counts: it has passed all tests up to the first that it does not finish.
    for each in solved:
        slow = [wrong for wrong in each.problem.wrong if wrong.verdict == Verdict.TIMEOUT]
        assert len(set(each.problem.golden)) + len(slow) >= 2, each.problem.title


@pytest.mark.slow
def test_every_wrong_program_fails_and_first_as_its_label_says(
    solved: list[Solved], wrong_reports: dict[tuple[str, str], Report]
) -> None:
    labels = {(each.problem.title, wrong.why): wrong.verdict for each in solved for wrong in each.problem.wrong}
    assert {name: report.verdict for name, report in wrong_reports.items()} == labels
    counts = Counter(labels.values())
    assert counts[Verdict.TIMEOUT] >= 12
    assert counts[Verdict.RUNTIME_ERROR] >= 8
    assert counts[Verdict.WRONG] >= 90


@pytest.mark.slow
def test_the_public_tests_of_every_problem_let_a_wrong_program_pass(
    solved: list[Solved], wrong_reports: dict[tuple[str, str], Report]
) -> None:
    public = {each.problem.title: each.num_public for each in solved}
    passing = Counter(
        title
        for (title, _), report in wrong_reports.items()
        if all(result.verdict == Verdict.PASSED for result in report.results[: public[title]])
    )
    assert set(passing) == set(public)
    assert passing.total() > 0.6 * len(wrong_reports)


@pytest.mark.slow
def test_programs_are_judged_alike_with_a_process_for_each_test_and_the_limits_of_a_row(solved: list[Solved]) -> None:
    limits = Limits(cpu=2.0, memory=512_000_000)
    assert golden_failures(solved, ran(solved, "golden", limits)) == []
    labels = [wrong.verdict for each in solved for wrong in each.problem.wrong]
    assert [report.verdict for report in ran(solved, "wrong", limits)] == labels


def test_a_coding_problem_has_two_public_and_ten_or_more_private_tests_no_two_alike(solved: list[Solved]) -> None:
    for each in solved:
        inputs = list(map(repr, each.inputs))
        assert each.num_public == 2, each.problem.title
        assert 10 <= len(inputs) - 2 <= 25, each.problem.title
        assert len(set(inputs)) == len(inputs), each.problem.title
        assert 3 <= len(each.problem.wrong) <= 4, each.problem.title
        assert len(set(map(repr, each.outputs))) > 1, each.problem.title


def test_the_families_have_problems_of_every_level_and_split(solved: list[Solved]) -> None:
    for family, least in (("stdin", 24), ("calls", 16)):
        ours = [each.problem for each in solved if each.problem.family == family]
        assert len(ours) >= least
        assert {problem.level for problem in ours} == {1, 2, 3}
        assert min(Counter(problem.split for problem in ours)[split] for split in SPLITS) >= 3
    for problems, least in ((aime.PROBLEMS, 24), (olympiad.PROBLEMS, 20), (arithmetic.PROBLEMS, 40)):
        assert len(problems) >= least
        assert min(Counter(problem.split for problem in problems)[split] for split in SPLITS) >= 4
    assert {problem.level for problem in arithmetic.PROBLEMS} == {1, 2, 3, 4, 5}


def test_every_kind_of_call_is_there(solved: list[Solved]) -> None:
    calls = [each for each in solved if each.problem.fn_name is not None]
    assert {each.problem.method for each in calls} == {False, True}
    outputs = {type(output) for each in calls for output in each.outputs}
    assert {bool, int, float, str, list, dict, type(None)} <= outputs
    inputs = {type(value) for each in calls for arguments in each.inputs for value in arguments}
    assert {int, str, list, dict} <= inputs
    lists = [value for each in calls for arguments in each.inputs for value in arguments if isinstance(value, list)]
    nested = {type(item) for value in lists for item in value}
    assert {int, float, list} <= nested


def test_numbers_and_titles_of_coding_problems_are_their_own(solved: list[Solved]) -> None:
    for values in ([each.problem.number for each in solved], [each.problem.title for each in solved]):
        assert len(set(values)) == len(values)


@cache
def parsed(latex: str, names: tuple[str, ...]) -> Any:
    """An expression in the LaTeX that our answers use."""
    plain = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", latex)
    plain = re.sub(r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)", plain).replace(r"\pi", "pi").replace(r"\infty", "oo")
    plain = plain.replace("{", "(").replace("}", ")").replace("^", "**")
    known = {**{name: Symbol(name) for name in names}, "sqrt": sqrt, "pi": pi, "oo": oo}
    return parse_expr(plain, local_dict=known, transformations=(*standard_transformations, implicit_multiplication))


def value(latex: str, **variables: Any) -> Any:
    return parsed(latex, tuple(variables)).subs({Symbol(name): number for name, number in variables.items()})


def holds(equation: str, **variables: Any) -> bool:
    left, right = equation.split("=")
    return bool(value(left, **variables) == value(right, **variables))


def contains(union: str, number: Fraction) -> bool:
    """Whether a number is in an interval, or in one of several."""
    for part in union.split(r"\cup"):
        opening, low, high, closing = re.fullmatch(r"\s*([\[(])(.*),(.*)([\])])\s*", part).groups()  # type: ignore[union-attr]
        low, high = value(low), value(high)
        above = low < number or (opening == "[" and low == number)
        below = number < high or (closing == "]" and number == high)
        if above and below:
            return True
    return False


def written(found: Any) -> str:
    """What was found, as an answer says it."""
    if isinstance(found, list):
        return ",".join(map(written, found))
    if isinstance(found, tuple):
        return f"({','.join(map(written, found))})"
    if isinstance(found, Fraction) and found.denominator > 1:
        return rf"\frac{{{found.numerator}}}{{{found.denominator}}}"
    return str(found)


def agrees(problem: AnswerProblem, found: Any) -> bool:
    """Whether an answer is what the problem's program found, by whichever means its kind allows."""
    kind, answer = getattr(problem, "kind", ""), problem.answer
    if kind == "Interval":
        assert {belongs for _, belongs in found} == {False, True}
        return all(contains(answer, number) == belongs for number, belongs in found)
    if kind == "Equation":
        assert {belongs for _, belongs in found} == {False, True}
        return all(holds(answer, **point) == belongs for point, belongs in found)
    if isinstance(found, list) and isinstance(found[0], tuple) and isinstance(found[0][0], dict):
        return all(value(answer, **variables) == number for variables, number in found)
    if isinstance(found, float):
        error = getattr(problem, "error", None)
        return math.isclose(value(answer), found, rel_tol=1e-6, abs_tol=float(error or 0) / 2)
    if isinstance(found, Fraction) and "." in answer:
        return Fraction(answer) == found
    return written(found) == answer


@pytest.mark.parametrize("problem", ANSWERS, ids=lambda problem: problem.problem[:40])
def test_every_answer_is_what_a_search_finds(problem: AnswerProblem) -> None:
    assert agrees(problem, problem.found())


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("(-2,4)", "Interval"),
        ("[-2,3)", "Interval"),
        ("2 x+y=8", "Equation"),
        (r"\frac{n(n+1)(n+3)}{6}", "Expression"),
    ],
)
def test_an_answer_that_is_off_does_not_agree(answer: str, kind: str) -> None:
    closest = {"Interval": "(-2,3)", "Equation": "2 x+y=9", "Expression": r"\frac{n(n+1)(n+2)}{6}"}[kind]
    (problem,) = [each for each in olympiad.PROBLEMS if each.answer == closest]
    changed = type(problem)(
        problem=problem.problem, answer=answer, found=problem.found, split=problem.split, kind=kind
    )
    assert not agrees(changed, problem.found())


def test_answers_of_aime_are_integers_from_0_to_999_that_a_blind_guess_seldom_hits() -> None:
    answers = [problem.answer for problem in aime.PROBLEMS]
    assert all(re.fullmatch("0|[1-9][0-9]{0,2}", answer) for answer in answers)
    assert not {"0", "1", "2", "10", "42", "100"} & set(answers)
    assert max(Counter(answers).values()) == 1


def test_every_answer_type_of_olympiad_bench_is_there_with_units_errors_and_several_answers() -> None:
    kinds = Counter(problem.kind for problem in olympiad.PROBLEMS)
    assert set(kinds) == {"Numerical", "Expression", "Equation", "Tuple", "Interval"}
    assert {problem.kind for problem in olympiad.PROBLEMS if problem.multiple} >= {"Numerical", "Expression", "Tuple"}
    assert sum(problem.unit is not None for problem in olympiad.PROBLEMS) >= 3
    assert any(problem.error for problem in olympiad.PROBLEMS)


@pytest.mark.parametrize("problem", ANSWERS, ids=lambda problem: problem.problem[:40])
def test_no_statement_contains_its_answer(problem: AnswerProblem) -> None:
    stated = re.findall(r"\d+(?:\.\d+)?|[a-z]+", problem.problem)
    assert problem.answer not in stated
    if not problem.answer.isdigit():
        assert problem.answer.replace(" ", "") not in problem.problem.replace(" ", "")


def test_worked_solutions_come_to_the_answer() -> None:
    for problem in aime.PROBLEMS:
        last = re.split(r"\. (?=[A-Z])", problem.solution)[-1]
        assert problem.answer in re.findall(r"\d+", last), problem.problem
    assert all(problem.solution for problem in olympiad.PROBLEMS)
