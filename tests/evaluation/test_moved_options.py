"""Options that `bench` does not have: its error names the command that does the same, and that command does it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs import cli
from pettingllms_envs.commands import plug_ins


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("plan_path --agents null --blame 2 --limit 2", "blame plan_path --agents null --replies 2 --limit 2"),
        ("--blame=2 plan_path --agents null --limit 2", "blame --replies=2 plan_path --agents null --limit 2"),
        (
            "plan_path --blind planner --set view=image --agents oracle --limit 3",
            "blind plan_path --role planner --set view=image --agents oracle --limit 3",
        ),
        pytest.param(
            "archives --cooperation --agents oracle --arms cut --arm-agents 'cut=scripted:a b.txt' --limit 1",
            "cooperation archives --agents oracle --arms cut --arm-agents 'cut=scripted:a b.txt' --limit 1",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "archives --arms team --agents oracle --limit 1",
            "cooperation archives --arms team --agents oracle --limit 1",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_error_names_the_command_to_use_and_it_works(
    given: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a b.txt").write_text("Action: nothing")
    assert cli.main(["bench", *shlex.split(given)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), Path("outputs").exists()) == ("", 1, False)
    assert err.strip().endswith(f"Use: pettingllms {command}")
    assert cli.main(shlex.split(command)) == 0


def test_two_questions_at_once_are_an_error(capsys: Any) -> None:
    assert cli.main(["bench", "plan_path", "--agents", "null", "--cooperation", "--blame", "2"]) == 2
    assert "--cooperation and --blame were given; expected one of them." in capsys.readouterr().err


def test_the_docs_say_of_each_command_whether_it_is_stable_or_research() -> None:
    page = (Path(__file__).parents[2] / "docs" / "research.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| commands |"))
    stable, research = (re.findall(r"`([a-z]+)`", cell) for cell in row.split("|")[2:4])
    plugged = plug_ins()
    assert sorted([*stable, *research]) == sorted({*cli.COMMANDS, *plugged})
    assert sorted(research) == sorted(name for name, point in plugged.items() if ".research." in point.value)


def test_bench_has_as_many_options_as_are_listed_once() -> None:
    bench = cli._parser({}).parse_args(["bench", "plan_path"])
    own = {name for name in bench.options if name.startswith("--")} - {"--help"}
    assert not own & set(bench.moved)
    assert len(own) == 28
