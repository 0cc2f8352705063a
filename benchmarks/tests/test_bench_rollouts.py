"""The simulated engine, threads and environment of benchmarks/bench_rollouts.py: seconds worked by hand."""

import statistics
from dataclasses import replace

import bench_rollouts
import pytest
from bench_rollouts import LARGE, TOOLS, WITH_GOALS, Case, Compared, Played, figures, in_real_time, main, simulate
from loop_cost import Cost, cost, rollout_of
from simulation import Game, SimulatedClock, SimulatedEngine, SimulatedThreads, Speed, WallClock, Workload

from pettingllms_trl.records import Prompt, Request


SLOW = Speed(name="slow", step_s=1.0, row_s=0.1, prefill_s=10.0, max_num_seqs=2)
TINY = Workload(instances=3, turns=1, candidates=2, tokens=5, longest=20, env_s=(0.01, 0.1))


class Fixed(Workload):
    """Lengths as the prompt says them: `"1 3"`."""

    def num_tokens(self, place: str, k: int) -> int:
        return int(place.split()[k])


class Equal(Workload):
    """One token each."""

    def num_tokens(self, place: str, k: int) -> int:
        return 1


def request(lengths: str) -> Request:
    return Request("drafter", Prompt([{"role": "user", "content": lengths}]), len(lengths.split()))


# ---- The simulation -------------------------------------------------------------------------------------------------


def test_the_engine_takes_a_steps_time_for_each_token_of_the_longest_and_a_prompts_once() -> None:
    # Two places. Step 1 takes both of ticket 7 (1 + 10 + 2 * 0.1), step 2 ticket 8 in the place of the one that ended
    # (1 + 10 + 2 * 0.1), step 3 what is left of ticket 7 (1 + 0.1).
    clock = SimulatedClock()
    engine = SimulatedEngine(clock, SLOW, Fixed(), is_batched=False)
    engine.submit(7, request("1 3"))
    engine.submit(8, request("1"))
    found = [(clock.now(), [ticket for ticket, _ in engine.step()]) for _ in range(3)]
    assert found == [(0, []), (pytest.approx(11.2), [8]), (pytest.approx(22.4), [7])]
    assert clock.now() == pytest.approx(23.5) == engine.busy
    assert engine.tokens == 5


def test_in_waves_the_engine_answers_all_when_the_last_is_done() -> None:
    clock = SimulatedClock()
    engine = SimulatedEngine(clock, SLOW, Fixed(), is_batched=True)
    engine.submit(7, request("1 3"))
    engine.submit(8, request("1"))
    answers = dict(engine.step())
    assert clock.now() == pytest.approx(23.5)
    assert [c.text for c in answers[7].completions] == ["0", "1"]
    assert [c.text for c in answers[8].completions] == ["0"]


def test_a_job_ends_when_a_thread_was_free_for_it_and_had_done_it() -> None:
    # Two threads: 3 s on the first, 1 s on the second, and after it there 2 s more.
    clock = SimulatedClock()
    threads = SimulatedThreads(clock, 2)
    for ticket, seconds in enumerate((3.0, 1.0, 2.0)):
        threads.submit(ticket, lambda seconds=seconds: clock.work(seconds), None)
    assert threads.done(block=False) == []
    assert (threads.done(block=True), clock.now()) == ([(1, None)], 1.0)
    clock.spend(2.5)
    assert threads.done(block=True) == [(0, None), (2, None)]
    assert clock.now() == 3.5


def test_what_an_environment_works_goes_by_in_the_job_that_works_it_and_candidates_may_be_kept_in_turn() -> None:
    clock = SimulatedClock()
    threads, seen = SimulatedThreads(clock, 2), []
    threads.submit(0, lambda: (seen.append(threads.now()), clock.work(3.0), seen.append(threads.now())), None)
    assert seen == [0.0, 3.0]
    assert (threads.num_workers, SimulatedThreads(clock, 2, in_turn=True).num_workers) == (2, 1)


