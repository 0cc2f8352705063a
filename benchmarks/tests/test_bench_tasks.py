"""The harness of benchmarks/bench_tasks.py: what it counts, and that a goal that was missed is said."""

import json
import random
from pathlib import Path

import bench_tasks
import pytest
from bench_tasks import ROWS, Measured, Metered, answered, main, measure

import pettingllms_envs
from pettingllms_envs.core import ToolResult


def test_a_round_is_played_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "figures.json"
    small = ["--only", "aime tool", "--rounds", "1", "--episodes", "4", "--threads", "2", "--json", str(saved)]
    assert main(small) == 0
    (figure,) = json.loads(saved.read_text())["figures"]
    assert figure["name"] == "a turn, aime tool_reasoner"
    assert len(figure["ours"]) == 1
    assert figure["met"] is (figure["ours"][0] < bench_tasks.GOAL_MS)
    assert "aime tool_reasoner" in capsys.readouterr().out


@pytest.mark.parametrize(("turn_ms", "met"), [((4.0, 4.9, 90.0), True), ((1.0, 5.0, 5.0), False)])
def test_the_median_round_is_held_against_the_goal(
    turn_ms: tuple[float, ...], met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(ROWS[0], turn_ms, turn_ms, 1.0, 10, 0.5)
    assert measured.met is met
    monkeypatch.setattr(bench_tasks, "measure", lambda row, **kwargs: measured)
    assert main(["--only", ROWS[0].name, "--strict"]) == int(not met)


def test_an_unknown_row_and_a_number_out_of_range_are_errors() -> None:
    for wrong in (["--only", "chess"], ["--rounds", "0"], ["--threads", "0"]):
        with pytest.raises(SystemExit, match="2"):
            main(wrong)


def test_half_of_the_scripted_answers_are_right_and_the_others_differ() -> None:
    env = pettingllms_envs.make("math", workflow="single", executor=Metered())
    task, rng = env.workflow.task, random.Random(0)
    env.reset(seed=0, options={"split": "test"})
    start = env.snapshot().play.task
    env.step("no answer")  # in the second turn no program is written
    replies = [task.parse(answered(env, rng)) for _ in range(200)]
    right = sum(task.solved(task.apply(start, reply)) for reply in replies)
    assert 80 <= right <= 130
    assert len(set(replies)) > 40


def test_the_programs_own_time_is_metered_and_not_counted_as_the_turns() -> None:
    executor = Metered()
    assert executor("print(6 * 7)") == ToolResult("42\n")
    assert executor("sum(range(2_000_000))") == ToolResult("")
    assert executor("1 / 0").error
    assert executor.runs == 3
    assert executor.cpu > 0.01
    row = next(row for row in ROWS if row.name == "math single with tools")
    busy = bench_tasks.replace(row, reply=lambda env, rng: "```python\nsum(range(20_000_000))\n```")
    measured = measure(busy, rounds=1, episodes=2, threads=1)
    assert measured.program_ms > 100
    # One turn of two runs a program. Its time, counted as the turn's, would add a half of it; not seen at all, it
    # would be taken away. The kernel counts the CPU of other processes in ticks of 10 ms.
    assert abs(measured.turn_ms[0]) < measured.program_ms / 4
    assert measured.success == 0
