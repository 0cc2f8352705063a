"""Rows of public data sets: counts, golden programs, copies across sets."""

import csv
import json
import random
from typing import Any

import pytest

from data_files import PUBLIC, needs_public
from pettingllms_envs import sandbox
from pettingllms_envs.datasets import MathProblem, judging, load
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.datasets.overlap import Statement, overlaps


HUB = PUBLIC / "hub_layout"

pytestmark = needs_public

ANY, NO_TESTS, REPEAT = (
    "it accepts any of several answers",
    "it has no tests",
    "an earlier row has its statement",
)


def code(name: str, **arguments: Any) -> list[CodeProblem]:
    problems = load(PUBLIC / name, include_unjudged=True, **arguments).problems
    return [problem for problem in problems if isinstance(problem, CodeProblem)]


def answered(name: str, **arguments: Any) -> list[MathProblem]:
    problems = load(PUBLIC / name, **arguments).problems
    return [problem for problem in problems if isinstance(problem, MathProblem)]


def posed(problems: list[MathProblem], data: str) -> list[Statement]:
    return [Statement(data, problem.id, problem.statement) for problem in problems]


@pytest.mark.parametrize(
    ("name", "layout", "problems", "left_out"),
    [
        ("BytedTsinghua-SIA__DAPO-Math-17k", "dapo", 10, {REPEAT: 20}),
        ("Hothan__OlympiadBench__OE_TO_maths_en_COMP", "olympiad_bench", 39, {}),
        ("HuggingFaceH4__aime_2024", "aime", 30, {}),
        ("MathArena__aime_2025", "aime", 30, {}),
        ("Maxwell-Jia__AIME_2024", "aime", 30, {}),
        ("POLARIS-Project__Polaris-Dataset-53K", "polaris", 40, {}),
        ("codeparrot__apps__test", "apps", 9, {ANY: 1, NO_TESTS: 1}),
        ("codeparrot__apps__train", "apps", 4, {ANY: 1}),
        ("deepmind__code_contests__test", "code_contests", 20, {ANY: 19, "it is interactive": 1}),
        ("livecodebench__code_generation_lite__test6", "live_code_bench", 29, {}),
        ("math-ai__aime24", "aime", 30, {}),
        ("math-ai__aime25", "aime", 30, {}),
        ("opencompass__AIME2025__AIME2025-I", "aime", 15, {}),
        ("opencompass__AIME2025__AIME2025-II", "aime", 15, {}),
    ],
)
def test_every_file_in_a_layout_of_the_hub_loads_by_its_name(name, layout, problems, left_out):
    path = HUB / f"{name}.jsonl"
    loaded = load(path)
    assert (loaded.layout, len(loaded.problems), loaded.bad, loaded.left_out) == (layout, problems, (), left_out)
    with path.open(encoding="utf-8") as file:
        assert problems + sum(left_out.values()) == sum(1 for _ in file)


def test_there_is_no_other_file_in_a_layout_of_the_hub():
    assert len(list(HUB.iterdir())) == 14


def test_the_copies_of_aime_have_the_same_answers():
    for year, names in (
        ("24", ("HuggingFaceH4__aime_2024", "Maxwell-Jia__AIME_2024", "math-ai__aime24")),
        ("25", ("MathArena__aime_2025", "math-ai__aime25")),
    ):
        golden = [problem.answer for problem in answered(f"aime{year}.jsonl", layout="aime")]
        for name in names:
            problems = answered(f"hub_layout/{name}.jsonl")
            assert [problem.answer for problem in problems] == golden
            assert {problem.year for problem in problems} == {2000 + int(year)}
    halves = [answered(f"hub_layout/opencompass__AIME2025__AIME2025-{exam}.jsonl") for exam in ("I", "II")]
    assert [problem.answer for half in halves for problem in half] == golden


@pytest.mark.parametrize(
    ("name", "arguments", "passing"),
    [
        ("hub_layout/codeparrot__apps__train.jsonl", {}, 5),
        ("hub_layout/codeparrot__apps__test.jsonl", {}, 8),
        ("hub_layout/deepmind__code_contests__test.jsonl", {}, 19),
        ("apps_sample.jsonl", {"layout": "code"}, 7),
        ("leetcode_sample.jsonl", {"layout": "code"}, 28),
    ],
)
def test_golden_programs_pass_their_problems_tests(name, arguments, passing):
    solved = [problem for problem in code(name, **arguments) if problem.solutions]
    limits = sandbox.Limits(cpu=10, total=60)
    for problem in solved:
        settings = {
            "fn_name": problem.fn_name,
            "prelude": problem.prelude,
            "tolerance": problem.tolerance,
            "tolerance_kind": problem.tolerance_kind,
            "ignore_case": problem.ignore_case,
        }
        report = sandbox.run_tests(
            problem.solutions[0], problem.tests, limits=limits, isolation="per_solution", **settings
        )
        assert report.passed, (problem.id, report.verdict)
    assert len(solved) == passing


