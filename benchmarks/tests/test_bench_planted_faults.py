"""Planted faults: what members do with one, that runs are those of the commands, and how shares are counted."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from bench_planted_faults import PROBLEMS, Players, main, named, planted_in, seek, shares, sought, tables
from scripted_teams import FAULTS, TEAMS, Team, hidden_profile

from pettingllms_envs.episodes.episode import RunLimits, episode
from pettingllms_envs.research.blame import CallsAnew, CallsSubstituted


BY_ENV = {team.env: team for team in TEAMS}


def summary(row: Any) -> tuple[Any, ...]:
    steps = [(step["agent"], step["reply"], step.get("reading")) for step in row["steps"]]
    paid = {agent: round(each, 9) for agent, each in row["returns"].items()}
    return row["sample"], steps, paid, row["success"], row["error"]


@pytest.mark.parametrize("team", TEAMS, ids=BY_ENV)
def test_a_team_that_does_not_slip_is_always_right(team: Team) -> None:
    players = Players(team, 0.0)
    assert all(row["success"] for row in players.play(players.sound(), players.places(0, 20), 0))


@pytest.mark.parametrize("team", TEAMS, ids=BY_ENV)
def test_episodes_are_those_that_the_commands_play(team: Team) -> None:
    players = Players(team, 0.05)
    faulty = players.faulty("wrong in half", next(iter(team.members)))
    places = players.places(0, 3)
    rows = players.play(faulty, places, 7)
    recorded = [episode(players.env, where, number, faulty, RunLimits(seed=7)) for where, number in places]
    assert [summary(row) for row in recorded] == [summary(row) for row in rows]
    for kind, *member in ((CallsAnew,), (CallsSubstituted, list(team.members)[1])):
        theirs, ours = (kind(each, 1, 2, *member) for each in (recorded, rows))
        played = [
            episode(players.env, where, number, theirs.agents(faulty), RunLimits(seed=7))
            for where, number in theirs.places
        ]
        on = players.play_on(faulty, ours, 7)
        assert [summary(row) for row in played] == [summary(row) for row in on]
        assert theirs.effects(played) == ours.effects(on)


def said(env: str, fault: str, member: str, prompt: str) -> set[str]:
    team, own = BY_ENV[env], FAULTS[fault]
    reply = team.members[member](own.heard(team, member, prompt))
    return {own.said(team, member, prompt, reply, random.Random(seed)) for seed in range(200)}


ASKED = "All readings have passed. You are asked for right's reading 2.\nYour notes: 14\nRight tells you: 6"
HEARD = (
    "Question: g5 mill mouth ?\nThe librarian_0 wrote:\n> r1\nThe librarian_1 wrote:\n> t6\nAnswer the question now."
)


@pytest.mark.parametrize(
    ("fault", "replies"),
    [
        ("always wrong", {f"Answer: {digit}" for digit in "012345789"}),
        ("wrong in half", {f"Answer: {digit}" for digit in "0123456789"}),
        ("mute", {""}),
        ("copies its partner", {"Answer: 6"}),
        ("ignores one partner", {"Answer: 0"}),
        ("wrong in one kind", {f"Answer: {digit}" for digit in "012345789"}),  # the second reading
    ],
)
def test_a_note_taker_with_a_fault_answers_so(fault: str, replies: set[str]) -> None:
    assert said("note_taking", fault, "left_0", ASKED) == replies


def test_who_copies_or_ignores_does_so_with_the_partner_before_it() -> None:
    assert said("archives", "copies its partner", "answerer_0", HEARD) == {"Answer: t6"}
    assert said("archives", "ignores one partner", "answerer_0", HEARD) == {"Answer: t0"}  # r1 is no town


def test_a_name_is_heard_in_what_a_trained_member_says_of_it() -> None:
    heard = "Question: g5 mill mouth ?\nThe librarian_1 wrote:\n> mouth t6\nAnswer the question now."
    assert said("archives", "copies its partner", "answerer_0", heard) == {"Answer: t6"}


def test_a_vote_is_copied_from_nobody() -> None:
    prompt = "The options: oak; beech.\nThe member_0 wrote:\n> The oak cannot be had.\nVote now."
    assert said("hidden_bench", "copies its partner", "member_1", prompt) == {"Vote: beech"}


def test_hidden_facts_rule_out_all_trees_but_the_answer() -> None:
    row = hidden_profile(3)
    left = [
        tree for tree in row["possible_answers"] if not any(f" {tree} " in each for each in row["hidden_information"])
    ]
    assert left == [row["correct_answer"]]


def test_of_equals_one_is_drawn() -> None:
    assert named(["a", "b"], {"a": 0.1, "b": 0.2}, random.Random(0)) == ("b", False)
    assert {named(["a", "b"], {}, random.Random(seed)) for seed in range(20)} == {("a", True), ("b", True)}


def test_a_fault_that_costs_little_is_not_sought_and_one_that_costs_all_is_found_by_substitutes() -> None:
    players = Players(BY_ENV["plan_path"], 0.0)
    costs = {(each["fault"], each["member"]): each["cost"] for each in planted_in(players, 20)}
    assert costs["always wrong", "planner_0"] == 1.0
    assert costs["copies its partner", "planner_0"] == costs["ignores one partner", "drafter_0"] == 0.0
    found = {
        method: (scores, num) for method, scores, num in sought(players, players.faulty("mute", "planner_0"), 0, 5, 0)
    }
    # Blame says nothing, as nothing varies; who is mute is seen.
    assert found["blame"][0] == {}
    assert found["substitutes"][0] == {"drafter_0": 0.0, "planner_0": 1.0}
    assert found["most unreadable"] == ({"drafter_0": 0, "planner_0": 10}, 0)
    # Five episodes of two turns and four calls, answered anew four times: 4 * (4 + 3 + 2 + 1) calls each.
    assert found["blame"][1] == 5 * 40
    # Both members twice, the drafter from calls 1 and 3 on (4 + 2), the planner from 2 and 4 on, which ends it: 1 + 1.
    assert found["substitutes"][1] == 2 * 5 * (6 + 2)


def test_shares_count_runs_and_the_best_guess_in_hindsight() -> None:
    def fault(member: str, *guesses: str) -> dict[str, Any]:
        methods = {"blame": {"named": list(guesses), "drawn": [], "calls": [3] * len(guesses)}}
        return {"env": "e", "fault": "f", "member": member, "sound": 1.0, "cost": 0.5, "methods": {"20": methods}}

    planted = [fault("a", "a", "b"), fault("a", "a", "a"), fault("b", "b", "b")]
    found = shares(planted, "env", 20)
    assert found["blame"] == {"e": (5, 6), "all": (5, 6)}
    assert found["most often at fault"] == {"e": (4, 6), "all": (4, 6)}


def test_the_command_saves_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    assert main(["--only", "plan_path", "--runs", "1", "--episodes", "4", "--json", str(file)]) == 0
    saved = json.loads(file.read_text("ascii"))
    assert saved["settings"]["problems"] == list(PROBLEMS)
    assert saved["machine"]["date"]
    printed = capsys.readouterr().out
    assert main(["--saved", str(file)]) == 0
    assert capsys.readouterr().out == printed
    assert all(cell in printed for _, rows in tables(saved["planted"]) for row in rows for cell in row)


def test_what_is_sought_again_is_added() -> None:
    players = Players(BY_ENV["plan_path"], 0.0)
    planted = next(iter(planted_in(players, 4)))
    seek(players, planted, 0)
    seek(players, planted, 1)
    assert len(planted["methods"]["5"]["blame"]["named"]) == 2
