import shutil
from statistics import median

import bench_commands
import pytest
from bench_commands import Rounds, figures, measure

from pettingllms_envs.sandbox import Command


def rounds(over: float) -> Rounds:
    fork = (0.001, 0.002, 0.003)
    return Rounds("namespaces", tuple(cpu + over for cpu in fork), fork, (0.001,) * 3, (0.01,) * 3)


@pytest.mark.parametrize(("over", "met"), [(0.0019, True), (0.0021, False)])
def test_the_goal_is_2_ms_more_than_a_fork_and_exec_in_the_same_round(over, met):
    (figure,) = figures([rounds(over)])
    assert figure.met is met
    assert figure.ours == pytest.approx((1000 * (0.002 + over),))
    assert figure.peer == pytest.approx((2.0,))


def test_only_the_first_confinement_has_the_goal():
    assert [figure.met for figure in figures([rounds(0.0), rounds(1.0)])] == [True, None]


def test_every_round_runs_the_binary_in_each_way_and_counts_its_time(sandbox):
    if shutil.which("true") is None or "landlock" not in sandbox.start():
        pytest.skip("needs the binary and Landlock")
    found = measure("landlock", 3, Command("true"))
    assert len(found.ours) == len(found.fork) == len(found.spawn) == 3
    assert all(0 < cpu < 1 for times in (found.ours, found.fork, found.spawn) for cpu in times)
    assert found.over(found.fork) == pytest.approx(
        median(ours - fork for ours, fork in zip(found.ours, found.fork, strict=True))
    )


def test_the_peers_measure_what_they_start(sandbox):
    true = shutil.which("true")
    if true is None:
        pytest.skip("needs the binary")
    for way in ("fork", "spawn"):
        with bench_commands.peer(way, true) as once:
            assert 0 < once() < 1
