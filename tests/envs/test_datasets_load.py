"""`load`: every kind of file, every split, and every row accounted for."""

import gzip
import json
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from hub_rows import AIME, APPS, CODE, DAPO, MATH, ROWS
from pettingllms_envs import cli
from pettingllms_envs.datasets import LAYOUTS, Bad, load, normalization, sources
from pettingllms_envs.datasets.columns import find_layout
from pettingllms_envs.datasets.files import read_rows
from pettingllms_envs.datasets.hub_datasets import KNOWN, by_file_name
from pettingllms_envs.datasets.preparing import prepare
from pettingllms_envs.datasets.sampling_order import problems
from pettingllms_envs.datasets.sources import digest, find_source, shares


Writes = Callable[..., Path]


@pytest.fixture
def lines(tmp_path: Path) -> Writes:
    """Write rows as JSON lines; a text is a line as it is."""

    def write(name: str, *rows: dict[str, Any] | str) -> Path:
        body = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
        return path

    return write


def sums(number: int) -> list[dict[str, Any]]:
    return [{"problem": f"What is {each} + {each}?", "answer": f"{2 * each}"} for each in range(number)]


def ids(path: Path | str, **arguments: Any) -> list[str]:
    return [problem.id for problem in load(path, **arguments).problems]


# ------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("layout", ROWS)
@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".json", ".parquet"])
def test_a_row_is_the_same_problem_from_every_kind_of_file(layout, ending, tmp_path, lines):
    path = tmp_path / f"rows{ending}"
    if ending == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist([ROWS[layout]]), path)
    elif ending == ".json":
        path.write_text(json.dumps([ROWS[layout]]))
    else:
        path = lines(path.name, ROWS[layout])
    (problem,) = load(path, layout=layout).problems
    assert problem == LAYOUTS[layout].read(ROWS[layout])


def test_lines_that_are_no_rows_are_reported_by_their_place_and_the_others_read(lines):
    path = lines("my.jsonl", MATH, "{", "", "[1]", "[" * 100_000, {**MATH, "problem": 7}, {**MATH, "problem": "?"})
    loaded = load(path, layout="math")
    assert len(loaded.problems) == 2
    assert [(bad.file, bad.index) for bad in loaded.bad] == [("my.jsonl", index) for index in (1, 2, 3, 4)]
    reasons = [bad.reason.partition(" (")[0] for bad in loaded.bad]
    assert reasons[:3] == [
        "the line is no JSON",
        "the line is a list; expected an object",
        "the line is nested too deeply",
    ]
    assert loaded.bad[3] == Bad("my.jsonl", 4, "'problem' is a int; expected text")


def test_an_integer_that_nothing_can_compare_makes_a_malformed_row(lines):
    long = json.dumps({**CODE, "outputs": [10, 0]}).replace("[10, 0]", f"[10, {'9' * 5000}]")
    loaded = load(lines("my.jsonl", CODE, long), layout="code")
    assert loaded.bad == (Bad("my.jsonl", 1, "the line has an integer of more than 4300 digits"),)


def test_the_first_malformed_row_is_an_error_if_asked(lines):
    path = lines("my.jsonl", MATH, {**MATH, "problem": ""}, "{")
    with pytest.raises(ValueError, match=r"row 1 of my\.jsonl: 'problem' is blank.*Fix the row, or skip"):
        load(path, layout="math", on_bad="raise")


def test_a_file_of_nothing_but_malformed_rows_is_an_error(lines):
    with pytest.raises(ValueError, match=r"no problem in the layout 'math'; its row 0: 'problem' is blank"):
        load(lines("my.jsonl", {"problem": "", "answer": "1"}), layout="math")


def test_columns_of_another_layout_are_an_error_that_names_both(lines):
    with pytest.raises(ValueError, match=r"has the columns 'problem', .* and lacks question, input_output; expected"):
        load(lines("my.jsonl", MATH), layout="apps")


