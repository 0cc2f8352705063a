"""A damaged run.json, a path that is too long and a link to itself are one line in every command that reads runs."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs import cli
from pettingllms_envs.episodes import files
from pettingllms_envs.page import build


COMMANDS = (
    "view a --output page.html",
    "compare b a",
    "replay a",
    "audit a",
    "crossplay b a --output cells",
)
VALUES = (None, True, 2.5, "x", [1], {"a": None})
"""One of each type that JSON has."""
MORE = {"written": {"episodes": 2, "digest": "0" * 64}, "replay_of": {}, "a field that nobody knows": 1}
MORE_CONFIG = {
    "environments": {"": {"env": "plan_path_v0", "settings": {}}},
    "generated_tokens": None,
    "sampling": "tree",
    "num_generations": 1,
    "temperature": 1.0,
    "credit": {"name": "at_grpo"},
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded")
    for name in "ab":
        cli.main(["bench", "plan_path", "--agents", "oracle", "--limit", "1", "--output", str(path / name)])
    return path


@pytest.fixture
def here(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(recorded, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def headers(header: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The header with each of its fields, and each one level down, as another type."""
    for name, value in header.items():
        for other in VALUES:
            if type(other) is not type(value):
                yield f"{name}={other!r}", {**header, name: other}
        for inner, of_inner in value.items() if isinstance(value, dict) else ():
            for other in VALUES:
                if type(other) is not type(of_inner):
                    yield f"{name}.{inner}={other!r}", {**header, name: {**value, inner: other}}


def one_line(command: str, capsys: Any) -> str | None:
    """What is wrong with how a command ends, or nothing."""
    status = cli.main(command.split())
    err = capsys.readouterr().err
    if status == 2:
        return None if err.startswith("error: ") and err.count("\n") == 1 else err
    return None if status in (0, 1) else f"status {status}"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        *(pytest.param(each, "bench", marks=pytest.mark.slow) for each in COMMANDS),
        ("audit a", "rollouts"),
    ],
)
def test_a_field_of_another_type_is_one_line_or_makes_no_difference(
    here: Path, command: str, kind: str, capsys: Any
) -> None:
    file = here / "a" / "run.json"
    header = {**json.loads(file.read_text()), **MORE, "kind": kind, "data": {"name": "own:x", "note": "of ours"}}
    header["config"] |= MORE_CONFIG
    header |= {name: dict(list(header[name].items())[:1]) for name in ("versions", "machine")}  # one is like another
    found = {}
    for what, damaged in headers(copy.deepcopy(header)):
        file.write_text(json.dumps(damaged))
        shutil.rmtree("cells", ignore_errors=True)
        if wrong := one_line(command, capsys):
            found[what] = wrong
    assert found == {}


@pytest.mark.parametrize("path", ["a" * 5000, f"{'a' * 5000}.jsonl", "loop", "loop/a", "loop.jsonl", "of_links"])
def test_a_path_that_cannot_be_followed_is_one_line(here: Path, path: str, capsys: Any) -> None:
    for name in ("loop", "loop.jsonl"):
        Path(name).symlink_to(name)
    Path("of_links").mkdir()
    for name in (files.RUN, files.EPISODES):
        Path("of_links", name).symlink_to(name)
    reading = ["view {}", "compare {} b", "compare b N={}", "replay {}", "audit {}", "crossplay {} b", "report {}"]
    writing = ["compare a b --json {}/x", "audit a --json {}/x", "replay a --rescore {}", "new abc --to {}"]
    for command in reading if path == "of_links" else [*reading, *writing]:
        status = cli.main(command.format(path).split())
        err = capsys.readouterr().err
        assert (status, err.count("\n"), err[:7]) == (2, 1, "error: "), command


def test_records_with_fewer_and_with_unknown_fields_are_read(here: Path, capsys: Any) -> None:
    file = here / "a" / "run.json"
    header = json.loads(file.read_text())
    for name in ("data", "sandbox"):
        del header[name]
    header |= {"colour": [1]}
    header["config"] |= {"colour": {"a": 1}}
    file.write_text(json.dumps(header))
    for command in COMMANDS:
        assert cli.main(command.split()) == 0, command


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [("training", {"step": 1, "episodes": 1}, 0), ("training", {"step": 1, "before": 0}, 0), ("digest", 5, 2)],
)
def test_rows_with_fewer_fields_of_a_training_or_other_digests_are_no_traceback(
    here: Path, field: str, value: Any, status: int, capsys: Any
) -> None:
    file = here / "a" / files.EPISODES
    row = json.loads(file.read_text())
    row[field] = value
    if field == "training":
        row["digest"] = files.digest(row)
    file.write_text(files.write_line(row))
    assert cli.main(["audit", "a"]) == status
    assert capsys.readouterr().err.count("\n") == status // 2


@pytest.mark.parametrize(
    "more",
    [
        {"written": {"episodes": 1, "digest": "", "colour": 1}},
        {"config": {"agents": {"planner_0": {"policy": {}}}}},
    ],
)
def test_unknown_fields_of_a_training_are_read(here: Path, more: dict[str, Any], capsys: Any) -> None:
    file = here / "a" / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "kind": "rollouts", **more}))
    assert cli.main(["audit", "a"]) in (0, 1)
    assert "error" not in capsys.readouterr().err


def test_marks_in_a_record_stay_as_they_are(here: Path) -> None:
    file = here / "a" / "run.json"
    header = json.loads(file.read_text())
    marks = "@title@ @style@ @data@ @scripts@"
    header["data"] = {"name": "x", "note": marks}
    file.write_text(json.dumps(header))
    page = build(here / "a").read_text("utf-8")
    assert f"<title>plan_path_v0, {marks}: bench</title>" in page
    assert page.count("<script>") == build(here / "b").read_text("utf-8").count("<script>")
