"""benchmarks/bench_coding.py: a row for each environment, programs that no other has, and what counts as met."""

import bench_coding
import pytest
from bench_coding import ROWS, Metered, main

from pettingllms_envs.graders import code
from pettingllms_envs.sandbox import StdinTest


@pytest.fixture(autouse=True)
def _sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "default", code.default)  # the benchmark puts its own in its place
    monkeypatch.setattr(bench_coding, "ROWS", ROWS[:1])


def test_a_row_says_what_a_turn_costs_and_how_many_tests_it_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_coding, "GOAL_MS", 1000.0)  # whatever the machine
    assert main(["--rounds", "2", "--episodes", "4", "--strict"]) == 0
    heading, _, row = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == len(heading.strip("|").split("|")) == 6
    assert cells[0] == "apps coder_tester"
    ours, everything, tests = float(cells[1].split()[0]), float(cells[2]), float(cells[3])
    assert 0 < ours < everything
    assert tests > 10  # the golden tests of a problem: 12 at least


def test_a_goal_that_is_missed_is_an_exit_status_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_coding, "GOAL_MS", 0.0)
    assert main(["--rounds", "1", "--episodes", "2"]) == 0
    assert main(["--rounds", "1", "--episodes", "2", "--strict"]) == 1


def test_the_metered_sandbox_adds_up_programs_and_tests() -> None:
    metered = Metered()
    tests = [StdinTest("1", "1"), StdinTest("2", "2")]
    assert metered.run_tests("print(sum(range(10 ** 6)) * 0 + int(input()))", tests).passed
    assert metered.tests == 2
    assert 0 < metered.cpu < 2