def test_the_first_row_may_be_the_malformed_one(lines):
    path = lines("my.jsonl", {"problem": "What?"}, {"answer": "7"}, MATH)
    loaded = load(path, layout="math")
    assert [problem.statement for problem in loaded.problems] == [MATH["problem"]]
    assert [(bad.index, bad.reason) for bad in loaded.bad] == [
        (0, "'answer' is missing or blank, and 'solution' has no box; expected an answer"),
        (1, "'problem' is missing or null; expected text"),
    ]


def test_no_more_than_twenty_rows_of_another_layout_are_looked_at(lines):
    path = lines("my.jsonl", *[{"question": f"{number}?"} for number in range(20)], *sums(20))
    with pytest.raises(ValueError, match="has the columns 'question' and lacks problem, answer or solution"):
        load(path, layout="math")
    assert len(load(lines("my.jsonl", *[{"question": "?"}] * 19, *sums(20)), layout="math").bad) == 19


def test_a_row_that_repeats_is_left_out_and_one_of_another_rows_id_is_malformed(lines):
    twice = lines("my.jsonl", CODE, CODE, {**CODE, "id": "a", "question": "?"}, {**CODE, "id": "a"})
    loaded = load(twice, layout="code")
    assert [problem.statement for problem in loaded.problems] == [CODE["question"], "?"]
    assert loaded.left_out == {"an earlier row is the same": 1}
    assert loaded.bad == (Bad("my.jsonl", 3, "its id 'a' is an earlier row's; expected one of its own"),)


def test_problems_that_differ_in_signs_alone_have_ids_of_their_own_and_copies_do_not(lines):
    asked = ["(8-3)-2", "8-(3-2)", "$8 - \\left(3-2\\right)$", "5!", "5", "8 - (3 - 2)"]
    answers = ["3", "7", "7", "120", "5", "9"]
    rows = [{"problem": f"What is {each}?", "answer": answer} for each, answer in zip(asked, answers, strict=True)]
    loaded = load(lines("my.jsonl", *rows, rows[1]), layout="math")
    assert [problem.answer for problem in loaded.problems] == ["3", "7", "120", "5"]
    first, second, factorial, five = (problem.id for problem in loaded.problems)
    assert (first, factorial) == (normalization.name("What is 8-3-2?"), normalization.name("What is 5?"))
    assert (second[:13], five[:13]) == (f"{first}-", f"{factorial}-")
    assert [bad.index for bad in loaded.bad] == [2, 5]  # another spelling, and another answer
    assert loaded.left_out == {"an earlier row has its statement": 1}


@pytest.mark.parametrize("cut", [10, 60])
def test_a_file_that_is_cut_off_is_an_error(cut, lines):
    path = lines("my.jsonl.gz", *sums(100))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(ValueError, match=r"my\.jsonl\.gz is damaged"):
        load(path, layout="math")


def test_a_table_of_texts_is_read_with_its_names_and_its_malformed_rows(tmp_path):
    (tmp_path / "my.csv").write_text('problem,answer\n"What is 1 + 1,\nor ""two""?",2\nWhat?\n3,4,5\nWhy?,6\n')
    loaded = load(tmp_path / "my.csv", layout="math")
    assert [(each.statement, each.answer) for each in loaded.problems] == [  # type: ignore[attr-defined]
        ('What is 1 + 1,\nor "two"?', "2"),
        ("Why?", "6"),
    ]
    assert [(bad.index, bad.reason) for bad in loaded.bad] == [
        (1, "the row has fewer fields than the header"),
        (2, "the row has more fields than the header"),
    ]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("my.parquet", b"PAR1"),
        ("my.json", b"{}"),
        ("my.json", b"["),
        ("my.csv", b"problem,answer\n\xff,1\n"),
        ("my.csv", b'problem,answer\n"'),
        ("my.jsonl.gz", b"{}"),
    ],
)
def test_a_file_that_is_not_what_its_ending_says_is_an_error(name, body, tmp_path):
    (tmp_path / name).write_bytes(body)
    with pytest.raises(ValueError, match=r"is damaged|is a dict|is no JSON"):
        load(tmp_path / name, layout="math")


