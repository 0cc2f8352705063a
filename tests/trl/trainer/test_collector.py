"""The collector and the reporter without a model: a generation holds what was played for it, and what is logged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pettingllms_trl.credit import at_grpo, facts_of, nonzero_variance
from pettingllms_trl.credit.reward_functions import RewardFunctions
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.policies.routing import route
from pettingllms_trl.processes.row_sharing import RowSharing
from pettingllms_trl.records import Completion, DataRow, Request, Sampled
from pettingllms_trl.rollout.curriculum import Curricula
from pettingllms_trl.rollout.play import EnvironmentSource
from pettingllms_trl.trainer.collector import RolloutCollector
from pettingllms_trl.trainer.monitor import LearningMonitor
from pettingllms_trl.trainer.reporting import GenerationReporter
from short_runs import settings
from third_party import Dull


ONE_PROCESS: Any = SimpleNamespace(num_processes=1, process_index=0, is_main_process=True)
ROUTING = route("lora", ["opener_0", "closer_0"], model="base", tokenizer=None)
OPENER, CLOSER = ROUTING.trained


def answer(requests: Sequence[Request]) -> list[Sampled]:
    """The k-th candidate is "A" k times, then "Z" up to four letters: each is worth something else."""
    texts = ["A" * k + "Z" * (4 - k) for k in range(4)]
    return [
        Sampled(
            replace(request.prompt, ids=(7, 8)),
            tuple(Completion(ids=(k, 9), text=texts[k]) for k in range(request.num_candidates)),
        )
        for request in requests
    ]


def collector_of(path: Path, *, rewards: RewardFunctions | None = None, filters: Any = (), **options: Any) -> Any:
    names: list[str] = []

    def sampling(name: str) -> Any:
        names.append(name)
        return nullcontext(BatchedEngine(answer))

    def rows_at(start: int, number: int) -> list[DataRow]:
        return [{"seed": place} for place in range(start, start + number)]

    setup: Any = SimpleNamespace(
        args=settings(path, **{"sampling": "tree", **options}),
        routing=ROUTING,
        envs={},
        rewards=rewards or RewardFunctions(None, None),
        filters=filters,
        curricula=Curricula({}),
        branched=None,
    )
    collector = RolloutCollector(
        setup,
        ONE_PROCESS,
        source=EnvironmentSource(make_env=partial(Dull, 1), pool={"": []}),
        sharing=RowSharing(1, 0),
        extensions={},
        sampling=sampling,
        reward_context=lambda: {"trainer_state": None, "log_metric": lambda name, value: None},
        rows_per_generation=2,
        rows_at=rows_at,
    )
    return collector, names


def test_a_generation_has_its_rows_its_episodes_and_the_decisions_of_those_that_learn(tmp_path: Path) -> None:
    collector, names = collector_of(tmp_path)
    generation = collector.collect([{"seed": 0}, {"seed": 2}], name="5", learning=(CLOSER,))
    assert generation.rows == [{"seed": 0}, {"seed": 2}]
    assert [episode.instance for episode in generation.played.episodes] == [0, 1]
    assert [(d.instance, d.agent, len(d.candidates)) for d in generation.decisions] == [
        (0, "closer_0", 4),
        (1, "closer_0", 4),
    ]
    # The opener does not learn, so it answers once: 2 tokens; the closer's four candidates have 8.
    assert generation.played.counts == {"dropped": 0, "retried": 0, "sampled_tokens": 20}
    assert names == ["42/5"]
    assert collector.rows_played.number == 2


def test_further_rows_are_the_next_of_the_data_and_instances_are_numbered_on(tmp_path: Path) -> None:
    collector, names = collector_of(tmp_path, filters=[nonzero_variance], max_resamples=3)
    generation = collector.collect([], name="0", learning=(OPENER, CLOSER))
    # Two rows a generation. Of each two the odd one is flat and dropped: one row is left, and about two more are asked
    # for to get another. Rows 0 to 3 are played, of which 0 and 2 are trained on.
    assert [row["seed"] for row in generation.rows] == [0, 1, 2, 3]
    assert names == ["42/0", "42/0+1"]
    assert [episode.instance for episode in generation.played.episodes] == [0, 1, 2, 3]
    kept = {generation.decisions[i].instance for i in generation.selection.kept.indices}
    assert kept == {0, 2}
    assert generation.played.counts["sampled_tokens"] == 4 * 2 * 8  # rows, agents, tokens of four candidates
    assert collector.rows_played.number == 4


def test_evaluation_plays_each_row_in_parallel_and_leaves_the_place_in_the_data_alone(tmp_path: Path) -> None:
    collector, _ = collector_of(tmp_path)
    played = collector.play([{"seed": 3}], num_episodes=2, name="eval/0")
    assert [(e.instance, e.episode, len(e.decisions)) for e in played.episodes] == [(0, 0, 2), (0, 1, 2)]
    assert collector.rows_played.number == 0


def lengths(completions: list[Any], agent: list[str], log_extra: Any, **_: Any) -> list[float | None]:
    log_extra("first", [completion[0]["content"][0] for completion in completions])
    return [None if agent[0] == "opener_0" else 10.0 * k for k in range(len(completions))]


def reporter_of(path: Path, collector: Any, **options: Any) -> GenerationReporter:
    team: Any = SimpleNamespace(routing=ROUTING)
    setup: Any = SimpleNamespace(
        args=settings(path, sampling="tree", log_rollouts=False, audit=None, **options),
        envs={"": [Dull(1)]},
        credit=at_grpo,
        environment="relay",
        rewards=SimpleNamespace(names=["lengths"]),
        weigh=None,
        branched=None,
    )
    facts = facts_of(at_grpo, setup.args.sampling)
    monitor = LearningMonitor({})
    return GenerationReporter(setup, team, facts, collector, monitor, temperature=1.0, is_main=True)


def test_scores_of_reward_functions_stay_with_the_generation_and_are_logged_of_it(tmp_path: Path) -> None:
    collector, _ = collector_of(tmp_path, rewards=RewardFunctions([lengths], None))
    reporter = reporter_of(tmp_path, collector)
    generation = collector.collect([{"seed": 0}], name="0", learning=(OPENER, CLOSER))
    metrics = reporter.metrics_of(generation, step=0, is_first=True)
    # Of the closer's four candidates 0, 10, 20, 30; the opener has none.
    assert metrics["rewards/lengths/mean"] == [15.0]
    assert metrics["rollout/sampled_tokens"] == [16]
    assert metrics["agent/closer_0/frac_reward_zero_std"] == [0.0]
    _, closer = generation.decisions
    assert [candidate.parts for candidate in closer.candidates] == [{"lengths": 10.0 * k} for k in range(4)]
    assert reporter.table_of([closer], generation.played) == {
        "lengths": [0.0, 10.0, 20.0, 30.0],
        "first": ["Z", "A", "A", "A"],
    }


def test_a_generation_of_which_the_filters_leave_nothing_is_warned_of(tmp_path: Path) -> None:
    collector, _ = collector_of(tmp_path, filters=[nonzero_variance])
    reporter = reporter_of(tmp_path, collector)
    generation = collector.collect([{"seed": 1}, {"seed": 3}], name="4", learning=(OPENER, CLOSER))
    with pytest.warns(UserWarning, match="step 4: the filters dropped every decision"):
        metrics = reporter.metrics_of(generation, step=4, is_first=False)
    assert (metrics["rollout/empty"], metrics["rollout/rows"]) == ([1.0], [2])