def test_the_tests_of_live_code_bench_judge_right_and_wrong_programs():
    with (PUBLIC / "livecodebench_sample.jsonl").open(encoding="utf-8") as file:
        rows = {row["question_id"]: row for row in map(json.loads, file)}
    judged = 0
    for problem in code("hub_layout/livecodebench__code_generation_lite__test6.jsonl"):
        for column, right in (("reference_solution", True), ("wrong_solution", False)):
            if program := rows.get(problem.id, {}).get(column):
                settings = {"fn_name": problem.fn_name, "prelude": problem.prelude}
                report = sandbox.run_tests(program, problem.tests, isolation="per_solution", **settings)
                assert report.passed == right, problem.id
                judged += 1
    assert judged == 14


def test_what_the_statement_says_about_judging_agrees_with_the_hints_of_the_sample():
    """A hint is set where a checker seems to be needed, also for decimal numbers, which a tolerance judges."""
    differing = {}
    with (PUBLIC / "codecontests_sample.jsonl").open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            said = bool(judging.unjudged(row["description"])) or judging.tolerance(row["description"]) is not None
            if said != row["needs_checker_hint"]:
                differing[row["id"]] = said
    # "You can print the lines in any order" has no hint; in the other, a rule says which of several is meant.
    assert differing == {"test/161": True, "sandboxfusion/16": False}


def test_exams_are_not_in_the_training_sample_nor_in_olympiad_bench():
    exams = [
        *posed(answered("aime24.jsonl", layout="aime"), "24"),
        *posed(answered("aime25.jsonl", layout="aime"), "25"),
    ]
    olympiad = posed(answered("olympiadbench_math_en.jsonl", layout="olympiad_bench"), "olympiad")
    train = posed(answered("math_train_sample.jsonl", layout="math"), "train")
    assert list(overlaps(train, exams)) == []
    assert list(overlaps(olympiad, exams)) == []
    assert list(overlaps(train, olympiad)) == []


def test_aime24_is_found_inside_aime_of_all_years(tmp_path):
    """gneubig/aime-1983-2024 contains it; here with OlympiadBench for the other years."""
    path = tmp_path / "gneubig__aime-1983-2024.csv"
    exam = answered("aime24.jsonl", layout="aime")
    others = answered("olympiadbench_math_en.jsonl", layout="olympiad_bench")
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["ID", "Year", "Problem Number", "Question", "Answer", "Part"])
        table.writerows([each.id, 2024, 1, each.statement, each.answer, "I"] for each in [*others, *exam])
    loaded = load(path)
    train = [Statement("all years", problem.id, problem.statement) for problem in loaded.problems]
    found = list(overlaps(train, posed(exam, "24")))
    assert [(copy.train.id, copy.test.id, copy.exact) for copy in found] == [(each.id, each.id, True) for each in exam]


def test_an_exam_is_found_among_training_problems_in_other_peoples_spelling():
    exam = posed(answered("aime25.jsonl", layout="aime"), "25")
    with (PUBLIC / "aime25.jsonl").open(encoding="utf-8") as file:
        others = [Statement("copy", row["id"], row["problem_alt"]) for row in map(json.loads, file)]
    crowd = posed(answered("olympiadbench_math_en.jsonl", layout="olympiad_bench"), "olympiad")
    found = [(copy.train.id, copy.test.id) for copy in overlaps([*crowd, *others], exam)]
    assert all(one == other for one, other in found)
    assert {row.id for row in others} - {one for one, _ in found} == {"2025-II-12"}  # told in other words


@pytest.mark.parametrize(("edited", "least"), [(0.05, 0.98), (0.1, 0.95), (0.2, 0.7)])
def test_copies_are_found_by_how_many_of_their_words_were_edited(edited, least):
    olympiad = posed(answered("olympiadbench_math_en.jsonl", layout="olympiad_bench"), "olympiad")
    words = [word for each in olympiad for word in each.text.split()]
    chance = random.Random(1)
    copies = []
    for each in olympiad:
        told = [chance.choice(words) if chance.random() < edited else word for word in each.text.split()]
        copies.append(Statement("copy", each.id, " ".join(told)))
    found = {each.test.id for each in overlaps(copies, olympiad) if each.train.id == each.test.id}
    assert len(found) >= least * len(olympiad)


def test_problems_that_two_training_sets_took_from_one_source_are_found():
    dapo = posed(answered("hub_layout/BytedTsinghua-SIA__DAPO-Math-17k.jsonl"), "dapo")
    polaris = posed(answered("hub_layout/POLARIS-Project__Polaris-Dataset-53K.jsonl"), "polaris")
    assert {copy.test.id for copy in overlaps(polaris, dapo) if copy.exact} == {each.id for each in dapo}
    train = posed(answered("math_train_sample.jsonl", layout="math"), "train")
    same = {each.text for each in train} & {each.text for each in polaris}
    assert {copy.test.text for copy in overlaps(train, polaris)} == same
    assert len(same) == 16
