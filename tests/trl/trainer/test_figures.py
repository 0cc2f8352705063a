"""A figure of each agent is one entry of a table: it reaches a training's log, the report, the bench and the page."""

from __future__ import annotations

import io
from statistics import fmean
from typing import Any

import pytest
from rich.console import Console

from decisions import candidate, decision_of, episode_of
from made_rows import header, row
from pettingllms_envs.episodes import figures
from pettingllms_envs.episodes.figures import AgentEpisode, frac_cut_off
from pettingllms_envs.evaluation import metrics, tables
from pettingllms_envs.page.learning import learned
from pettingllms_envs.page.read import INDEX, index_of
from pettingllms_envs.page.summary import summary
from pettingllms_trl.records import Decision, Finish
from pettingllms_trl.trainer.collector import Played
from pettingllms_trl.trainer.episode_metrics import EpisodeMetrics


def decision(agent: str, *replies: tuple[int, Finish | None], chosen: int = 0) -> Decision:
    """Candidates of so many tokens, ended so."""
    candidates = [candidate(ids=(7,) * num, text="?", finish=finish) for num, finish in replies]
    return decision_of(agent, candidates, chosen=chosen)


def logged(*decisions: Decision) -> dict[str, list[float]]:
    sums = EpisodeMetrics([])
    returns = {"planner_0": 1.0, "coder_0": 2.0}
    sums.add(Played(episodes=[episode_of(*decisions, returns=returns)], scores={}, counts={}))
    return {name: value for name, value in sums.of_generation().items() if name.startswith("agent/")}


def test_the_share_of_replies_that_were_cut_off_is_of_those_that_were_played_on_and_known() -> None:
    found = logged(
        decision("planner_0", (8, "length"), (3, "stop")),
        decision("planner_0", (8, "length"), (3, "stop"), chosen=1),
        decision("coder_0", (0, None)),  # behind an API that does not say
    )
    assert found["agent/planner_0/frac_cut_off"] == [0.5]
    assert "agent/coder_0/frac_cut_off" not in found
    assert found["agent/coder_0/return"] == [2.0]
    assert frac_cut_off(AgentEpisode("planner_0", [], {}, {})) is None


def mean_tokens(episode: AgentEpisode) -> float | None:
    return fmean(reply.tokens for reply in episode.replies if reply.tokens) if episode.replies else None


def test_another_entry_is_logged_reported_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(figures.AGENT_FIGURES, "mean_tokens", mean_tokens)  # type: ignore[misc]
    found = logged(decision("planner_0", (8, "length")), decision("planner_0", (4, "stop")))
    assert found["agent/planner_0/mean_tokens"] == [6.0]

    rows = [row(index, True, tokens=9, finish="stop") for index in range(4)]
    for index, each in enumerate(rows):
        each["steps"][0]["tokens"]["completion"] = 2 + index
        each["training"] = {"step": index // 2}
    report = metrics.report(header(), rows)
    assert report["agents"]["planner_0"]["mean_tokens"]["mean"] == 3.5
    shown = io.StringIO()
    tables.show(Console(file=shown, width=200), report, {})
    lines = [line.split() for line in shown.getvalue().splitlines()]
    assert ["planner_0", "4", "0", "36", "14", "0", "0", "3.5"] in lines

    table: dict[str, Any] = dict(zip(INDEX, zip(*map(index_of, rows), strict=True), strict=True))
    page = summary({**header(), "machine": {}}, table)
    cards = {card["name"]: card["value"] for card in page["cards"]}
    assert cards["mean tokens of planner_0"] == "3.5"
    assert [each["value"] for each in page["curves"]["Mean tokens, by training step"]] == [2.5, 4.5]
    before_and_after = learned([], table, ["planner_0"])
    assert before_and_after is not None
    assert ["mean tokens of planner_0", "2.5", "4.5", "+2"] in before_and_after["rows"]
