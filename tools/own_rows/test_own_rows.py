"""The files that the package ships: the problems of tools/own_rows in the columns of the Hub, and copies of none."""

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import build_own_rows
from build_own_rows import ANSWERS, FOLDER, build, coding, plain, read, sums, there
from data_files import public
from own_layouts import ANSWERS as ANSWER_LAYOUTS
from own_layouts import CODE, files, other_files, packed
from own_problems import SPLITS
from pettingllms_envs.datasets import load
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.datasets.overlap import Statement, overlaps
from pettingllms_envs.datasets.problems import MathProblem
from pettingllms_envs.environments.coding.blobs import unpacked
from profiles import PROFILES
from questions import PARAGRAPHS, QUESTIONS


LAYOUTS = (*CODE, *ANSWER_LAYOUTS)
PUBLIC_TEXTS = {
    "aime24.jsonl": "problem",
    "aime25.jsonl": "problem",
    "olympiadbench_math_en.jsonl": "problem",
    "math_train_sample.jsonl": "problem",
    "apps_sample.jsonl": "question",
    "codecontests_sample.jsonl": "description",
    "livecodebench_sample.jsonl": "question_content",
    "leetcode_sample.jsonl": "question",
}


@pytest.fixture(scope="module")
def made() -> dict[str, list[dict[str, Any]]]:
    return files(coding(), ANSWERS)


def loaded(layout: str, split: str | None = None) -> list[Any]:
    """The problems that the package's own loader makes of a file."""
    found = load(f"own:{layout}", split=split, on_bad="raise")
    assert not found.left_out
    return list(found.problems)


def statements(split: str) -> list[Statement]:
    """Those of one split in all layouts."""
    return [Statement(layout, each.id, each.statement) for layout in LAYOUTS for each in loaded(layout, split)]


def test_the_shipped_files_are_what_the_problems_give(made: dict[str, list[dict[str, Any]]]) -> None:
    assert {path.relative_to(FOLDER).as_posix() for path in there()} == set(made)
    for name, rows in made.items():
        assert plain(read(FOLDER / name)) == plain(rows), f"{name}: run python tools/own_rows/build_own_rows.py"
    for folder in {path.parent for path in there()}:
        assert (folder / "SHA256SUMS").read_text("ascii") == sums(folder)


