"""What a study leaves on disk is read back as it was written, and a changed configuration is noticed."""

import json
from pathlib import Path

import pytest

from made_results import fidelity, outline, result, write
from pettingllms_envs.research.studies.results import (
    Cell,
    CellResult,
    Fidelity,
    changed,
    digest_of,
    label,
    read,
    read_all,
    read_outline,
)


def test_results_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    run = result(
        "ours", 1, "0110", setting={"learning_rate": 0.001}, curve={"tokens": [0.0, 1000.0], "success": [0, 1]}
    )
    tuning = result("ours", 7, "01", phase="tuning", setting={"learning_rate": 0.001, "credit": {"loo": {"a": 1}}})
    write(tmp_path, run, tuning, fidelity("ours"))
    assert read(tmp_path / "evaluation/grid/ours/1.json", CellResult) == run
    assert list(read_all(tmp_path, "tuning", CellResult)) == [tuning]
    (measured,) = read_all(tmp_path, "fidelity", Fidelity)
    assert (measured.correlation, measured.ceiling) == (0.5, 0.875)
    assert read_outline(tmp_path) == outline()


def test_an_outline_of_an_earlier_version_names_no_primary_comparison(tmp_path: Path) -> None:
    folder = write(tmp_path)
    content = json.loads((folder / "study.json").read_text())
    del content["primary"], content["primary_seeds"]
    (folder / "study.json").write_text(json.dumps(content))
    found = read_outline(folder)
    assert (found.num_comparisons, found.most_seeds, len(found.cells())) == (2, [1, 2], 6)


def test_a_result_of_a_run_is_small(tmp_path: Path) -> None:
    curve = {"tokens": [60_000.0 * i for i in range(6)], "success": [0.123] * 6}
    write(tmp_path, result("ours", 1, "01" * 250, curve=curve))
    assert (tmp_path / "evaluation/grid/ours/1.json").stat().st_size < 10_000


def test_a_setting_is_a_part_of_the_path_in_tuning_alone() -> None:
    setting = {"learning_rate": 1e-3, "credit": "loo"}
    cells = {phase: Cell(phase=phase, environment="grid", method="ours", seed=3, setting=setting) for phase in PHASES}
    assert cells["tuning"].name == "tuning/grid/ours/learning_rate=0.001,credit=loo/3"
    assert cells["evaluation"].name == "evaluation/grid/ours/3"
    assert cells["tuning"].path(Path("r")) == Path("r/tuning/grid/ours/learning_rate=0.001,credit=loo/3.json")


PHASES = ("tuning", "evaluation")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({}, "default"),
        ({"learning_rate": 0.001}, "learning_rate=0.001"),
        ({"credit": {"loo": {"value": "outcome"}}}, "credit=_loo_value_outcome_"),
        ({"a": "../x"}, "a=.._x"),
    ],
)
def test_a_setting_has_a_name_that_can_be_a_folder(setting: dict[str, object], expected: str) -> None:
    assert label(setting) == expected


def test_a_digest_depends_on_content_and_not_on_order() -> None:
    assert digest_of({"a": 1, "b": {"c": 2, "d": 3}}) == digest_of({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})


def test_where_two_configurations_differ_is_said() -> None:
    one = {"train": {"learning_rate": 0.001, "seed": 1}, "tokens": 5}
    other = {"train": {"learning_rate": 0.002, "seed": 1}, "tokens": 5, "prepare": "x"}
    assert changed(one, other) == ["train.learning_rate: 0.001 there, 0.002 here", 'prepare: null there, "x" here']
    assert changed(one, one) == []


def test_a_folder_without_a_study_and_a_damaged_file_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no study.json; expected a folder of results of `pettingllms study`"):
        read_outline(tmp_path)
    (tmp_path / "1.json").write_text('{"cell": 3')
    with pytest.raises(ValueError, match=r"1.json is no result of a study .* Remove it, and run the study again"):
        read(tmp_path / "1.json", CellResult)
