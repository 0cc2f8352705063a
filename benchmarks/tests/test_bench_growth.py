"""How things grow: laws through points, the cluster by hand, TRL's loop on a clock, and (slow) our own exponents."""

import math
from dataclasses import replace

import bench_growth
import cluster
import pytest
from bench_growth import TOLERANCE, Cost, Growth, Load, Team, measure, rollout_cost
from bench_scaling import Scaling, figures
from cluster import PROMPT, Cluster, Model, Step, assigned, completion_tokens, tokens_of_passes
from growth import fit
from shared_rows import rollout_seconds
from simulation import SimulatedClock, Speed, Workload


# ---- Laws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("power", "sizes"), [(1.0, (1, 2, 4, 8)), (2.0, (3, 5, 50)), (0.0, (1, 10))])
def test_a_power_law_is_found(power: float, sizes: tuple[int, ...]) -> None:
    found = fit(sizes, [7 * size**power for size in sizes])
    assert found.exponent == pytest.approx(power)
    assert found.last == pytest.approx(power)
    if len(sizes) > 2:
        assert (found.low, found.high) == pytest.approx((power, power))


def test_the_interval_is_students_and_two_sizes_say_nothing_of_it() -> None:
    # x = 0, 1, 2 and y = 0, 2, 2 (in units of log 2): slope 1, residuals -1/3, 2/3, -1/3, so the deviation is
    # sqrt(2/3 / 1 / 2) = 0.5774, times 12.706 for one degree of freedom.
    found = fit([1, 2, 4], [1, 4, 4])
    assert found.exponent == pytest.approx(1.0)
    assert found.high - found.exponent == pytest.approx(12.7062 * math.sqrt(1 / 3), rel=1e-4)
    assert found.last == pytest.approx(0.0)
    assert fit([1, 2], [1, 2]).high == math.inf


@pytest.mark.parametrize(("sizes", "costs"), [([1], [1]), ([1, 1], [1, 2]), ([1, 2], [0, 1]), ([1, 2], [1])])
def test_points_through_which_there_is_no_law_are_an_error(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="two different sizes or more"):
        fit(sizes, costs)


# ---- What is measured -----------------------------------------------------------------------------------------------


def grown(seconds: list[float], peaks: list[float], what: str = "step", axis: str = "turns") -> Growth:
    costs = tuple(Cost((second, 2 * second), peak) for second, peak in zip(seconds, peaks, strict=True))
    return Growth(what=what, axis=axis, sizes=tuple(2**n for n in range(len(costs))), costs=costs)


def test_linear_meets_the_limit_and_quadratic_does_only_where_attention_is() -> None:
    linear, quadratic = [1.0, 2.0, 4.0], [1.0, 4.0, 16.0]
    assert grown(linear, linear).met
    assert not grown(quadratic, linear).met
    assert not grown(linear, quadratic).met  # memory
    assert grown(quadratic, linear, axis="prompt").met
    assert not grown(quadratic, linear, what="rollout", axis="prompt").met
    assert [figure.met for figure in grown(quadratic, linear).figures()] == [False, None, None]


def test_a_team_takes_its_roles_in_turn_for_its_turns() -> None:
    env = Team(Load(roles=3, turns=2, prompt=2))
    env.reset(seed=5)
    seen = []
    while not any(env.terminations.values()):
        seen.append(env.agent_selection)
        assert env.observe(env.agent_selection) == f"5 {len(seen) - 1} word word"
        env.step("0.25")
        assert set(env.rewards.values()) == {0.25}
    assert seen == ["role0_0", "role1_0", "role2_0"] * 2


def test_a_team_is_put_back_with_its_rewards():
    env = Team(Load(roles=2, turns=2, prompt=2))
    env.reset(seed=5)
    env.step("1")
    then = env.snapshot()
    env.step("0")
    env.restore(then)
    assert (env.agent_selection, env.rewards) == ("role1_0", {"role0_0": 1.0, "role1_0": 1.0})


def test_a_rollout_is_timed_and_its_memory_is_what_its_records_take() -> None:
    small, large = (rollout_cost(Load(instances=number, candidates=2, turns=1), rounds=2) for number in (2, 64))
    assert len(small.seconds) == 2
    assert min(large.seconds) > min(small.seconds) > 0
    assert large.peak > 8 * small.peak


