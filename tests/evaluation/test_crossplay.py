"""Cells of teams, and the matrix of agents whose success is known."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import pettingllms_envs
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.evaluation import bench as benches
from pettingllms_envs.evaluation import tables
from pettingllms_envs.research import crossplay
from pettingllms_envs.teams.proposal import DraftPlan


def bench(drafter: str, planner: str, env: str = "plan_path", **settings: Any) -> benches.Bench:
    made = pettingllms_envs.make(env, **settings)
    return benches.Bench(
        env=f"{env}_v0",
        settings=settings,
        agents={"drafter_0": AgentSpec(drafter), "planner_0": AgentSpec(planner)},
        chosen=benches.choose(made, f"{env}_v0", settings, limit=5),
    )


def kinds(cell: benches.Bench) -> tuple[str, ...]:
    return tuple(spec.kind for spec in cell.agents.values())


def test_a_cell_has_the_role_of_one_run_and_the_others_of_another() -> None:
    cells = crossplay.matrix({"a": bench("oracle", "null"), "b": bench("random", "oracle")}, "planner")
    assert {place: kinds(cell) for place, cell in cells.items()} == {
        ("a", "a"): ("oracle", "null"),
        ("a", "b"): ("random", "null"),
        ("b", "a"): ("oracle", "oracle"),
        ("b", "b"): ("random", "oracle"),
    }


def test_the_matrix_of_who_knows_and_who_does_not_is_as_known(tmp_path: Path) -> None:
    """Only the planner's moves are played, so whose planner it is decides alone."""
    cells = crossplay.matrix({"knows": bench("oracle", "oracle"), "silent": bench("null", "null")}, "planner")
    means = {
        place: benches.play(cell, tmp_path / "+".join(place), concurrency=1).report["success"]["mean"]
        for place, cell in cells.items()
    }
    assert means == {
        ("knows", "knows"): 1.0,
        ("knows", "silent"): 1.0,
        ("silent", "knows"): 0.0,
        ("silent", "silent"): 0.0,
    }


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (bench("null", "null", size=5), "settings"),
        (bench("null", "null", env="sudoku"), "env"),
    ],
)
def test_runs_that_are_not_alike_make_no_matrix(other: benches.Bench, what: str) -> None:
    with pytest.raises(ValueError, match=rf"a and b differ in {what}; expected runs of the same environment"):
        crossplay.matrix({"a": bench("null", "null"), "b": other}, "planner")


def test_an_ablation_replaces_one_role_at_a_time() -> None:
    team = bench("random", "random")
    cells = crossplay.ablation(team, {"oracle": AgentSpec("oracle"), "null": AgentSpec("null")})
    assert {place: kinds(cell) for place, cell in cells.items()} == {
        ("drafter", "oracle"): ("oracle", "random"),
        ("drafter", "null"): ("null", "random"),
        ("planner", "oracle"): ("random", "oracle"),
        ("planner", "null"): ("random", "null"),
    }


def test_a_frozen_partner_of_the_same_kind_is_on_the_same_server() -> None:
    team = bench("null", "null")
    server = AgentSpec("api", "trained", {"base_url": "http://h/v1", "temperature": 0.5})
    team = benches.Bench(
        env=team.env, settings={}, agents={"drafter_0": server, "planner_0": AgentSpec("null")}, chosen=team.chosen
    )
    cells = crossplay.ablation(team, {"base": AgentSpec("api", "base", {"temperature": 1.0})})
    assert cells["drafter", "base"].agents["drafter_0"] == AgentSpec(
        "api", "base", {"base_url": "http://h/v1", "temperature": 1.0}
    )
    assert cells["planner", "base"].agents["planner_0"] == AgentSpec("api", "base", {"temperature": 1.0})


def test_alone_an_agent_has_as_many_calls_as_the_team_and_its_tokens() -> None:
    team = bench("null", "oracle", num_turns=3)
    alone = crossplay.solo(team, episode_tokens=900)
    assert alone.settings == {"workflow": "single", "num_turns": 6}
    assert alone.agents == {"planner_0": AgentSpec("oracle")}
    assert (alone.rules.episode_tokens, alone.chosen) == (900, team.chosen)
    assert crossplay.solo(team, "drafter").agents == {"planner_0": AgentSpec("null")}


def test_alone_an_agent_has_the_tools_of_its_role() -> None:
    team = bench("null", "oracle", num_turns=3, role_tools={"drafter": ["python"]}, max_tool_calls=2)
    alone = crossplay.solo(team, "drafter")
    assert alone.settings["role_tools"] == {"planner": ["python"]}
    assert alone.settings["num_turns"] == 6  # calls of tools are not counted
    assert crossplay.solo(team, "planner").settings["role_tools"] == {}


def test_alone_an_agent_has_the_calls_of_a_team_that_does_not_act_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DraftPlan, "cyclic", False)
    team = bench("null", "oracle", num_turns=3)
    assert crossplay.solo(team, num_calls=7).settings["num_turns"] == 7
    with pytest.raises(ValueError, match=r"do not act once in each turn, .*expected num_calls"):
        crossplay.solo(team)


@pytest.mark.parametrize(
    ("role", "message"),
    [("boss", r"the role is 'boss'; expected one of several: drafter, planner. Choose one, or a run of a team")],
)
def test_a_role_that_there_is_not_is_refused(role: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        crossplay.matrix({"a": bench("null", "null"), "b": bench("oracle", "oracle")}, role)
    with pytest.raises(ValueError, match=message):
        crossplay.solo(bench("null", "null"), role)


def test_one_agent_is_no_team() -> None:
    lone = benches.Bench(
        env="plan_path_v0",
        settings={"workflow": "single"},
        agents={"planner_0": AgentSpec("null")},
        chosen=benches.InstanceSet("seeds", ()),
    )
    with pytest.raises(ValueError, match=r"the run has the roles planner; expected a team"):
        crossplay.solo(lone)


def test_no_name_in_a_table_is_obeyed_by_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=100)
    tables.table(console, ("planner", "a\x1b[2J[red]"), [("b\u202e", "\x07")])
    text = console.file.getvalue()
    assert text.split() == ["planner", "a\ufffd[2J[red]", "b\ufffd", "\ufffd"]
