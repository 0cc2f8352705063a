"""Many episodes at once: none lost, none different, whatever the server, the threads and a kill do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from chat_server import ChatServer, Faults, serving
from echo_env import Echo
from pettingllms_envs.agents import server_probe
from pettingllms_envs.agents.base import AgentFailed, Reply, Request, Scripted
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.episode import Instance, RunLimits
from pettingllms_envs.evaluation import bench as benches
from pettingllms_envs.evaluation import metrics
from pettingllms_envs.evaluation.runner import Folder, Plan, run


ROOT = Path(__file__).parents[2]
PATIENCE = 300.0  # seconds for what takes one or two on a machine that is not busy
HEADER = files.header("bench", {"env": "echo_v1", "agents": {"a_0": "yes"}}, {})


def bench(server: ChatServer, num: int = 12, samples: int = 2, **options: Any) -> benches.Bench:
    env = pettingllms_envs.make("plan_path")
    spec = AgentSpec("api", server.model, {"base_url": server.url, **options})
    return benches.Bench(
        env="plan_path_v0",
        settings={},
        agents=dict.fromkeys(env.possible_agents, spec),
        chosen=benches.choose(env, "plan_path_v0", {}, limit=num),
        samples=samples,
    )


def digests(rows: list[dict[str, Any]]) -> list[str]:
    return [row["digest"] for row in rows]


def echoes(folder: Path, agent: Any, num: int = 30, concurrency: int = 4, header: Any = HEADER, **env: Any) -> Any:
    plan = Plan(make_env=lambda: Echo(**env), instances=[Instance(i, i) for i in range(num)])
    held = Folder(folder, header)
    try:
        return run(plan, {"a_0": agent, "b_0": agent}, held, concurrency=concurrency)
    finally:
        held.close()


def test_no_episode_is_lost_to_faults_and_none_comes_out_different(tmp_path: Path) -> None:
    with serving() as clean:
        expected = benches.play(bench(clean), tmp_path / "clean", concurrency=1)
    with serving(latency=0.01, faults=Faults(errors=0.05, resets=0.05, too_many=0.05, halves=0.05)) as faulty:
        played = benches.play(bench(faulty), tmp_path / "faulty", concurrency=8)
    assert min(faulty.fates[fate] for fate in ("errors", "resets", "too_many", "halves")) > 0
    assert played.report["episodes"] == {"planned": 24, "ended": 24, "errors": {}, "missing": 0}
    assert digests(played.ended.rows) == digests(expected.ended.rows) == digests(files.read(tmp_path / "faulty"))
    one, other = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("faulty", "clean"))
    assert {**one, "timing": None} == {**other, "timing": None}
    retries = sum(metrics.retries(played.ended.rows).values())
    assert retries == sum(faulty.fates.values()) - faulty.fates["answered"]
    assert 0.1 < expected.report["success"]["mean"] <= 1


def test_as_many_requests_are_in_flight_as_there_may_be(tmp_path: Path) -> None:
    # No success: every episode takes its eight calls. In the midst of them none is answered until eight are asked.
    with serving(skill=0.0, holds_after=64) as server, ThreadPoolExecutor(1) as pool:
        playing = pool.submit(benches.play, bench(server, num=16, samples=1), tmp_path / "a", concurrency=8)
        until = time.monotonic() + PATIENCE
        while len(server.bodies) < 64 + 8 and time.monotonic() < until:
            time.sleep(0.01)
        at_once = server.in_flight
        server.let_go()
        playing.result()
    assert at_once == 8
    assert server.most_in_flight == 8
    assert len(server.bodies) == 16 * 8


def test_a_prompt_that_is_refused_is_an_error_row_and_no_failure(tmp_path: Path) -> None:
    with serving(refuses="Turn 2 of") as server:
        played = benches.play(bench(server, num=10, samples=1), tmp_path / "a", concurrency=4)
    errors = played.report["episodes"]["errors"]
    ended = [row for row in played.ended.rows if row["error"] is None]
    assert errors == {"refused": 10 - len(ended)}
    assert 0 < len(ended) < 10
    assert played.report["success"] | {"mean": 1.0, "episodes": len(ended)} == played.report["success"]
    assert played.report["success"]["least"] == len(ended) / 10


def test_a_wrong_model_ends_the_run_at_once(tmp_path: Path) -> None:
    with serving() as server:
        wrong = bench(server)
        server.model = "another"
        with pytest.raises(
            ValueError, match=r"/v1/chat/completions refused \(404\) the model 'tiny': .* It serves: anot"
        ):
            benches.play(wrong, tmp_path / "a", concurrency=4)
    assert len(server.bodies) <= 5  # "Hello", to be sure that it is not the prompt
    assert not (tmp_path / "a").exists()


def test_a_server_that_is_gone_when_a_run_goes_on_ends_it_and_keeps_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_probe, "SECONDS", 0.5)
    with serving() as server:
        half = replace(bench(server), samples=1)
        benches.play(half, tmp_path / "a", concurrency=4)
    file = tmp_path / "a" / files.EPISODES
    rows = files.read(file)
    files.write_rows(file, rows[:5])
    played = benches.play(half, tmp_path / "a", concurrency=4)
    assert (played.ended.refused, played.ended.num_missing, played.is_kept) == (True, 7, True)
    assert played.ended.why.startswith(f"{server.url}/models did not answer within 0.5 s (ConnectError: ")
    assert files.read(file) == rows[:5]


def test_a_run_whose_every_episode_fails_is_ended(tmp_path: Path) -> None:
    def word(asked: Request) -> str:
        raise AgentFailed("unreachable", "nobody there")

    ended = echoes(tmp_path / "a", Scripted(word), num=500)
    assert 20 <= len(ended.rows) < 60
    assert ended.why == "the last 20 episodes were all errors, the last: nobody there"


def test_prompts_that_are_refused_one_after_the_other_end_nothing(tmp_path: Path) -> None:
    def word(asked: Request) -> str:
        raise AgentFailed("refused", "too long")

    ended = echoes(tmp_path / "a", Scripted(word), num=60)
    assert (len(ended.rows), ended.why) == (60, "")


def test_errors_between_successes_end_nothing_and_are_played_again_next_time(tmp_path: Path) -> None:
    broken = [True]

    def word(asked: Request) -> str:
        if broken[0] and asked.instance % 2:
            raise AgentFailed("unreachable", "nobody there")
        return "yes"

    first = echoes(tmp_path / "a", Scripted(word), num=100)
    assert Counter(row["error"] is None for row in first.rows) == {True: 50, False: 50}
    broken[0] = False
    second = echoes(tmp_path / "a", Scripted(word), num=100)
    assert [row["error"] for row in second.rows] == [None] * 100
    assert [row["instance"]["index"] for row in files.read(tmp_path / "a")] == list(range(100))


def test_a_run_that_ends_waits_for_the_requests_that_are_about_to_be_answered(tmp_path: Path) -> None:
    begun, answered = threading.Event(), threading.Event()

    def word(asked: Request) -> str:
        if asked.instance == 1:
            assert begun.wait(PATIENCE)
            raise KeyError("oops")
        begun.set()
        time.sleep(0.2)
        answered.set()
        return "yes"

    with pytest.raises(KeyError, match="oops"):
        echoes(tmp_path / "a", Scripted(word), num=2, concurrency=2)
    assert answered.is_set()


def test_a_fault_of_an_agent_of_ones_own_is_raised_and_what_was_played_is_kept(tmp_path: Path) -> None:
    def word(asked: Request) -> str:
        if asked.instance == 3:
            raise KeyError("oops")
        return "yes"

    with pytest.raises(KeyError, match="oops"):
        echoes(tmp_path / "a", Scripted(word), num=5, concurrency=1)
    assert len(files.read(tmp_path / "a")) == 3


def test_what_was_played_is_not_played_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def word(one: Request) -> str:
        asked.append(one.instance)
        return "yes"

    echoes(tmp_path / "a", Scripted(word), num=10)
    told: list[int] = []
    held = Folder(tmp_path / "a", HEADER)
    plan = Plan(make_env=Echo, instances=[Instance(i, i) for i in range(10)])
    agents = {"a_0": Scripted(word), "b_0": Scripted(word)}
    run(plan, agents, held, concurrency=2, on_row=lambda row: told.append(row["instance"]["index"]))
    held.close()
    assert len(asked) == 40
    assert sorted(told) == list(range(10))


def test_a_row_is_in_the_file_before_anybody_is_told(tmp_path: Path) -> None:
    in_file: list[int] = []
    held = Folder(tmp_path / "a", HEADER)
    plan = Plan(make_env=Echo, instances=[Instance(i, i) for i in range(5)])
    agents = dict.fromkeys(("a_0", "b_0"), Scripted(lambda asked: "yes"))
    run(plan, agents, held, concurrency=1, on_row=lambda row: in_file.append(len(files.read(tmp_path / "a"))))
    held.close()
    assert in_file == [1, 2, 3, 4, 5]


def test_a_run_is_taken_up_under_the_same_configuration_alone(tmp_path: Path) -> None:
    echoes(tmp_path / "a", Scripted(lambda asked: "yes"), num=2)
    other = files.header("bench", {"env": "echo_v1", "agents": {"a_0": "no", "b_0": 1}}, {})
    with pytest.raises(
        ValueError, match=r"agents.a_0 is 'no', was 'yes'; agents.b_0 is 1, was None; expected the same"
    ):
        Folder(tmp_path / "a", other)
    older = {**HEADER, "versions": HEADER["versions"] | {"pettingllms": "0.0.1"}}
    with pytest.raises(ValueError, match=r"pettingllms is 0.0.1, was "):
        Folder(tmp_path / "a", older)


def test_a_folder_is_one_runs_at_a_time_and_nobody_elses(tmp_path: Path) -> None:
    held = Folder(tmp_path / "a", HEADER)
    with pytest.raises(ValueError, match=r"another process writes .*; expected to be alone"):
        Folder(tmp_path / "a", HEADER)
    held.close()
    Folder(tmp_path / "a", HEADER).close()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "episodes.jsonl").write_text("mine\n")
    with pytest.raises(ValueError, match=r"has episodes.jsonl without run.json; expected a run of ours"):
        Folder(tmp_path / "b", HEADER)
    assert (tmp_path / "b" / "episodes.jsonl").read_text() == "mine\n"


def test_ctrl_c_leaves_what_was_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    class Slow:
        def reply(self, asked: Request) -> Reply:
            if asked.instance >= 5:
                release.wait(30)
            return Reply(text="yes")

    plan = Plan(make_env=Echo, instances=[Instance(i, i) for i in range(10)], rules=RunLimits())
    held = Folder(tmp_path / "a", HEADER)
    told: list[Any] = []

    def on_row(row: Any) -> None:
        told.append(row)
        if len(told) == 5:
            raise KeyboardInterrupt

    ended = run(plan, {"a_0": Slow(), "b_0": Slow()}, held, concurrency=1, on_row=on_row)
    held.close()
    release.set()
    assert (ended.interrupted, ended.num_missing, len(ended.rows)) == (True, 5, 5)
    assert len(files.read(tmp_path / "a")) == 5


def command(server: ChatServer, output: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "pettingllms_envs.cli", "bench", "plan_path", "--model", server.model),
        *("--base-url", server.url, "--limit", "40", "--concurrency", "4", "--output", str(output)),
    ]


def test_a_run_that_is_killed_and_taken_up_is_as_one_that_was_not(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    # Episodes take eight calls at most: after so many, eight have ended, and the four at play wait to be killed.
    with serving(holds_after=12 * 8) as server:
        output = tmp_path / "killed"
        file = output / "episodes.jsonl"
        process = subprocess.Popen(command(server, output), env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while len(server.bodies) < 12 * 8 + 4 or file.read_bytes().count(b"\n") < 8:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        server.let_go()
        kept = files.read(output)
        assert 8 <= len(kept) < 40
        num_before = len(server.bodies)
        done = subprocess.run(
            command(server, output), env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        again = len(server.bodies) - num_before
    with serving() as server:
        expected = benches.play(bench(server, num=40, samples=1), tmp_path / "whole", concurrency=2)
    rows = files.read(output)
    assert digests(rows) == digests(expected.ended.rows)
    assert {row["digest"]: row for row in rows} | {row["digest"]: row for row in kept} == {
        row["digest"]: row for row in rows
    }  # those that were there are there still, with their own clocks
    assert again == sum(len(row["steps"]) for row in rows) - sum(len(row["steps"]) for row in kept)


def test_ctrl_c_while_the_threads_start_ends_the_run_as_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "episodes-1":
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with serving() as server:
        ended = benches.play(bench(server, num=40, samples=1), tmp_path / "a", concurrency=2).ended
    assert (ended.interrupted, ended.why) == (True, "interrupted")
    assert ended.num_missing > 0


def test_ctrl_c_at_the_keyboard_ends_the_command_at_once_and_politely(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with serving(holds_after=0) as server:
        output = tmp_path / "a"
        process = subprocess.Popen(
            command(server, output),
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that runs the tests in the background has SIGINT ignored, for all below it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        until = time.monotonic() + PATIENCE
        while len(server.bodies) < 4:  # so many threads ask
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        server.let_go()
    assert (process.returncode, err) == (130, "")
    assert "40 of 40 episodes were not played: interrupted" in out
    assert "The same command plays them again." in out