def test_a_step_is_trained_and_its_peak_is_above_what_was_before() -> None:
    pytest.importorskip("trl")
    cost = bench_growth.step_cost(Load(instances=2, candidates=2, turns=1, prompt=16, policies=2), rounds=1)
    assert len(cost.seconds) == 1
    assert cost.seconds[0] > 0
    assert cost.peak > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "axis", "sizes"),
    [
        ("rollout", "instances", (32, 128, 512)),
        ("rollout", "candidates", (4, 16, 32)),
        ("rollout", "turns", (2, 8, 16)),
        ("rollout", "roles", (1, 4, 8)),
        ("rollout", "prompt", (128, 1024, 8192)),
        ("step", "instances", (16, 64, 256)),
        ("step", "candidates", (4, 16, 32)),
        ("step", "turns", (2, 8, 16)),
        ("step", "roles", (2, 4, 8)),
        ("step", "policies", (1, 4, 8)),
        ("step", "prompt", (128, 512, 2048)),
    ],
)
def test_nothing_is_worse_than_linear_but_attention(what: str, axis: str, sizes: tuple[int, ...]) -> None:
    pytest.importorskip("trl")
    found = measure(what, axis, sizes, rounds=2)
    slack = 0.1  # a loaded machine disturbs a size by a tenth or more
    assert found.time.exponent <= found.limit + slack, found.line()
    assert found.memory.exponent <= 1 + TOLERANCE + slack, found.line()


# ---- 64 GPUs --------------------------------------------------------------------------------------------------------


def test_an_average_over_gpus_goes_twice_through_the_slowest_link() -> None:
    network = Cluster(per_node=8, inside=300.0, between=100.0, latency_s=0.0)
    assert network.all_reduce(600.0, 1) == 0
    assert network.all_reduce(600.0, 4) == pytest.approx(2 * 3 / 4 * 600 / 300)
    assert network.all_reduce(600.0, 16) == pytest.approx(2 * 15 / 16 * 600 / 100)
    assert replace(network, latency_s=0.5).all_reduce(0.0, 3) == pytest.approx(2.0)  # four hops


QUICK = (1e-9, 2e-9)
"""An environment's step takes no time."""
SPEED = Speed(name="s", step_s=1.0, row_s=0.0, prefill_s=0.0, max_num_seqs=64)
"""A second for each token, however many sequences there are."""


def lengths_of(workload: Workload) -> list[int]:
    """Tokens of each instance, of one candidate a decision: its seconds at `SPEED`."""
    return [sum(workload.num_tokens(place, 0) for place in workload.places(i)) for i in range(workload.instances)]


def test_all_rows_are_trained_on_once_on_some_gpu() -> None:
    workload = Workload(instances=6, turns=1, candidates=2)
    for num_gpus in (1, 5, 12):
        _, assignment = assigned(workload, num_gpus)
        rows = [row for gpu in range(num_gpus) for row in assignment.rows_of(gpu) if row is not None]
        assert sorted(rows) == list(range(6 * 2 * 2))  # instances, agents, candidates


def test_a_pass_takes_as_long_as_its_gpu_with_the_most_tokens() -> None:
    workload = Workload(instances=2, turns=1, candidates=1)
    sizes, _ = assigned(workload, 2)
    a, b, c, d = sorted(size.prompt - 1 + size.completion for size in sizes)  # four decisions in one pass
    assert tokens_of_passes(workload, 2) == max(a + d, b + c)
    assert tokens_of_passes(workload, 1) == a + b + c + d
    assert {size.prompt for size in sizes} == {PROMPT}


def test_a_gpu_without_instances_waits() -> None:
    first, second = rollout_seconds(SPEED, Workload(instances=1), 2)
    assert first == 0.0
    assert second > 0.0


def test_a_share_is_played_as_in_the_whole() -> None:
    workload = Workload(instances=2, turns=1, candidates=1, env_s=QUICK)
    lengths = lengths_of(workload)
    assert rollout_seconds(SPEED, workload, 2) == pytest.approx(lengths)
    # Together they are decoded beside each other; a request that comes within a decoding step waits for its end.
    (together,) = rollout_seconds(SPEED, workload, 1)
    assert max(lengths) <= together <= max(lengths) + 2