def test_with_a_thread_for_each_candidate_a_decision_takes_its_longest_step_and_not_their_sum() -> None:
    # One instance, two candidates of one token: prompt, a step of 1.2 s, and then 0.4 and 0.4 s on two threads. That
    # the environment is slow is found out by the first step of all, before whose end the second does not begin.
    case = Case(SLOW, 2, Equal(instances=1, turns=2, candidates=2, env_s=(0.4, 0.4)))
    assert case.simulated(is_batched=False).seconds == pytest.approx(4 * (10 + 1.2) + 2 * 0.4 + 3 * 0.4)
    assert case.simulated(is_batched=False, in_turn=True).seconds == pytest.approx(4 * (10 + 1.2) + 8 * 0.4)
    assert case.bound() == pytest.approx(4 * (10 + 1.2) + 4 * 0.4)


def test_draws_are_those_of_their_place_and_as_the_workload_says() -> None:
    workload = Workload()
    lengths = [workload.num_tokens(str(i), k) for i in range(500) for k in range(8)]
    seconds = [workload.step_seconds(str(i), k) for i in range(500) for k in range(8)]
    assert 280 < statistics.mean(lengths) < 310  # 300, of which the cut takes a little
    assert 0.85 < statistics.stdev(lengths) / statistics.mean(lengths) < 1
    assert 0.23 < statistics.median(seconds) < 0.26  # sqrt(0.03 * 2)
    assert (min(seconds), max(seconds)) == (0.03, 2.0)
    assert lengths[:8] == [workload.num_tokens("0", k) for k in range(8)]
    assert lengths[:8] != [replace(workload, seed=1).num_tokens("0", k) for k in range(8)]


def test_the_game_takes_and_gives_what_its_place_says_and_can_be_restored() -> None:
    clock = SimulatedClock()
    env = Game(TINY, clock)
    env.reset(seed=2)
    assert env.observe("drafter") == "2 drafter 0"
    before = env.snapshot()
    for k in (0, 1):
        env.restore(before)
        env.step(str(k))
        assert env.rewards["judge"] == TINY.reward("2 drafter 0", k)
    assert clock.worked == TINY.step_seconds("2 drafter 0", 0) + TINY.step_seconds("2 drafter 0", 1)
    assert env.observe("judge") == "2 judge 0"
    env.step("0")
    assert all(env.terminations.values())


# ---- What is compared -----------------------------------------------------------------------------------------------


def test_one_instance_alone_takes_the_same_with_and_without_barriers_and_no_less_than_the_bound() -> None:
    # Of each decision: the prompt, its only candidate's tokens at 1.1 s each, and the environment's step.
    workload = replace(TINY, instances=1, candidates=1)
    case = Case(SLOW, 1, workload)
    by_hand = sum(10 + 1.1 * workload.num_tokens(p, 0) + workload.step_seconds(p, 0) for p in workload.places(0))
    assert len(workload.places(0)) == 2
    for is_batched in (False, True):
        assert case.simulated(is_batched=is_batched).seconds == pytest.approx(by_hand)
    assert case.bound() == pytest.approx(by_hand)


def test_the_bound_is_the_full_engines_where_there_is_more_to_decode_than_one_instances() -> None:
    case = Case(SLOW, 64, replace(TINY, instances=30))
    places = [p for i in range(30) for p in case.workload.places(i)]
    tokens = sum(case.workload.num_tokens(p, k) for p in places for k in range(2))
    assert case.bound() == pytest.approx(60 * 10 + tokens * (1 / 2 + 0.1))
    assert case.simulated(is_batched=False).seconds >= case.bound()


def test_without_barriers_the_same_is_played_in_less_time_with_less_of_it_idle() -> None:
    workload = Workload(instances=16, turns=2, candidates=4)
    compared = simulate(Case(LARGE, 16, workload))
    assert compared.free.tokens == compared.lockstep.tokens == compared.serial.tokens
    assert compared.met
    assert compared.serial.seconds > compared.lockstep.seconds > compared.at_once.seconds > compared.free.seconds
    assert compared.free.seconds > compared.no_tools.seconds
    assert compared.free.seconds > compared.case.bound()
    assert [row[5] for row in compared.rows()] == ["none", "lock-step", "lock-step, at once", "lock-step, serial"]


