"""A program or another environment is named by its file where a name is taken, and a record alone imports none."""

from __future__ import annotations

import atexit
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from calls import assert_ends
from pettingllms_envs import cli, testing
from pettingllms_envs.episodes.files import read, read_header
from pettingllms_envs.programs import program
from pettingllms_envs.programs.endpoint import endpoint


TEAM = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from calls import ask
from pettingllms_envs.programs import program
from pettingllms_envs.programs.endpoint import endpoint

def play(base_url, row):
    written = ask(base_url, "writer", f"Write {{row['seed']}}.")
    return float(ask(base_url, "critic", f"Good: {{written}}?") == "yes")

team = program(play, agents=("writer", "critic"))
"""

DEBATE = """
import pettingllms_envs
from pettingllms_envs.teams.functions import Ask

rows = [{"question": f"Is {n} even?", "answer": "yes", "split": "test"} for n in (2, 4, 6)]

@pettingllms_envs.function(rows, lambda row, reply: float(reply == row["answer"]), roles={"judge": "Decide."})
def debate(game):
    game.play((yield Ask("judge", game.show())), "judge")

talk = pettingllms_envs.conversation(["solver"], grader="exact")

def number():
    return 3
"""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a program in the working directory."""
    (tmp_path / "team.py").write_text(TEAM, encoding="utf-8")
    (tmp_path / "replies.txt").write_text("yes\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"program:{tmp_path / 'team.py'}:team"


def test_bench_plays_a_program_and_replays_it_only_when_it_is_named(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--agents", "scripted:replies.txt", "--limit", "3", "--output", "out"]
    before = set(endpoint().sessions)
    assert cli.main(["bench", name, *arguments]) == 0
    assert "success, 3 problems  100.0%" in capsys.readouterr().out
    assert cli.main(["info", name]) == 0
    assert set(endpoint().sessions) <= before  # every run is closed
    assert read_header(Path("out"))["config"]["env_config"].startswith(name)
    row = read(Path("out"))[0]
    assert [(step["agent"], step["rewards"]) for step in row["steps"]] == [
        ("writer", {"writer": 0.0, "critic": 0.0}),
        ("critic", {"writer": 1.0, "critic": 1.0}),
    ]
    assert row["steps"][1]["parts"] == {"team": {"reward": 1.0}}
    assert cli.main(["replay", "out"]) == 2
    assert f"If you trust it, name it yourself: pettingllms replay ... --env {name}" in capsys.readouterr().err
    assert cli.main(["replay", "out", "--env", name]) == 0
    assert "3 of 3 episodes are the same, byte for byte" in capsys.readouterr().out


def test_a_run_is_not_gone_on_with_once_the_file_has_changed(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = tmp_path / "other.py"
    other.write_text(TEAM, encoding="utf-8")
    for attempt in (0, 2):
        line = [
            "bench",
            f"program:{other}:team",
            "--agents",
            "scripted:replies.txt",
            "--limit",
            "1",
            "--output",
            "out",
        ]
        assert cli.main(line) == attempt
        other.write_text(f"{TEAM}\n# changed", encoding="utf-8")
        pettingllms_envs.programs.load.cache_clear()  # as in another process
    assert "has a run of another configuration: env_config is" in capsys.readouterr().err


def test_runs_of_a_file_before_and_after_a_change_are_not_compared(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for run in ("one", "two", "three"):
        line = ["bench", name, "--agents", "scripted:replies.txt", "--limit", "1", "--output", run]
        assert cli.main(line) == 0
        if run == "two":
            (tmp_path / "team.py").write_text(f"{TEAM}# changed", encoding="utf-8")
            pettingllms_envs.programs.load.cache_clear()  # as in another process
    assert cli.main(["compare", "one", "two"]) == 0
    assert cli.main(["compare", "one", "three"]) == 2
    assert "expected the same, for their seeds are other problems" in capsys.readouterr().err


@pytest.fixture
def debate(tmp_path: Path, name: str) -> Path:
    """A file with environments that are no programs, beside that of the program."""
    (tmp_path / "debate.py").write_text(DEBATE, encoding="utf-8")
    return tmp_path / "debate.py"


def test_bench_plays_a_function_of_a_file_and_finds_its_run_again_until_the_file_changes(
    debate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["bench", "debate.py:debate", "--agents", "scripted:replies.txt"]
    assert cli.main(line) == 0
    assert "success, 3 problems  100.0%" in capsys.readouterr().out
    (run,) = Path("outputs/bench").iterdir()
    assert run.name.startswith("program-debate.py-debate-scripted-")
    run = run.rename(run.with_name(run.name.replace("-20", "-19")))  # as on another day
    played = (run / "episodes.jsonl").read_bytes()
    assert cli.main(line) == 0
    assert ([*Path("outputs/bench").iterdir()], (run / "episodes.jsonl").read_bytes()) == ([run], played)
    debate.write_text(f"{DEBATE}# changed", encoding="utf-8")
    pettingllms_envs.programs.load.cache_clear()  # as in another process
    assert cli.main([*line, "--output", str(run)]) == 2
    assert "has a run of another configuration: env_config is" in capsys.readouterr().err


def test_a_record_that_names_a_file_imports_it_only_when_it_is_named(
    debate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "debate.py:debate", "--agents", "null", "--output", "out"]) == 0
    header = json.loads(Path("out/run.json").read_text())
    for named in ("program:debate.py:debate", "debate.py:debate"):
        header["config"]["env"] = named
        Path("out/run.json").write_text(json.dumps({key: header[key] for key in header if key != "data"}))
        debate.write_text("raise SystemExit('it was imported')", encoding="utf-8")
        for command in (["replay", "out"], ["view", "out"], ["compare", "out"], ["crossplay", "out", "--solo"]):
            pettingllms_envs.programs.load.cache_clear()
            assert cli.main(command) in (0, 2)
    debate.write_text(DEBATE, encoding="utf-8")
    capsys.readouterr()
    header["config"]["env"] = "program:debate.py:debate"
    Path("out/run.json").write_text(json.dumps(header))
    assert cli.main(["replay", "out", "--env", "debate.py:debate"]) == 0
    assert "3 of 3 episodes are the same" in capsys.readouterr().out


def test_what_a_file_makes_takes_settings_and_must_be_an_environment(debate: Path) -> None:
    Path("rows.jsonl").write_text('{"prompt": "1 + 1?", "answer": "2"}\n', encoding="utf-8")
    assert pettingllms_envs.make("debate.py:talk", data="rows.jsonl").possible_agents == ["solver_0"]
    with pytest.raises(ValueError, match=r"program:debate.py:number makes 3; expected an AECEnv"):
        pettingllms_envs.make("debate.py:number")
    with pytest.raises(ValueError, match=r"debate.py has no 'debat'; .* It has: debate, talk, number"):
        pettingllms_envs.make("debate.py:debat")


def test_info_takes_the_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", name]) == 0
    shown = capsys.readouterr().out
    assert "timeout" in shown
    assert "Write 0." in shown


def test_a_program_conforms_if_it_quotes_what_its_agents_write(name: str, tmp_path: Path) -> None:
    quoting = TEAM.replace('f"Good: {written}?"', 'f"Good: {quote(written)}?"')
    asks = """ask(base_url, "writer", f"Write {row['seed']}.")"""
    bounded = """say(base_url, "writer", f"Write {row['seed'] % 9}.", max_tokens=8)"""
    assert asks in quoting
    head = """
from calls import chat
from pettingllms_envs.quoting import quote

def say(*args, **fields):
    return chat(*args, **fields)[1]["choices"][0]["message"]["content"]
"""
    Path("quoting.py").write_text(quoting.replace(asks, bounded).replace("import ask", f"import ask{head}"), "utf-8")
    only = ("pettingzoo", "determinism", "snapshots", "long replies", "fuzzed replies", "rewards", "learning signal")
    make = partial(pettingllms_envs.make, f"program:{tmp_path / 'quoting.py'}:team")
    testing.conforms(make, seeds=range(1), only=(*only, "forged prompts"))
    report = testing.check(partial(pettingllms_envs.make, name), seeds=range(1), only=["forged prompts"])
    assert "critic observes '<|im_end|>' in its prompt, which writer wrote; expected it escaped" in str(report)


@pytest.mark.parametrize(
    ("typed", "arguments", "shown"),
    [
        ("a rose\nyes\n", ["--seed", "3"], ["user: Write 3.", "user: Good: a rose?", "rewards: writer +1, critic +1",
                                            "Over: refused_requests 0, success True."]),
        ("", ["--auto", "random"], ["writer: ", "Over: refused_requests 0, success False."]),
        ("a rose\n", [], ["user: Good: a rose?", "The game is left as it is."]),
    ],
)  # fmt: skip
def test_play_shows_what_a_program_asks_and_sends_what_is_typed(
    name: str,
    typed: str,
    arguments: list[str],
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert cli.main(["play", name, *arguments]) == 0
    out = capsys.readouterr().out
    assert all(each in out for each in shown)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--auto", "oracle"], "has no oracle to play a role"),
        (["--role", "writer"], "--role is 'writer'; expected all. Choose one"),
        (["--level", "2"], "has no --level; expected none. Leave it out."),
        (["--record", "game.gif"], "has no boards to --record"),
    ],
)
def test_play_refuses_what_a_program_does_not_have(
    name: str, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["play", name, *arguments]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("command", [["play"], ["bench", "--agents", "null"]])
def test_a_program_that_fails_before_its_first_call_is_said_in_words(
    name: str, tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.py").write_text(TEAM.replace("    written", "    1 / 0; written"), encoding="utf-8")
    assert cli.main([command[0], f"program:{tmp_path / 'bad.py'}:team", *command[1:]]) == 2
    assert "the program play failed: it raised:" in (said := capsys.readouterr().err)
    assert said.rstrip().endswith("ZeroDivisionError: division by zero")


def test_settings_replace_those_of_the_program_and_copies_share_what_runs_find_out(name: str) -> None:
    env = pettingllms_envs.make(name, timeout=3.0)
    assert env.program.timeout == 3.0
    assert env.program.state is pettingllms_envs.make(name).program.state
    assert env.metadata["name"] == name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("program:nothing.py:team", "There is no such file"),
        ("program:team.py", "expected a file of this machine and a name in it"),
        ("program:team.py:play", "has function 'play'; expected a program"),
        ("program:team.py:other", "has no 'other'.* It has: team"),
    ],
)
def test_a_name_of_no_program_says_what_there_is(name: str, given: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        pettingllms_envs.make(given)


def test_a_failed_episode_is_an_error_row_with_what_the_program_wrote_last(name: str, tmp_path: Path) -> None:
    source = TEAM.replace("return float", "print('no good'); return {}[0]; return float")
    Path("bad.py").write_text(source, encoding="utf-8")
    line = ["bench", f"program:{tmp_path / 'bad.py'}:team", "--agents", "null", "--limit", "2", "--output", "out"]
    assert cli.main(line) == 1
    rows = read(Path("out"))
    assert [row["success"] for row in rows] == [None, None]
    assert rows[0]["error"]["kind"] == "environment"
    assert rows[0]["error"]["message"].endswith("KeyError: 0")
    assert json.loads((Path("out") / "report.json").read_text())["episodes"]["errors"] == {"environment": 2}


def test_a_program_that_a_signal_meets_as_it_starts_is_ended_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    started, at_exit, start = list[subprocess.Popen[bytes]](), list[Callable[[], None]](), subprocess.Popen

    def met(*given: Any, **options: Any) -> None:
        started.append(start(*given, **options))
        raise KeyboardInterrupt

    env = program(["sleep", "60"], agents=("writer",), timeout=60)()
    monkeypatch.setattr(subprocess, "Popen", met)
    monkeypatch.setattr(atexit, "register", at_exit.append)
    with pytest.raises(KeyboardInterrupt):
        env.reset(seed=0)
    for end in at_exit:
        end()
    with started[0] as process:
        assert process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_ends_a_command_ends_the_processes_of_its_programs(tmp_path: Path, number: int) -> None:
    pid, file = tmp_path / "pid", tmp_path / "hanging.py"
    line = ["sh", "-c", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 60"]
    file.write_text(
        f"from pettingllms_envs.programs import program\nteam = program({line!r}, agents=('writer',), timeout=60)\n"
    )
    command = [sys.executable, "-m", "pettingllms_envs.cli", "bench", f"{file}:team", "--agents", "random"]
    bench = subprocess.Popen(
        [*command, "--limit", "1", "--output", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # SIGINT is ignored by what a shell starts with &
    )
    until = time.monotonic() + 60
    while not pid.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    bench.send_signal(number)
    assert bench.wait(20) == 130
    assert_ends(int(pid.read_text()))


def test_a_program_of_a_script_has_the_name_of_its_function() -> None:
    def my_team(base_url: str, row: object) -> float:
        return 1.0

    assert program(my_team, agents=("writer",))().metadata["name"] == "program_my_team"
    assert program("bash team.sh", agents=("writer",), name="poets")().metadata["name"] == "poets"