def test_a_gpu_takes_the_next_row_when_it_is_done_with_one() -> None:
    workload = Workload(instances=9, turns=1, candidates=1, env_s=QUICK)
    lengths = lengths_of(workload)
    done = [float(sum(lengths[3 * gpu : 3 * gpu + 3])) for gpu in range(3)]
    assert rollout_seconds(SPEED, workload, 3, max_envs=1, is_shared=False) == pytest.approx(done, rel=1e-6)
    done = [float(length) for length in lengths[:3]]
    for length in lengths[3:]:
        done[done.index(min(done))] += length
    assert rollout_seconds(SPEED, workload, 3, max_envs=1) == pytest.approx(done, rel=1e-6)


def test_turns_are_drawn_where_they_are_uneven() -> None:
    workload = Workload(instances=200, turns=4, is_uneven=True)
    turns = [len(workload.places(instance)) // 2 for instance in range(200)]
    assert set(turns) == set(range(1, 8))
    assert workload.places(3) == replace(workload, instances=4).places(3)


def test_a_step_is_the_slowest_rollout_the_fullest_passes_and_the_network() -> None:
    model = Model(speed=SPEED, parameters=1e3, trained=1e2)
    machine = Cluster(flops=1e6, inside=1e2, latency_s=0.0, step_s=3.0)
    workload = Workload(instances=2, turns=1, candidates=1, env_s=QUICK)
    step = cluster.step(model, machine, workload, 2)
    assert step.rollout == max(rollout_seconds(SPEED, workload, 2))
    assert step.update == pytest.approx(tokens_of_passes(workload, 2) * 8 * 1e3 / 1e6)
    assert step.network == pytest.approx(400 / 1e2 + 200 / 1e2)  # 2 * 1/2 * 4 bytes * 100, then 2 bytes * 100
    assert step.seconds == pytest.approx(step.rollout + step.update + step.network + 3.0)
    assert step.tokens == sum(completion_tokens(workload))
    twice = cluster.step(model, machine, workload, 2, updates=2)
    assert (twice.rollout, twice.fixed) == (step.rollout, 6.0)
    assert twice.network == pytest.approx(2 * 400 / 1e2 + 200 / 1e2)  # averaged in each update, renewed once


def at(num_gpus: int, rate: float) -> Step:
    return Step(
        num_gpus=num_gpus, tokens=1000, rollout=1000 / rate, mean_rollout=0, update=0, network=0, fixed=0
    )  # fmt: skip


def test_scaling_stops_where_twice_the_gpus_do_not_train_half_as_much_again() -> None:
    found = Scaling(name="m", batch="b", steps=(at(1, 100.0), at(2, 180.0), at(4, 260.0), at(8, 500.0)))
    assert found.stops == 2  # 260 < 1.5 * 180
    assert found.efficiency(found.steps[2]) == pytest.approx(260 / 4 / 100)
    assert Scaling(name="m", batch="b", steps=(at(1, 100.0), at(2, 150.0))).stops is None
    assert all(figure.computed for figure in figures([found]))


# ---- TRL's loop -----------------------------------------------------------------------------------------------------


def test_trls_loop_waits_for_the_longest_of_each_turn_and_plays_one_environment_after_another() -> None:
    pytest.importorskip("trl")
    from trl_loop import Episodes

    speed = Speed(name="s", step_s=1.0, row_s=0.0, prefill_s=0.0, max_num_seqs=64)
    workload = Workload(instances=3, turns=2, candidates=1)
    places = [workload.places(instance) for instance in range(3)]
    turns = list(zip(*places, strict=True))
    decoding = sum(max(workload.num_tokens(place, 0) for place in turn) for turn in turns)
    playing = sum(workload.step_seconds(place, 0) for turn in turns for place in turn)
    episodes = Episodes(speed, workload)
    assert episodes.run() == pytest.approx(decoding + playing)
    assert episodes.engine.tokens == sum(workload.num_tokens(place, 0) for turn in turns for place in turn)
    assert isinstance(episodes.clock, SimulatedClock)
