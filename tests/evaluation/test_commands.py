"""The commands, as a person in a terminal meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import pettingllms_envs
from chat_server import Faults, serving
from pettingllms_envs import cli
from pettingllms_envs.agents import server_probe
from pettingllms_envs.agents.base import AgentFailed, Oracle, Reply, Request, Scripted
from pettingllms_envs.commands import Refused, user_errors
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.evaluation.bench import choose
from pettingllms_envs.evaluation.runner import Folder
from pettingllms_envs.tasks.rows import read_table


ROOT = Path(__file__).parents[2]

Run = Callable[..., tuple[int, str, str]]


def test_the_oracle_solves_the_published_test_set(run: Run) -> None:
    status, out, _ = run("bench plan_path --agents oracle --limit 10 --output a")
    assert status == 0
    assert "success, 10 problems 100.0% [72.2, 100.0] wilson" in out
    assert "level 1, 2 100.0% [34.2, 100.0]" in out
    assert "drafter_0 10 0 - - 4 -" in out
    assert "team success +1 10" in out
    assert "Every episode is in a/episodes.jsonl, the numbers in a/report.json." in out
    rows = files.read(Path("a"))
    published = pettingllms_envs.test_set("plan_path")
    assert [row["instance"]["options"] | {"seed": row["instance"]["seed"]} for row in rows] == published[:10]
    report = json.loads(Path("a/report.json").read_text())
    assert report["success"]["mean"] == 1.0
    header = files.read_header(Path("a"))
    assert header["config"]["instances"]["source"] == "published"
    assert header["config"]["agents"]["planner_0"] == {"kind": "oracle", "target": None}


def test_a_model_on_a_server_plays_every_role(run: Run) -> None:
    with serving() as server:
        status, out, _ = run(f"bench plan_path --model tiny --base-url {server.url} --temperature 0.5 --limit 5")
        assert status == 0
        assert {body["temperature"] for body in server.bodies} == {0.5}
        assert len({body["seed"] for body in server.bodies}) == len(server.bodies)
        num_asked = len(server.bodies)
        # The same command goes on where it was: there is nothing left to do.
        assert run(f"bench plan_path --model tiny --base-url {server.url} --temperature 0.5 --limit 5")[1] == out
        assert len(server.bodies) == num_asked
    (folder,) = Path("outputs/bench").iterdir()
    assert re.fullmatch(rf"plan_path_v0-tiny-{date.today()}-[0-9a-f]{{8}}", folder.name)
    report = json.loads((folder / "report.json").read_text())
    assert report["agents"]["planner_0"]["prompt_tokens"] > 0
    assert report["agents"]["planner_0"]["models"] == ["tiny"]


def test_a_run_of_nothing_but_errors_does_not_blame_the_environment(run: Run) -> None:
    with serving(faults=Faults(errors=1.0)) as server:
        agents = f"--agents drafter=null planner=api:tiny --base-url {server.url} --patience 0.01"
        status, out, _ = run(f"bench plan_path {agents} --limit 1 --output none")
    assert status == 1
    assert "success no episode ended" in out
    assert "1 episodes are errors (1 unreachable) and in no rate." in out
    assert "No model answered, so nothing was written." in out
    assert not Path("none").exists()


def test_a_server_that_is_not_there_ends_the_run_in_seconds_and_leaves_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server_probe.SECONDS == 5
    monkeypatch.setattr(server_probe, "SECONDS", 0.5)
    began = time.monotonic()
    status, out, err = run("bench plan_path --model m --base-url http://127.0.0.1:1/v1 --limit 3 --output a/b")
    assert time.monotonic() - began < 60  # it would be minutes, and the machine may be busy
    assert (status, out) == (2, "")
    assert err.startswith("error: http://127.0.0.1:1/v1/models did not answer within 0.5 s (ConnectError: ")
    assert "for one that is still starting, give the seconds to wait: --patience 600." in err
    assert err.count("\n") == 1
    assert list(Path().iterdir()) == []


def test_patience_that_is_asked_for_holds_from_the_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_probe, "SECONDS", 0.3)
    with serving(loading=2, skill=1.0) as server:  # 503 for 0.25 + 0.5 s
        asked = f"bench plan_path --model tiny --base-url {server.url} --limit 1 --output a"
        status, _, err = run(asked)
        assert status == 2
        assert "did not answer within 0.3 s (status 503: loading)" in err
        assert not Path("a").exists()
        server.loading = 2
        assert run(f"{asked} --patience 60")[0] == 0


def test_a_server_that_lists_no_models_is_asked_all_the_same(run: Run) -> None:
    with serving(lists=False, skill=1.0) as server:
        status, out, _ = run(f"bench plan_path --model tiny --base-url {server.url} --limit 2 --output a")
    assert status == 0
    assert "success, 2 problems 100.0%" in out


def test_a_model_that_the_server_does_not_have_is_answered_with_those_that_it_has(run: Run) -> None:
    with serving() as server:
        status, out, err = run(f"bench plan_path --model tny --base-url {server.url} --limit 2 --output a")
    assert (status, out) == (2, "")
    assert "refused (404) the model 'tny': " in err
    assert err.endswith("Check the base URL, the model and the key. It serves: tiny.\n")
    assert list(Path().iterdir()) == []


def test_a_run_that_is_done_is_shown_when_its_server_is_gone(run: Run) -> None:
    with serving(skill=1.0) as server:
        line = f"bench plan_path --model tiny --base-url {server.url} --limit 2 --output a"
        first = run(line)
    assert run(line) == first


def test_a_folder_that_holds_something_else_stays_when_no_model_answers(run: Run) -> None:
    Path("a").mkdir()
    Path("a/notes.txt").write_text("mine")
    with serving() as server:
        run(f"bench plan_path --model tny --base-url {server.url} --limit 2 --output a")
    assert [path.name for path in Path("a").iterdir()] == ["notes.txt"]


def test_the_output_folder_of_a_training_names_its_rollouts(run: Run) -> None:
    run("bench plan_path --agents oracle --limit 2 --output team/rollouts")
    Path("team/checkpoint-20").mkdir()
    assert run("replay team")[:2] == (0, "2 of 2 episodes are the same, byte for byte.")
    status, out, _ = run("view team")
    assert (status, out.split()[0]) == (0, "team/rollouts/page.html")
    assert run("compare team again=team")[0] == 0


def test_the_runs_below_a_folder_are_compared(run: Run) -> None:
    for name in ("oracle", "null"):
        run(f"bench plan_path --agents {name} --limit 8 --output runs/{name}")
    status, out, _ = run("compare runs")
    assert status == 0
    assert "oracle - null +100.0" in out


def test_what_is_piped_is_not_wrapped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    for name in ("a_team_of_a_long_name", "another_team_of_a_name_no_shorter"):
        run(f"bench plan_path --agents oracle --limit 2 --output {name}")
    out = run("compare a_team_of_a_long_name another_team_of_a_name_no_shorter")[1]
    assert "\nanother_team_of_a_name_no_shorter - a_team_of_a_long_name +0.0 [" in out


def test_the_examples_of_a_help_have_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "--help"])
    out = capsys.readouterr().out
    assert "\n    pettingllms bench games --model a " in out
    assert "OPENAI_API_KEY" in out
    assert "servers.toml" in out


@pytest.mark.parametrize("command", ["view", "replay"])
def test_a_folder_of_several_runs_is_answered_with_their_names(run: Run, command: str) -> None:
    for name in ("b", "a"):
        run(f"bench plan_path --agents oracle --limit 1 --output runs/{name}")
    said = "error: runs has 2 runs: a, b; expected one. Name one, such as runs/a.\n"
    assert run(f"{command} runs")[::2] == (2, said)


def test_roles_may_have_agents_and_sampling_of_their_own(run: Run) -> None:
    with serving() as server:
        agents = "drafter=api,temperature=0.9,stop=Hm planner=oracle"
        status, out, _ = run(
            f"bench plan_path --agents {agents} --model tiny --base-url {server.url} --limit 3 --output a"
        )
    assert status == 0
    assert {(body["temperature"], tuple(body["stop"])) for body in server.bodies} == {(0.9, ("Hm",))}
    assert "success, 3 problems 100.0%" in out


def test_several_samples_a_problem_give_pass_at_k(run: Run) -> None:
    with serving(skill=0.3) as server:
        _, out, _ = run(f"bench plan_path --model tiny --base-url {server.url} --limit 6 --samples 4 --output a")
    assert "bootstrap" in out
    assert "avg@4 " in out
    assert "pass@1 " in out
    assert "pass@4 " in out


def test_errors_are_told_and_make_the_status(run: Run) -> None:
    with serving(refuses="Turn 2 of") as server:
        line = f"bench plan_path --model tiny --base-url {server.url} --limit 8 --output a"
        status, out, _ = run(line)
        assert status == 1
        assert "episodes are errors (" in out
        assert "refused (400)" in out
        server.refuses = ""
        status, out, _ = run(line)
    assert status == 0
    assert "errors" not in out


def test_compare_tells_what_it_can(run: Run) -> None:
    run("bench plan_path --agents oracle --limit 20 --output good")
    run("bench plan_path --agents null --limit 20 --output bad")
    status, out, _ = run("compare good bad also=bad --json c.json")
    assert status == 0
    assert "20 problems that every run has a result for." in out
    assert "bad - good -100.0 [-100.0, -" in out
    assert "0:20 5.7e-06 7 good is better" in out
    assert "also - bad +0.0 [" in out
    assert "0:0 1 - cannot tell" in out
    assert "Adjusted by Holm, so that all 3 verdicts hold together" in out
    assert [pair["verdict"] for pair in json.loads(Path("c.json").read_text())["pairs"]] == [
        "good is better",
        "good is better",
        "cannot tell",
    ]


def test_a_comparison_of_runs_with_default_names_names_their_models_in_80_columns(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for agents in ("oracle", "random"):
        run(f"bench plan_path --agents {agents} --limit 20")
    oracle, random = (next(Path("outputs/bench").glob(f"*-{agents}-*")) for agents in ("oracle", "random"))
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["compare", str(oracle), str(random)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "oracle    100.0% [83.9, 100.0]" in lines
    assert "random        0.0% [0.0, 16.1]" in lines
    assert any("-100.0 [-100.0, -77.2]            0:20    1.9e-06       6   oracle is" in line for line in lines)
    assert all(len(line) <= 80 for line in lines if not line.startswith(("p: ", "needed: ")))
    assert "\nmine 0.0% " in run(f"compare {oracle} mine={random}")[1]


def test_crossplay_ablation_and_solo(run: Run) -> None:
    run("bench plan_path --agents oracle --limit 5 --output good")
    run("bench plan_path --agents null --limit 5 --output bad")
    status, out, _ = run("crossplay good bad --output x")
    assert status == 0
    assert "planner of \\ the other role of good bad" in out
    assert "good 100.0% [56.6, 100.0] 100.0% [56.6, 100.0]" in out
    assert "bad 0.0% [0.0, 43.4] 0.0% [0.0, 43.4]" in out
    assert sorted(path.name for path in Path("x").iterdir()) == ["bad+good", "good+bad"]
    status, out, _ = run("crossplay bad --ablate --solo --output y")
    assert status == 0
    assert "drafter 0.0% [0.0, 43.4] 0.0% [0.0, 43.4]" in out
    assert "planner 100.0% [56.6, 100.0] 0.0% [0.0, 43.4]" in out
    assert "Alone: up to 8 calls an episode." in out
    assert "solo - bad +0.0" in out


def test_crossplay_ends_with_the_cell_in_which_it_is_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for agent in ("oracle", "null"):
        run(f"bench plan_path --agents {agent} --limit 2 --output {agent}")

    def interrupted(self: Oracle, request: Request) -> Reply:
        raise KeyboardInterrupt

    monkeypatch.setattr(Oracle, "reply", interrupted)
    status, out, _ = run("crossplay oracle null --output x")
    assert (status, "2 of 2 episodes were not played: interrupted" in out) == (130, True)
    assert out.count("were not played") == 1


def test_crossplay_of_equals_has_one_agent_of_the_row_among_those_of_the_column(run: Run) -> None:
    """The random player loses the one life of level 2 in every game, whoever the other one is."""
    for bot in ("iggi", "random"):
        run(f"bench hanabi --set level=2 --agents bot:{bot} --limit 5 --output {bot}")
    status, out, _ = run("crossplay iggi random --figure lives --output x")
    assert status == 0
    assert "player_1 of \\ the other agent of iggi random" in out
    assert "random 0 [0, 0] 0 [0, 0]" in out
    status, _, err = run("crossplay iggi random --figure scores --output y")
    assert not Path("y").exists()
    assert (status, "--figure is 'scores'; expected one of" in err, "Did you mean 'score'" in err) == (2, True, True)
    status, _, err = run("bench hanabi --agents bot:iggy --limit 1 --output y")
    assert (
        status,
        "the bot 'iggy'; expected one of hanabi_v0 for the player: piers, iggi, outer, flawed, random" in err,
    ) == (
        2,
        True,
    ), err


def test_a_bot_that_cannot_play_all_roles_is_refused_for_others_before_an_episode(run: Run, tmp_path: Path) -> None:
    status, _, err = run("bench plan_path --workflow designed --agents bot:random_design --limit 1 --output y")
    words = "member_0 is to be played by the bot 'random_design'; expected one of plan_path_v0 for the member: it has"
    assert (status, words in " ".join(err.split())) == (2, True), err
    assert not (tmp_path / "y").exists()


def test_crossplay_of_agents_that_compete_has_every_run_in_every_seat(run: Run) -> None:
    for agent in ("oracle", "null"):
        run(f"bench kuhn_poker --agents {agent} --limit 20 --output {agent}")
    status, out, _ = run("crossplay oracle null --output x")
    assert status == 0
    assert sorted(path.name for path in Path("x").iterdir()) == ["null+oracle", "oracle+null"]
    assert "Return of the run of the row in a seat, with the run of the column in all others:" in out
    for line in ("player_0 oracle null", "player_1 oracle null", "run return against the others rating"):
        assert line in out
    assert "Mean returns of 20 problems, the same in every pairing and every seat." in out
    for line, message in (
        ("crossplay oracle null --role player", "--role is 'player', but these agents compete"),
        ("crossplay oracle --ablate", "--ablate and --solo compare a team's success, and these agents compete."),
        (
            "compare oracle null",
            "the agents of kuhn_poker_v0 compete, so the returns of a run say nothing",
        ),
        ("compare oracle null", "Play the runs against each other: pettingllms crossplay oracle null"),
    ):
        status, _, err = run(line)
        assert (status, message in err) == (2, True), err


def test_an_environment_that_cannot_be_compared_does_not_stop_the_others(run: Run) -> None:
    for agent in ("oracle", "null"):
        run(f"bench plan_path kuhn_poker --agents {agent} --limit 4 --output {agent}")
    status, out, _ = run("compare oracle null")
    assert status == 0
    assert "kuhn_poker_v0 is left out: the agents of kuhn_poker_v0 compete" in out
    assert "pettingllms crossplay oracle/kuhn" in out
    assert "null - oracle -100.0" in out
    assert run("compare oracle null --env plan_path")[1].count("kuhn_poker") == 0
    status, _, err = run("compare oracle null --env kuhn_poker")
    assert (status, "pettingllms crossplay oracle/kuhn" in err) == (2, True)
    status, _, err = run("compare oracle null --env plan_paht")
    assert "--env is plan_paht; expected one of kuhn_poker_v0, plan_path_v0. Did you mean 'plan_path'?" in err
    assert "the agents of kuhn_poker_v0 compete" in run("leaderboard oracle null")[1]
    assert "kuhn_poker" not in run("leaderboard oracle null --env plan_path")[1]


def test_replay_says_that_all_is_the_same_or_what_is_not(run: Run) -> None:
    run("bench plan_path --agents random --limit 6 --output a")
    status, out, _ = run("replay a")
    assert (status, out.strip()) == (0, "6 of 6 episodes are the same, byte for byte.")
    file = Path("a/episodes.jsonl")
    rows = files.read(file)
    rows[3]["steps"][2]["rewards"]["planner_0"] += 0.25
    files.write_rows(file, rows)
    status, out, _ = run("replay a/episodes.jsonl")
    assert status == 1
    assert "5 of 6 episodes are the same, byte for byte." in out
    assert "The first difference: instance 3, sample 0, step 2 (drafter_0): rewards['planner_0']: expected " in out


def test_replay_says_of_how_many_episodes_states_were_not_compared(run: Run) -> None:
    run("bench plan_path --workflow describer_solver --agents oracle --limit 3 --output a")
    file = Path("a/episodes.jsonl")
    rows = files.read(file)
    for row in rows[:2]:  # as an earlier version wrote them
        del row["state_form"]
        row["state"] = row["steps"][0]["state"] = "0" * 64
        row["digest"] = files.digest(row)
    files.write_rows(file, rows)
    status, out, _ = run("replay a")
    assert status == 0
    assert out.splitlines() == [
        "3 of 3 episodes are the same, byte for byte.",
        "States of 2 episodes were not compared: the record has another form of them.",
    ]
    rows[2]["state"] = "0" * 64  # which has the environment's form
    files.write_rows(file, rows)
    status, out, _ = run("replay a")
    assert status == 1
    assert "2 of 3 episodes are the same, byte for byte." in out


def test_replay_does_not_count_episodes_that_ended_with_an_error_as_the_same(run: Run) -> None:
    def silent(asked: Request) -> str:
        raise AgentFailed("unreachable", "nobody there")

    run("bench plan_path --agents oracle --limit 2 --output a")
    whole = files.read(Path("a"))
    agents = {"drafter_0": Oracle(), "planner_0": Scripted(silent)}
    instances = [Instance(10 + i, i, {"split": "test"}) for i in range(3)]
    failed = [episode(pettingllms_envs.make("plan_path"), each, 0, agents, RunLimits()) for each in instances]
    files.write_rows(Path("a/episodes.jsonl"), failed)
    status, out, _ = run("replay a")
    assert (status, out.strip()) == (1, "3 of 3 episodes ended with an error and could not be compared.")
    files.write_rows(Path("a/episodes.jsonl"), [*failed, *whole])
    status, out, _ = run("replay a")
    assert status == 0
    assert out.splitlines() == [
        "2 of 2 episodes are the same, byte for byte.",
        "3 of 5 episodes ended with an error and could not be compared.",
    ]


def test_replay_scores_anew(run: Run) -> None:
    run("bench plan_path --agents oracle --limit 4 --output a")
    status, out, _ = run("replay a --rescore b --set alpha=0.5")
    assert status == 1
    assert "Success in 4 episodes as recorded, in 4 now: 0 gained, 0 lost." in out
    one, other = (json.loads(Path(name, "report.json").read_text()) for name in "ab")
    difference = one["agents"]["planner_0"]["return"]["mean"] - other["agents"]["planner_0"]["return"]["mean"]
    assert difference == pytest.approx(1.0)
    header = files.read_header(Path("b"))
    assert header["config"]["settings"] == {"alpha": 0.5, "strict_format": False}
    assert header["replay_of"] == files.read_header(Path("a"))["versions"]
    assert run("replay b")[0] == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bench plan_path", "no agent was given; expected a model, --model MODEL --base-url"),
        ("bench plan_pth --agents oracle", "no environment 'plan_pth'. Did you mean 'plan_path'?"),
        ("bench plan_path --agents orakle", "there is no agent of the kind 'orakle'"),
        ("bench plan_path --agents boss=oracle", "there is no role 'boss'; expected one of: drafter, planner."),
        ("bench plan_path --model m", "has no server (--base-url http://localhost:8000/v1)"),
        ("bench plan_path --agents api --base-url http://h/v1", "has no model (--model MODEL)"),
        (
            "bench plan_path --model M --base-url http://h/v1 --agents oracle",
            "--model is M, and no agent is played by it; expected one at least, such as --agents drafter=api.",
        ),
        ("bench plan_path --model M --base-url http://h/v1 --agents api:N", "--model is M, and no agent is played"),
        (
            "bench plan_path --model m --base-url http://localhost:port/v1",
            "base_url is 'http://localhost:port/v1' (Invalid port: 'port'); expected http://localhost:8000/v1, say.",
        ),
        (
            "blame plan_path --agents oracle --replies 2 --substitute drafter_0=null --substitute planner_0=null",
            "--substitute was given as drafter_0=null and planner_0=null; expected one.",
        ),
        ("bench plan_path --agents oracle --limit 0", "--limit is 0; expected at least 1."),
        ("bench plan_path --agents oracle --option colour=1", "has no option 'colour'; expected one of: split, level"),
        ("bench plan_path --agents oracle --split exam", "split is 'exam'; expected one of 'train'"),
        ("bench plan_path --agents oracle --level 9", "level is 9; expected one of 1, 2, 3, 4, 5"),
        ("bench plan_path --agents scripted:none.txt", "none.txt: No such file or directory"),
        ("bench plan_path --model m --base-url http://h/v1 --extra [1]", "extra is '[1]'; expected a JSON object"),
        (
            "bench plan_path --model m --base-url http://h/v1 --temperature nan",
            "temperature is 'nan'; expected a number",
        ),
        ("bench plan_path --model m --base-url http://h/v1 --top-k 1.5", "top_k is '1.5'; expected a whole number."),
        ("bench plan_path --agents oracle --timeout soon", "timeout is 'soon'; expected a number."),
        (
            "bench plan_path --agents oracle --limt 3",
            "unrecognized arguments: --limt 3. Did you mean '--limit'? `pettingllms bench --help`",
        ),
        (
            "bench plan_path --agents oracle --option levl=3",
            "has no option 'levl'; expected one of: split, level, board. Did you",
        ),
        ("benhc plan_path", "there is no command 'benhc'. Did you mean 'bench'? `pettingllms --help` shows"),
        ("compare a", "a/run.json: No such file or directory"),
        ("crossplay a", "crossplay got one run; expected two or more, or --ablate, or --solo."),
        ("crossplay a b --solo", "--ablate and --solo are of one run, got 2; expected one."),
        ("replay a", "a/run.json: No such file or directory"),
    ],
)
def test_a_mistake_ends_with_one_line_and_status_2_and_leaves_nothing(run: Run, line: str, message: str) -> None:
    status, out, err = run(line)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(Path().iterdir()) == []


def test_a_script_that_is_no_json_is_named(run: Run) -> None:
    Path("bad.json").write_text("[")
    status, _, err = run("bench plan_path --agents scripted:bad.json --limit 1 --output a")
    assert (status, "bad.json is not JSON (Expecting value: line 1" in err, Path("a").exists()) == (2, True, False)


def test_a_run_without_an_episode_is_no_success_of_a_replay(run: Run) -> None:
    run("bench plan_path --agents oracle --limit 1 --output a")
    Path("a/episodes.jsonl").write_text("")
    status, out, err = run("replay a")
    assert (status, out) == (2, "")
    assert "error: a has no episode yet; expected at least one." in err


def test_a_limit_beyond_the_problems_that_there_are_is_told(run: Run) -> None:
    _, out, _ = run("bench plan_path --agents oracle --limit 300 --output a")
    assert "success, 200 problems" in out
    assert "There are 200 problems (published); --limit asked for 300." in out
    assert "problems (published)" not in run("bench plan_path --agents oracle --limit 200 --output b")[1]


def test_crossplay_waits_as_long_as_it_is_told(run: Run) -> None:
    with serving(skill=1.0) as server:
        asked = f"--model tiny --base-url {server.url}"
        run(f"bench plan_path {asked} --limit 2 --output a")
        server.latency = 5.0
        began = time.monotonic()
        status, out, err = run("crossplay a --ablate --partners null --timeout 0.05 --patience 0.1")
    assert status == 2
    assert "2 episodes are errors (2 unreachable)" in out
    assert "drafter=null has no result to compare (2 episodes, all errors)" in err
    assert time.monotonic() - began < 60  # it would be minutes, and the machine may be busy


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_named_and_what_to_do(tmp_path: Path) -> None:
    folder = Folder(tmp_path, files.header("bench", {}, {}))
    (tmp_path / "episodes.jsonl").symlink_to("/dev/full")
    said = r"episodes.jsonl: No space left on device; expected room for the rest. Make some"
    with pytest.raises(Refused, match=said), user_errors(), folder.writing() as write:
        write({})
    folder.close()


def test_another_configuration_is_refused(run: Run) -> None:
    run("bench plan_path --agents oracle --limit 2 --output a")
    status, _, err = run("bench plan_path --agents oracle --limit 2 --seed 1 --output a")
    assert status == 2
    assert "a has a run of another configuration: seed is 1, was 0; expected the same" in err


class Problems:
    """As much of an environment over a data set as chooses problems: seed s is problem s modulo their number."""

    NUM = {"train": 50, "test": 30}
    unwrapped = property(lambda self: self)
    infos: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, says: bool) -> None:
        known = {"num_instances": self.NUM} if says else {}
        self.metadata = {"reset_options": {"split": ("train", "test"), "year": ()}, **known}

    def reset(self, seed: int, options: Any) -> None:
        self._problem = SimpleNamespace(id=f"problem {seed % self.NUM[options['split']]}")

    def snapshot(self) -> Any:
        return SimpleNamespace(play=SimpleNamespace(task=SimpleNamespace(problem=self._problem)))


@pytest.mark.parametrize("says", [True, False])
def test_all_problems_of_a_data_set_are_played_or_always_the_same_sample_of_them(says: bool) -> None:
    env = Problems(says=says)
    chosen = choose(env, "aime_v0", {})
    assert (chosen.source, [each.seed for each in chosen.instances]) == ("data set", list(range(30)))
    assert chosen.instances[0].options == {"split": "test"}
    some = [each.seed for each in choose(env, "aime_v0", {}, limit=10).instances]
    assert some == [each.seed for each in choose(env, "aime_v0", {}, limit=10).instances] == sorted(set(some))
    assert some != list(range(10))
    assert len(choose(env, "aime_v0", {}, split="train", limit=99).instances) == 50


def test_other_settings_have_other_problems_than_the_published_ones() -> None:
    env = pettingllms_envs.make("plan_path", size=5)
    assert choose(env, "plan_path_v0", {"workflow": "single"}).source == "published"
    chosen = choose(env, "plan_path_v0", {"size": 5}, limit=3)
    assert (chosen.source, chosen.instances[2].seed, chosen.instances[2].options) == ("seeds", 2, {"split": "test"})
    assert choose(env, "plan_path_v0", {}, options={"level": 2}).source == "seeds"
    assert len(choose(env, "plan_path_v0", {}, split="train").instances) == 200


def test_the_documented_program_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "benchmarking.md").read_text()
    program = re.findall(r"```python\n(.*?)```", text, re.S)[-1]
    said = program.rpartition("# ")[2].strip()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    assert done.stdout.strip() == said
    assert len(files.read(tmp_path / "outputs" / "walk")) == 50


def test_every_command_and_option_that_is_documented_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "benchmarking.md").read_text()
    helps = ""
    for command in ("bench", "blame", "blind", "compare", "crossplay", "replay", "leaderboard", "runs"):
        assert f"pettingllms {command} " in text
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        helps += capsys.readouterr().out
    for option in set(re.findall(r"--[a-z][a-z-]*", text)):
        assert option in helps, option


def test_a_run_on_rows_that_were_edited_is_another_one(run: Run) -> None:
    def write_rows(answer: str) -> None:
        rows = [{"id": str(i), "prompt": f"{i} + 1?", "answer": answer, "split": "test"} for i in range(3)]
        Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        read_table.cache_clear()

    line = 'bench conversation --set roles=["solver"] --set data=rows.jsonl --set grader=exact --agents null'
    write_rows("1")
    assert run(f"{line} --output a")[0] == 0
    write_rows("2")
    status, _, err = run(f"{line} --output a")
    assert (status, "a has a run of another configuration: instances.content is" in err) == (2, True)
    assert run(f"{line} --output b")[0] == 0
    assert "a and b were played on rows of different content; expected the same problems" in run("compare a b")[2]
    head = files.read_header(Path("a"))
    del head["config"]["instances"]["content"]  # as an earlier version wrote it
    files.write_json(Path("a/run.json"), head)
    assert run(f"{line} --output a")[0] == 0
    assert "in different states; expected the same problem" in run("compare a b")[2]
