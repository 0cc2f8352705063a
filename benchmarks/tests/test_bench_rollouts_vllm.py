"""The two sides of benchmarks/bench_rollouts_vllm.py on an engine worked by hand; with `-m vllm`, a round of it."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import bench_rollouts_vllm
import pytest
from bench_rollouts_vllm import Round, figures, summary
from figures import read
from simulation import Workload
from vllm_team import Apart, Drawn, Played, Team, rollout

from pettingllms_trl import MultiAgentGRPOConfig
from pettingllms_trl.engines.kinds import PromptCodec
from pettingllms_trl.records import Completion, Prompt, Request, Sampled


LENGTHS = {
    "0 drafter 0": (1, 4),
    "0 judge 0": (1, 1),
    "1 drafter 0": (2, 2),
    "1 judge 0": (3, 1),
}
TWO = Workload(instances=2, turns=1, candidates=2)


class Table:
    """Answers a request after as many passes as `LENGTHS` says, a token each."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}
        self._length: dict[int, int] = {}

    def rollout(self, name: str) -> Any:
        return nullcontext()

    def submit(self, ticket: int, request: Request) -> None:
        assert request.num_candidates == 1
        self._left[ticket] = self._length[ticket] = LENGTHS[request.prompt.messages[0]["content"]][ticket % 2]

    def step(self) -> Sequence[tuple[int, Sampled]]:
        self._left = {ticket: left - 1 for ticket, left in self._left.items()}
        done = [ticket for ticket, left in self._left.items() if left == 0]
        for ticket in done:
            del self._left[ticket]
        ids = {ticket: (ticket,) * self._length[ticket] for ticket in done}
        return [
            (t, Sampled(Prompt((), (0,)), (Completion(ids=ids[t], text="", logprobs=(0.0,) * len(ids[t])),)))
            for t in done
        ]


def request(place: str) -> Request:
    return Request("drafter", Prompt([{"role": "user", "content": place}]), 2)


def test_a_decision_is_answered_with_the_last_of_its_candidates_each_with_its_own_number() -> None:
    engine = Apart(Table(), 2, is_batched=False)
    engine.submit(7, request("0 drafter 0"))  # 1 and 4 passes
    engine.submit(3, request("1 drafter 0"))  # 2 and 2
    found = [[ticket for ticket, _ in engine.step()] for _ in range(3)]
    assert found == [[], [3], []]
    ((ticket, sampled),) = engine.step()
    assert ticket == 7
    assert [(c.text, c.ids) for c in sampled.completions] == [("0", (14,)), ("1", (15, 15, 15, 15))]
    assert (engine.passes, engine.tokens) == (4, 9)


def test_in_waves_all_are_answered_with_the_last_of_them() -> None:
    engine = Apart(Table(), 2, is_batched=True)
    engine.submit(7, request("0 drafter 0"))
    engine.submit(3, request("1 drafter 0"))
    assert sorted(ticket for ticket, _ in engine.step()) == [3, 7]
    assert (engine.passes, engine.tokens) == (4, 9)


def test_lock_step_takes_the_longest_of_each_turn_and_free_instances_the_longest_sum() -> None:
    # Instance 0 takes max(1, 4) + max(1, 1) = 5 passes, instance 1 max(2, 2) + max(3, 1) = 5. In lock-step the first
    # turn takes max(4, 2), the second max(1, 3): 7.
    free, lockstep = (rollout(Table(), TWO, is_batched=is_batched) for is_batched in (False, True))
    assert (free.passes, lockstep.passes) == (5, 7)
    assert free.tokens == lockstep.tokens == 5 + 2 + 4 + 4
    assert free.episodes == lockstep.episodes
    assert Round(free, lockstep).same == 1.0


def test_a_candidate_is_asked_for_as_many_tokens_as_were_drawn_for_its_place(tmp_path: Path) -> None:
    args = MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to="none")
    codec = PromptCodec(tokenize=lambda prompt: [5, 6], decode=lambda ids: "")
    sampling = Drawn.of_config(args, {"drafter": codec})
    sampling.workload = Workload(candidates=4, tokens=64)
    one = Request("drafter", Prompt([{"role": "user", "content": "3 drafter 1"}]), 1)
    asked = [sampling.ask(4 * 9 + k, one, 1024).parameters for k in range(4)]
    lengths = [sampling.workload.num_tokens("3 drafter 1", k) for k in range(4)]
    assert len(set(lengths)) > 1
    assert [each["max_tokens"] for each in asked] == lengths
    assert all(each["ignore_eos"] for each in asked)
    assert len({each["seed"] for each in asked}) == 4


def took(seconds: float, passes: int) -> Played:
    return Played(seconds=seconds, cpu_seconds=seconds, passes=passes, tokens=1000, episodes=())


@pytest.mark.parametrize(("lockstep", "met"), [((13.0, 11.0, 12.5), True), ((11.9, 13.0, 11.0), False)])
def test_the_goal_is_for_the_median_round(lockstep: Sequence[float], met: bool) -> None:
    rounds = [Round(took(10.0, 100), took(seconds, 150)) for seconds in lockstep]
    rate, cpu, passes = figures(rounds)
    assert (rate.met, cpu.met) == (None, met)
    assert (rate.ours, passes.ratios) == ((100.0,) * 3, (1.5,) * 3)
    assert cpu.ratios == tuple(seconds / 10 for seconds in lockstep)
    assert f"{sorted(lockstep)[1] / 10:.2f}x ({min(lockstep) / 10:.2f}-{max(lockstep) / 10:.2f})" in summary(rounds)


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_on_the_real_engine_both_sides_sample_the_same_tokens_and_lock_step_takes_more_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vllm", reason="needs the extra `vllm`")
    rounds: list[Round] = []
    compare = bench_rollouts_vllm.compare

    def kept(team: Team, workload: Workload, *, free_first: bool) -> Round:
        rounds.append(compare(team, workload, free_first=free_first))
        return rounds[-1]

    monkeypatch.setattr(bench_rollouts_vllm, "compare", kept)
    file = tmp_path / "rollouts.json"
    status = bench_rollouts_vllm.main(["--rounds", "1", "--instances", "6", "--tokens", "16", "--json", str(file)])
    assert status == 0
    assert [figure.unit for figure in read(file)] == ["tokens/s", "CPU s", "passes"]
    _, measured = rounds
    assert measured.free.tokens == measured.lockstep.tokens
    assert measured.same > 0.9
    assert measured.lockstep.passes > measured.free.passes
    own = [d.agent for e in measured.free.episodes for d in e.decisions]
    assert own == ["drafter", "judge"] * 18
