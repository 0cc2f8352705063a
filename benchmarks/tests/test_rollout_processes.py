"""Rollouts on several processes: who plays what, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rollout_processes import Job, Processes, ProcessRound, Took, compare, figures_of
from simulation import Workload


WORKLOAD = Workload(instances=5, turns=1, candidates=2)


class Reads:
    """Samples for each instance as many tokens as its number says."""

    def __init__(self, folder: Path) -> None:
        assert folder.is_dir()

    def play(self, job: Job) -> Any:
        return SimpleNamespace(tokens=sum(job.own))


def took(seconds: float, instances: int, tokens: int = 0) -> Took:
    return Took(seconds=seconds, instances=instances, tokens=tokens)


def test_a_round_is_one_process_as_many_instances_on_each_and_the_same_shared_out(tmp_path: Path) -> None:
    with Processes(2, Reads, tmp_path) as processes:
        found = compare(processes, WORKLOAD, 2, one_first=True)
    assert (found.one.instances, found.one.tokens) == (5, 0 + 1 + 2 + 3 + 4)
    assert (found.each.instances, found.each.tokens) == (10, 45)
    assert (found.shared.instances, found.shared.tokens) == (5, 10)


def test_other_tokens_are_another_benchmark() -> None:
    played = iter([took(1.0, 5, 10), took(1.0, 10, 45), took(1.0, 5, 11)])
    processes = SimpleNamespace(play=lambda workload, number: next(played))
    with pytest.raises(RuntimeError, match="10 tokens on one process, 11 on 2; expected as many"):
        compare(processes, WORKLOAD, 2, one_first=True)


@pytest.mark.parametrize(("seconds", "met"), [(11.7, True), (11.9, False)])
def test_two_processes_shall_play_almost_twice_as_many_instances_a_second(seconds: float, met: bool) -> None:
    rounds = [ProcessRound(took(10.0, 16), took(seconds, 32), took(6.0, 16))] * 3
    each, shared = figures_of(rounds, 2)
    assert each.ratios == pytest.approx([20.0 / seconds] * 3)
    assert (each.met, shared.met) == (met, None)
    assert shared.ratios == pytest.approx([10 / 6] * 3)
    assert figures_of(rounds, 4)[0].met is None
    assert rounds[0].line().endswith(f"; {20 / seconds:.2f}x and 1.67x")
