"""Files that are no run, or a damaged one, are refused in words wherever they are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from made_rows import row
from pettingllms_envs import cli
from pettingllms_envs.episodes import files, schema


Damage = Callable[[dict[str, Any]], object]

DAMAGES: list[tuple[Damage, str]] = [
    (lambda row: row.pop("error"), "it has no error"),
    (lambda row: row.update(steps=None), "steps is not a list"),
    (lambda row: row.update(success="yes"), "success is not true or false or null"),
    (lambda row: row.update(outcome=7), "outcome is not an object or null"),
    (lambda row: row.update(returns={"planner_0": "3"}), "returns.planner_0 is not a whole number or a number"),
    (lambda row: row.update(error={"kind": "refused"}), "it has no error.message"),
    (lambda row: row.update(instance={}), "it has no instance.index"),
    (lambda row: row["instance"].update(index="x"), "instance.index is not a whole number"),
    (lambda row: row["instance"].update(options=None), "instance.options is not an object"),
    (lambda row: row.update(steps=[7]), r"steps\[0\] is not an object"),
    (lambda row: row["steps"][0].pop("agent"), r"it has no steps\[0\].agent"),
    (lambda row: row["steps"][0].update(prompt={}), r"it has no steps\[0\].prompt.text"),
    (
        lambda row: row["steps"][0].update(tokens={"prompt": "3", "completion": 1}),
        r"tokens.prompt is not a whole numb",
    ),
    (lambda row: row["steps"][0].update(parts={"team": 1.0}), r"steps\[0\].parts.team is not an object"),
    (lambda row: row["steps"][0].update(parts={"team": {"x": None}}), r"steps\[0\].parts.team.x is not a whole numb"),
]


@pytest.mark.parametrize(("damage", "fault"), DAMAGES)
def test_a_damaged_row_is_refused_with_its_line_and_what_is_wrong(tmp_path: Path, damage: Damage, fault: str) -> None:
    damaged = row(1, False)
    damage(damaged)
    file = tmp_path / "episodes.jsonl"
    file.write_text(json.dumps(row(0, True)) + "\n" + json.dumps(damaged) + "\n")
    with pytest.raises(ValueError, match=rf"episodes.jsonl, line 2 is no episode \(.*{fault}.*\); expected rows"):
        files.read(tmp_path)


def test_whole_rows_are_none_the_worse_for_fields_that_nobody_knows() -> None:
    assert schema.of_row({**row(0, True), "colour": "red"}) is None
    assert schema.of_row(row(0, None, error="unreachable")) is None


def test_what_a_training_does_not_know_is_null_in_its_rows() -> None:
    whole = row(0, True)
    whole.update(turns=None, outcome=None, state=None)
    whole["steps"][0].update(seed=None, reasoning=None, model=None, tools=None, messages=None)
    assert schema.of_row(whole) is None
    whole["steps"][0].update(messages=[{"role": "user", "content": [{"type": "text", "text": None}]}])
    assert schema.of_row(whole) == "it has no steps[0].messages[0].content[0].text"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "it is no object"),
        ("\n", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"format": 1}', "it has no kind"),
        ('{"format": 1, "kind": "bench", "config": 3}', "config is not an object"),
        ('{"format": 0, "kind": "bench"}', "has the format 0; expected 1."),
    ],
)
@pytest.mark.parametrize(
    "command", ["replay a", "view a", "compare b a", "crossplay b a", "bench sudoku --agents null"]
)
def test_a_folder_whose_run_json_is_none_is_refused_by_every_command(
    command: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        cli.main(["bench", "sudoku", "--agents", "null", "--limit", "1", "--output", name])
    Path("a/run.json").write_text(text)
    capsys.readouterr()
    line = command.split()
    status = cli.main([*line, "--limit", "1", "--output", "a"] if line[0] == "bench" else line)
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: a/run.json ")
    assert message in err