def test_a_limit_stops_the_reading(lines):
    path = lines("my.jsonl", *sums(3), "{")
    loaded = load(path, layout="math", limit=2)
    assert (len(loaded.problems), loaded.bad) == (2, ())


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_rows_are_read_one_at_a_time(ending, tmp_path, lines):
    rows = [{"problem": f"{number}" * 2000, "answer": "1"} for number in range(4000)]  # some 30 MB
    path = tmp_path / f"rows{ending}"
    if ending == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=4000)
    else:
        lines(path.name, *rows)
    del rows
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_rows(path)) == 4000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000  # bytes


# ------------------------------------------------------------------------------------------------------------- names


def test_a_file_named_after_a_set_of_the_hub_needs_no_layout(lines):
    path = lines("codeparrot__apps__train.jsonl", APPS)
    loaded = load(path)
    assert (loaded.layout, ids(path)) == ("apps", ["7"])


def test_a_file_of_a_configuration_is_told_from_that_of_another():
    one, other = (by_file_name(f"opencompass__AIME2025__AIME2025-{exam}") for exam in ("I", "II"))
    assert one is not None
    assert other is not None
    assert (one[0].config, other[0].config) == ("AIME2025-I", "AIME2025-II")


def test_the_year_of_an_exam_that_its_rows_lack_is_that_of_the_set(lines):
    (problem,) = load(lines("MathArena__aime_2025.jsonl", {"problem_idx": 3, "problem": "?", "answer": 16})).problems
    assert (problem.id, problem.year) == ("2025-3", 2025)


@pytest.mark.parametrize(
    ("data", "arguments", "error"),
    [
        ("none.jsonl", {}, "no data 'none.jsonl'; expected a file"),
        ("no such thing", {}, "no data 'no such thing'"),
        ("{tmp}/my.jsonl", {}, "does not say whose columns it has"),
        ("{tmp}/my.jsonl", {"layout": "maths"}, "no layout 'maths'; expected one of"),
        ("{tmp}/my.jsonl", {"layout": "math", "split": "dev"}, "No split has the name 'dev'"),
        ("{tmp}/my.jsonl", {"layout": "math", "revision": "main"}, "expected one for a set of the Hub only"),
        ("{tmp}/my.jsonl", {"layout": "math", "on_bad": "ignore"}, "on_bad is 'ignore'"),
        ("{tmp}/my.jsonl", {"layout": "math", "limit": 0}, "limit is 0"),
        ("{tmp}", {}, "has no manifest.json"),
        ("{tmp}/my.txt", {"layout": "math"}, "ends otherwise; expected .jsonl"),
        ("own:chess", {}, "no rows of our own for 'own:chess'"),
        ("codeparrot/apps", {}, "codeparrot/apps has no revision; expected a commit"),
        ("codeparrot/apps@main", {}, "codeparrot/apps has the revision 'main'"),
        ("a/b@" + "0" * 40, {"revision": "1" * 40}, "expected one revision"),
        ("a/b@" + "0" * 40, {}, "the columns of a/b are unknown"),
    ],
)
def test_what_cannot_be_loaded_is_answered_with_what_can(data, arguments, error, tmp_path, lines):
    lines("my.jsonl", MATH)
    lines("my.txt", MATH)
    with pytest.raises(ValueError, match=re.escape(error)):
        load(data.replace("{tmp}", str(tmp_path)), **arguments)


# ------------------------------------------------------------------------------------------------------------ splits


@pytest.mark.parametrize(
    ("there", "of_set", "benchmark", "offer"),
    [
        (["train", "validation", "test"], ["train", "validation", "test"], False, ["train", "validation", "test"]),
        (["train", "test"], ["train", "test"], False, ["train", "validation", "test"]),
        (["train"], ["train"], False, ["train", "validation", "test"]),
        (["train"], ["train", "test"], False, ["train", "validation"]),  # its test is elsewhere
        (["test"], ["train", "test"], False, ["test"]),
        (["test"], ["test"], True, ["test"]),
        (["train"], ["train"], True, ["test"]),  # a benchmark that the Hub calls train
    ],
)
def test_a_set_offers_its_own_splits_and_makes_what_it_lacks_of_train(there, of_set, benchmark, offer):
    assert list(shares(there, of_set, benchmark=benchmark)) == offer