@pytest.mark.parametrize(
    ("free", "lockstep", "met"),
    [((10, 9), (15, 13), True), ((10, 9), (14.9, 10), False), ((10, 8), (15, 12), False)],
    ids=["both", "not fast enough", "idle too long"],
)
def test_the_goal_is_half_as_fast_again_and_half_as_idle(free: tuple, lockstep: tuple, met: bool) -> None:
    compared = Compared(Case(SLOW, 1, TINY), Played(*free, 0, []), Played(*lockstep, 0, []))
    assert compared.met is met


@pytest.mark.parametrize(
    ("seconds", "missed"),
    [
        ({}, []),
        ({"busy": 9.4}, [f"engine busy, {name}" for name in WITH_GOALS]),
        ({"lockstep": 13.9}, [f"a rollout, {name} / lock-step" for name in WITH_GOALS]),  # 1.5, 1.4 and 2 times 10
        ({"lockstep": 14.5}, ["a rollout, 8B / lock-step", f"a rollout, {TOOLS} / lock-step"]),
        ({"lockstep": 19.0}, [f"a rollout, {TOOLS} / lock-step"]),
        ({"serial": 19.0}, [f"a rollout, {TOOLS} / serial"]),
    ],
    ids=["all met", "idle", "not faster", "faster in one", "not faster with tools", "no faster than in turn"],
)
def test_each_goal_is_judged_by_the_median_of_its_case(seconds: dict[str, float], missed: list[str]) -> None:
    given = {"busy": 9.5, "lockstep": 20.0, "serial": 20.0, **seconds}
    compared = Compared(
        Case(SLOW, 1, TINY),
        Played(10.0, given["busy"], 0, []),
        Played(given["lockstep"], 5.0, 0, []),
        serial=Played(given["serial"], 5.0, 0, []),
    )
    saved = figures({name: [compared] for name in (*WITH_GOALS, "another")}, [], [], 10.0)
    assert [figure.name for figure in saved if figure.met is False] == missed
    assert sum(figure.met is not None for figure in saved) == 7
    assert all(figure.goal for figure in saved if figure.met is not None)


def test_real_threads_and_the_wall_clock_play_the_same() -> None:
    speed = Speed(name="wall", step_s=0.0005, row_s=0.0, prefill_s=0.0, max_num_seqs=8)
    compared = in_real_time(Case(speed, 3, replace(TINY, env_s=(0.001, 0.002))))
    assert compared.free.busy > 0
    assert compared.free.idle > 0
    clock = WallClock()
    begin = clock.now()
    clock.work(0.01)
    assert clock.now() - begin >= 0.01


def test_the_loops_own_cost_is_what_the_environment_does_not_take() -> None:
    found = cost("plan_path", repeats=1)
    assert found.decisions == sum(len(e.decisions) for e in rollout_of("plan_path")()) > 64
    assert found.own_us == found.all_us - found.env_us
    made = Cost("plan_path", decisions=500, all_us=300.0, env_us=100.0)
    assert made.share(seconds=10) == pytest.approx(0.01)  # 500 * 200 us = 0.1 s


def test_the_report_says_all_and_strict_fails_on_a_missed_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wall = Speed(name="wall", step_s=0.0005, row_s=0.0, prefill_s=0.0, max_num_seqs=8)
    monkeypatch.setattr(bench_rollouts, "real_case", lambda seed: Case(wall, 3, replace(TINY, env_s=(0.001, 0.002))))
    monkeypatch.setattr(bench_rollouts, "cases", lambda seed: {"8B": Case(SLOW, 1, replace(TINY, instances=1))})
    assert main(["--seeds", "1", "--repeats", "1", "--strict"]) == 1  # alone, nobody waits for anybody: 1x
    out = capsys.readouterr().out
    assert "8B: 1.00x lock-step's throughput" in out
    assert "wall clock: " in out
    assert "sokoban: " in out
    assert "middle prompt, " in out
    assert "MISSED" in out
    with pytest.raises(SystemExit):
        main(["--seeds", "0"])