def test_building_anew_writes_only_what_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build_own_rows, "FOLDER", tmp_path)
    monkeypatch.setattr(build_own_rows, "coding", lambda: {"stdin": [], "calls": []})
    assert set(build()) == {
        f"mathematics/data/{layout}__{split}.jsonl" for layout in ANSWER_LAYOUTS for split in SPLITS
    } | {*other_files()}
    folder = tmp_path / "mathematics" / "data"
    spoiled = folder / "math-ai__aime25__test.jsonl"
    right = spoiled.read_bytes()
    spoiled.write_bytes(right.replace(b'"answer"', b'"other"'))
    (folder / "gone__test.jsonl").write_text("{}\n")
    assert build() == [f"mathematics/data/{spoiled.name}"]
    assert spoiled.read_bytes() == right
    assert not (folder / "gone__test.jsonl").exists()
    digests = dict(line.split()[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert digests[spoiled.name] == hashlib.sha256(right).hexdigest()


def test_packed_tests_are_the_same_whatever_compressed_them() -> None:
    row = {"private_test_cases": packed('[{"input": "1"}]')}
    other = {"private_test_cases": '[{"input": "1"}]'}
    assert unpacked(row["private_test_cases"]) == other["private_test_cases"]
    assert plain([row]) == plain([other])


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in there()) < 1_000_000


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_loads_whole_in_three_splits(layout: str) -> None:
    if layout.startswith("opencompass"):  # its other half is in the other configuration
        least = {"train": 6, "validation": 2, "test": 4}
    else:
        least = {"train": 12, "validation": 4, "test": 7}
    for split, number in least.items():
        problems = loaded(layout, split)
        assert len(problems) >= number, split
        assert len({problem.id for problem in problems}) == len(problems)


def test_the_loader_reads_from_the_code_rows_what_we_meant() -> None:
    solved = {each.problem.title: each for family in coding().values() for each in family}
    by_number = {each.problem.number: each for each in solved.values()}
    seen: dict[str, set[int]] = defaultdict(set)
    for layout in CODE:
        for problem in loaded(layout):
            assert isinstance(problem, CodeProblem)
            number = int("".join(filter(str.isdigit, problem.id)))
            ours = by_number[number]
            meant = sorted(ours.tests, key=repr)
            assert sorted(problem.tests, key=repr) == meant, problem.id
            assert set(map(repr, problem.tests[: problem.num_public])) == set(map(repr, ours.tests[:2])), problem.id
            assert problem.fn_name == ours.problem.fn_name
            assert problem.level == ours.problem.level
            assert problem.tolerance == ours.problem.tolerance
            if layout != "livecodebench__code_generation_lite":
                assert problem.solutions == ours.problem.golden
            if layout == "deepmind__code_contests":
                assert problem.wrong == tuple(wrong.program for wrong in ours.problem.wrong)
                assert problem.cpu == 2.0
            seen[layout].add(number)
    assert seen["codeparrot__apps"] == seen["livecodebench__code_generation_lite"] == set(by_number)


def test_the_loader_reads_from_the_math_rows_what_we_meant() -> None:
    for layout, (_, family, wanted) in ANSWER_LAYOUTS.items():
        meant = {
            problem.problem: problem for number, problem in enumerate(ANSWERS[family], 1) if wanted(number, problem)
        }
        found = loaded(layout)
        assert {problem.statement for problem in found} == set(meant), layout
        for problem in found:
            assert isinstance(problem, MathProblem)
            ours = meant[problem.statement]
            assert problem.answer == ours.answer
            if family == "olympiad":
                assert problem.multiple == ours.multiple
                assert problem.unit == (ours.unit or "").strip("$")
                assert problem.tolerance == ((float(ours.error),) if ours.error else ())


def kinds(value: object) -> object:
    """What a value is made of: the keys of an object with what they hold, what a list holds, or a type."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    if isinstance(value, list):
        return [kinds(value[0])] if value else []
    return type(value).__name__


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_have_the_columns_and_types_of_the_hub(layout: str, made: dict[str, list[dict[str, Any]]]) -> None:
    real = [path for path in public("hub_layout").glob("*.jsonl") if path.stem.startswith(layout)]
    assert real
    known: dict[str, list[object]] = defaultdict(list)
    for path in real:
        for row in read(path):
            for column, value in row.items():
                known[column].append(kinds(value))
    for name, rows in made.items():
        if not name.startswith(f"{layout}__"):
            continue
        for row in rows:
            assert set(row) == set(known), name
            for column, value in row.items():
                assert kinds(value) in known[column] or LOOSE.get(column) == kinds(value), (name, column)


LOOSE = {
    "incorrect_solutions": {"language": ["int"], "solution": ["str"]},
    "generated_tests": {"input": ["str"], "output": ["str"]},
    "error": "str",
}
"""What the sample of real rows happens not to have."""


def test_no_problem_is_in_two_splits_nor_has_a_near_copy_in_another() -> None:
    train, validation, test = map(statements, ("train", "validation", "test"))
    assert list(overlaps(train, [*validation, *test])) == []
    assert list(overlaps(validation, test)) == []
    assert any(each.exact for each in overlaps(train, train))  # the same problem in several layouts


def test_no_statement_is_or_resembles_one_of_the_real_data_sets() -> None:
    real = []
    for name, column in PUBLIC_TEXTS.items():
        rows = public(name).read_text("utf-8").splitlines()
        texts = [json.loads(row).get(column) for row in rows]
        assert all(texts), (name, column)
        real += [Statement(name, str(number), text) for number, text in enumerate(texts)]
    ours = [each for split in SPLITS for each in statements(split)]
    assert [(each.train.id, each.test.id, each.similarity) for each in overlaps(ours, real)] == []


def test_every_question_is_answered_by_the_paragraphs_that_it_names_and_not_by_itself() -> None:
    problems = {each.statement: each for each in loaded("hotpotqa__hotpot_qa__distractor")}
    assert problems.keys() == {each.question for each in QUESTIONS}
    for each in QUESTIONS:
        problem = problems[each.question]
        assert len(problem.passages) == 10
        assert {problem.passages[index].title for index in problem.support} == set(each.titles)
        said = " ".join(sentence for title in each.titles for sentence in (title, *PARAGRAPHS[title]))
        assert each.answer in ("yes", "no") or each.answer in said, each.question
        assert each.kind == "comparison" or each.answer not in each.question


def test_questions_of_different_splits_are_no_copies() -> None:
    train, *others = (
        [Statement(split, each.id, each.statement) for each in loaded("hotpotqa__hotpot_qa__distractor", split)]
        for split in SPLITS
    )
    assert [*overlaps(train, others[0]), *overlaps(train, others[1]), *overlaps(*others)] == []


def test_each_hidden_profile_has_a_fact_for_each_member_and_is_for_tests_only() -> None:
    assert {each.subject for each in loaded("YuxuanLi1225__HiddenBench", "test")} == {each.name for each in PROFILES}
    assert {len(each.hidden) for each in PROFILES} == {3, 4}
    assert all(each.answer in each.options for each in PROFILES)