def test_the_splits_of_a_file_share_no_problem_and_lose_none(lines):
    path = lines("my.jsonl", *sums(300))
    parts = [ids(path, layout="math", split=split) for split in ("train", "validation", "test")]
    assert sum(map(len, parts)) == len(set().union(*parts)) == 300
    assert 210 < len(parts[0]) < 270
    assert 10 < len(parts[1]) < 50
    assert 10 < len(parts[2]) < 50


def test_validation_of_a_set_with_a_test_of_its_own_is_a_tenth_of_train(lines):
    rows = [{**APPS, "question": f"Print the number {number}.", "problem_id": number} for number in range(300)]
    path = lines("codeparrot__apps__train.jsonl", *rows)
    train, validation = ids(path, split="train"), ids(path, split="validation")
    assert len(train) + len(validation) == 300
    assert 10 < len(validation) < 50
    with pytest.raises(ValueError, match="has no 'test' split; expected 'train' or 'validation'"):
        load(path, split="test")


@pytest.mark.parametrize(
    "copy",
    [
        "what is  $\\dfrac{1}{2}+\\left(3\\cdot x\\right)$",
        "What is $\\frac{1}{2} + (3 \\times x)$?",
        "What is\n$\\tfrac12 + (3·x)$ ?",
    ],
)
def test_copies_of_a_statement_are_in_one_split(copy):
    assert normalization.form(copy) == normalization.form("What is $\\frac{1}{2} + \\left(3 \\cdot x\\right)$?")


def test_statements_that_differ_in_a_number_or_an_operator_are_no_copies():
    assert (
        len({normalization.form(f"What is $1 {sign} {number}$?") for sign in "+-*/^=<" for number in (1, 2, 12)}) == 21
    )


def test_a_benchmark_has_no_training_split(lines):
    with pytest.raises(ValueError, match="has no 'train' split; expected 'test'"):
        load(lines("HuggingFaceH4__aime_2024.jsonl", AIME), split="train")


def test_rows_that_repeat_are_counted_and_those_with_another_answer_apart(lines):
    other = {**DAPO, "reward_model": {"ground_truth": "3"}}
    loaded = load(lines("BytedTsinghua-SIA__DAPO-Math-17k.jsonl", DAPO, DAPO, other, DAPO))
    assert [problem.answer for problem in loaded.problems] == ["2"]
    assert loaded.left_out == {
        "an earlier row has its statement": 2,
        "an earlier row has its statement and another answer": 1,
    }


def test_unjudged_problems_are_counted_by_reason_unless_they_are_asked_for(lines):
    path = lines("my.jsonl", CODE, {**CODE, "id": "any", "question": "Return any valid answer."})
    loaded = load(path, layout="code")
    assert [problem.id for problem in loaded.problems] == ["twice"]
    assert loaded.left_out == {"it accepts any of several answers": 1}
    assert ids(path, layout="code", include_unjudged=True) == ["twice", "any"]


# ---------------------------------------------------------------------------------------------------- rows of our own


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Writes) -> Path:
    """A package with rows of its own in the columns of APPS and of AIME, in the folders of two environments."""
    for split, number in (("train", 1), ("validation", 2), ("test", 3)):
        lines(f"codeparrot__apps__{split}.jsonl", {**APPS, "problem_id": number})
    lines("opencompass__AIME2025__AIME2025-I__test.jsonl", {"question": "?", "answer": "16"})
    lines("livecodebench__code_generation_lite__test6.jsonl", ROWS["live_code_bench"])
    folder = tmp_path / "environments"
    for name, files in (("coding", ("codeparrot*", "livecodebench*")), ("mathematics", ("opencompass*",))):
        (folder / name / "data").mkdir(parents=True)
        for file in (file for pattern in files for file in tmp_path.glob(pattern)):
            file.rename(folder / name / "data" / file.name)
    monkeypatch.setattr(sources, "ENVIRONMENTS", folder)
    return folder / "coding" / "data"


@pytest.mark.parametrize("name", ["own:apps", "own:codeparrot/apps", "own:codeparrot__apps"])
def test_rows_of_our_own_are_found_by_layout_and_by_the_id_whose_columns_they_have(own, name):
    assert [ids(name, split=split) for split in ("train", "validation", "test")] == [["1"], ["2"], ["3"]]
    assert load(name).source == "own:codeparrot__apps"


def test_rows_of_our_own_in_a_configuration_and_in_a_numbered_test(own):
    assert load("own:aime", split="test").problems[0].answer == "16"  # type: ignore[attr-defined]
    assert ids("own:live_code_bench", split="test") == ["9001"]


def test_a_row_of_our_own_that_was_changed_is_refused(own):
    path = own / "codeparrot__apps__test.jsonl"
    (own / "SHA256SUMS").write_text(f"{digest(path)}  {path.name}\n")
    assert ids("own:apps", split="test") == ["3"]
    path.write_bytes(path.read_bytes().replace(b"20", b"21"))
    with pytest.raises(ValueError, match="was changed; expected the SHA-256"):
        load("own:apps", split="test")


# ---------------------------------------------------------------------------------------------------------- prepared


def test_a_prepared_folder_has_the_problems_of_its_source_in_the_same_splits(tmp_path, lines):
    path = lines("my.jsonl", *sums(100), "{", {**MATH, "answer": "", "solution": ""}, sums(1)[0])
    manifest = prepare(find_source(path, layout="math"), tmp_path / "copy")
    for split in ("train", "validation", "test"):
        assert load(tmp_path / "copy", split=split).problems == load(path, layout="math", split=split).problems
        assert manifest.splits[split].bad[0]["index"] == 100
    assert load(tmp_path / "copy").bad == ()
    assert sum(part.rows for part in manifest.splits.values()) == 100
    repeats = [part.left_out.get("an earlier row has its statement", 0) for part in manifest.splits.values()]
    assert sum(repeats) == 1


def test_a_prepared_folder_that_was_changed_is_refused(tmp_path, lines):
    prepare(find_source(lines("my.jsonl", *sums(9)), layout="math"), tmp_path / "copy", splits=("train",))
    path = tmp_path / "copy" / "train.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"What", b"when")))
    with pytest.raises(ValueError, match=r"train\.jsonl\.gz was changed"):
        load(tmp_path / "copy", split="train")
    with pytest.raises(ValueError, match="has no 'test' split; expected 'train'"):
        load(tmp_path / "copy", split="test")


@pytest.mark.parametrize("manifest", ["{", "[]", "{}", '{"format": 2}', '{"format": 1, "splits": {"train": {}}}'])
def test_a_manifest_that_is_none_is_refused(manifest, tmp_path):
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(ValueError, match=r"Prepare the data anew"):
        load(tmp_path)


def test_nothing_is_prepared_over_what_exists_and_nothing_is_left_of_what_fails(tmp_path, lines):
    source = find_source(lines("my.jsonl", *sums(9)), layout="math")
    prepare(source, tmp_path / "copy")
    with pytest.raises(ValueError, match="copy exists; expected a folder to be made"):
        prepare(source, tmp_path / "copy")
    with pytest.raises(ValueError, match="has no 'tests' split"):
        prepare(source, tmp_path / "other", splits=("train", "tests"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "my.jsonl"]


def test_what_another_run_is_writing_is_left_alone(tmp_path, lines):
    running = tmp_path / f".copy.{os.getppid()}.unfinished"
    running.mkdir()
    prepare(find_source(lines("my.jsonl", *sums(9)), layout="math"), tmp_path / "copy")
    assert running.is_dir()


# ------------------------------------------------------------------------------------------------------- the commands


def test_the_command_lists_every_known_set_and_every_layout(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["data", "list"]) == 0
    said = capsys.readouterr().out
    assert all(known.id in said for known in KNOWN)
    assert all(f"\n{layout}" in said for layout in LAYOUTS)


def test_the_command_shows_what_was_read_and_what_was_not(capsys, monkeypatch, lines):
    monkeypatch.setenv("COLUMNS", "200")
    path = lines("my.jsonl", CODE, "{", {**CODE, "id": "any", "question": "Return any valid answer."})
    assert cli.main(["data", "show", f"code={path}"]) == 0
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert f"{path}, layout code, all rows" in said
    for line in ("problems 1", "malformed rows 1", "left out: it accepts any of several answers 1"):
        assert line in [" ".join(each.split()) for each in said]
    assert any(line.startswith("row 1 of my.jsonl: the line is no JSON") for line in said)
    assert "--- twice, level 2 ---" in said


def test_the_command_prepares_as_much_as_asked(capsys, tmp_path, lines):
    path = lines("my.jsonl", *sums(50))
    arguments = ["data", "prepare", f"math={path}#train", "--limit", "5", "--output", str(tmp_path / "copy")]
    assert cli.main(arguments) == 0
    captured = capsys.readouterr()
    assert "train: 5 problems (0 unjudged), 0 malformed rows, 0 left out" in captured.out
    assert "5 problems" in captured.err  # the bar
    assert len(load(tmp_path / "copy").problems) == 5


@pytest.mark.parametrize(
    ("data", "folder"), [("math={tmp}/my.jsonl", "my"), ("own:codeparrot/apps", "apps"), ("own:apps", "own__apps")]
)
def test_a_prepared_folder_is_named_after_its_data(data, folder, own, lines, monkeypatch, tmp_path):
    lines("my.jsonl", *sums(5))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert cli.main(["data", "prepare", data.replace("{tmp}", str(tmp_path))]) == 0
    assert [path.name for path in (tmp_path / "here").iterdir()] == [folder]
    assert cli.main(["data", "prepare", data.replace("{tmp}", str(tmp_path))]) == 2


@pytest.mark.parametrize(("limit", "told"), [("1", "1 problem (0 unjudged)"), ("2", "2 problems (0 unjudged)")])
def test_one_problem_is_no_problems(limit, told, capsys, tmp_path, lines):
    path = lines("my.jsonl", *sums(50), "{")
    arguments = ["data", "prepare", f"math={path}#train", "--limit", limit, "--output", str(tmp_path / "copy")]
    assert cli.main(arguments) == 0
    captured = capsys.readouterr()
    assert f"  train: {told}, " in captured.out
    assert told.partition(" (")[0] in captured.err


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("test", "test"),
        ("mine__test", "test"),
        ("mine_test", "test"),
        ("mine-dev", "validation"),
        ("mine.valid", "validation"),
        ("my_train", "train"),
        ("latest", "train"),
        ("contest", "train"),
        ("mine_test_of_old", "train"),
    ],
)
def test_the_end_of_a_files_name_says_its_split(name, split, lines):
    path = lines(f"{name}.jsonl", MATH)
    assert set(find_source(path, layout="math").files) == {split}


def test_every_known_set_has_a_layout():
    assert [find_layout(known.layout).name for known in KNOWN] == [known.layout for known in KNOWN]


def test_whoever_plays_data_is_told_of_its_malformed_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "mine__test.jsonl"
    path.write_text('{"problem": "2 + 2?", "answer": "4"}\n{"problem": "", "answer": "1"}\n{"problem": "3?"}\n')
    assert [problem.answer for problem in problems(str(path), "test", "math")] == ["4"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: malformed rows are not played, 2 in all; the first is row 1 of mine__test.jsonl: 'problem' is blank;"
        " expected a statement. datasets.load() lists them."
    ]
