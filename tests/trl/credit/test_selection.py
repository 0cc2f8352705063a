"""Filters and dynamic sampling in training: what is left, what is played for it, and what the loss makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from datasets import Dataset

from decisions import candidate, decision_of
from mortal import equal, mortal
from moved_weights import weights
from pettingllms_trl import Curriculum, Decision, Episode, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.cli.trees import trees
from pettingllms_trl.credit import Kept, at_grpo, nonzero_variance, signal_to_noise
from pettingllms_trl.credit.selection import metrics_of, num_tokens, select, shifted
from pettingllms_trl.records import Prompt
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT
from pettingllms_trl.trainer.dataloading import EpochSampler, places
from short_runs import KeepsBatches, KeepsGradients, KeepsRollouts, keep_all_rows, settings
from third_party import Dull, OneShot, Relay


# ---- Pure -----------------------------------------------------------------------------------------------------------


def choice(agent: str, rewards: Sequence[float], instance: int = 0) -> Decision:
    prompt = Prompt([{"role": "user", "content": "?"}], (0, 1))
    return decision_of(agent, [candidate(reward, (0,) * 3) for reward in rewards], instance=instance, prompt=prompt)


# Variances: a 0, 0.5, 8; b 2, 0, 0.5.
PLAYED = [
    choice("a", [1, 1], 0),
    choice("b", [2, 0], 0),
    choice("a", [1, 0], 1),
    choice("b", [3, 3], 1),
    choice("a", [4, 0], 2),
    choice("b", [1, 0], 2),
]
chosen = partial(select, num_played=3, num_wanted=3, resample=False)


def test_each_filter_sees_what_those_before_it_left_and_is_charged_for_what_it_dropped() -> None:
    # Of a 0.5 and 8, the 8 holds 0.94; of b 2 and 0.5, the 2 holds 0.8 and both are needed for 0.9.
    selection = chosen(PLAYED, [nonzero_variance, partial(signal_to_noise, threshold=0.9)])
    assert selection.kept.indices == (1, 4, 5)
    assert selection.dropped == {
        ("a", "nonzero_variance"): 1,
        ("b", "nonzero_variance"): 1,
        ("a", "signal_to_noise"): 1,
        ("b", "signal_to_noise"): 0,
    }
    assert selection.of("012345") == ["1", "4", "5"]
    assert (selection.num_more, selection.surplus) == (0, {})


def test_an_agent_that_lost_all_in_one_filter_is_charged_nothing_by_the_next() -> None:
    def of_b(decisions: Sequence[Decision]) -> Kept:
        return Kept.of(decisions, [i for i, d in enumerate(decisions) if d.agent == "b"])

    assert chosen(PLAYED, [of_b, nonzero_variance]).dropped == {
        ("a", "of_b"): 3,
        ("b", "of_b"): 0,
        ("a", "nonzero_variance"): 0,
        ("b", "nonzero_variance"): 1,
    }


def test_without_filters_everything_stays() -> None:
    selection = chosen(PLAYED, [])
    assert selection.kept.indices == tuple(range(6))
    assert metrics_of(selection, num_played=3, num_wanted=3) == {
        "rollout/rows": 3,
        "rollout/resampled_rows": 0,
        "rollout/empty": 0.0,
        "agent/a/decisions": 3,
        "agent/b/decisions": 3,
    }


def test_a_batch_that_is_not_full_asks_for_rows_and_one_that_is_more_than_full_is_cut() -> None:
    # 4 of 6 decisions stay: 2 rows of 3. For 3 rows, 1 * 3 / 2 = 1.5 more; for 1 row (2 decisions), rows 0 and 1.
    short = select(PLAYED, [nonzero_variance], num_played=3, num_wanted=3, resample=True)
    assert (short.num_more, short.kept.indices, short.surplus) == (2, (1, 2, 4, 5), {"a": 0, "b": 0})
    full = select(PLAYED, [nonzero_variance], num_played=3, num_wanted=1, resample=True)
    assert (full.num_more, full.kept.indices, full.surplus) == (0, (1, 2), {"a": 1, "b": 1})
    assert metrics_of(full, num_played=3, num_wanted=1) == {
        "rollout/rows": 3,
        "rollout/resampled_rows": 2,
        "rollout/empty": 0.0,
        "agent/a/decisions": 1,
        "agent/b/decisions": 1,
        "agent/a/dropped/nonzero_variance": 1,
        "agent/b/dropped/nonzero_variance": 1,
        "agent/a/dropped/surplus": 1,
        "agent/b/dropped/surplus": 1,
    }


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda ds: [0, 1], TypeError, r"<lambda>.*a list.*Kept\.of\("),
        (
            lambda ds: Kept.of(ds, [1, 0]),
            ValueError,
            r"\[1, 0\] of 6 decisions",
        ),
        (lambda ds: Kept((ds[0],), (6,), {}), ValueError, r"\[6\] of 6 decisions"),
        (lambda ds: Kept((ds[0],), (1,), {}), ValueError, r"other decisions.*\[1\]"),
    ],
    ids=["a list", "out of order", "out of range", "another decision"],
)
def test_what_is_not_some_of_the_decisions_is_refused(returned: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        chosen(PLAYED, [returned])


def test_rows_that_are_played_later_have_instances_of_their_own() -> None:
    played = [Episode(instance=i, episode=0, decisions=(choice("a", [1], i),), returns={}, outcome={}) for i in (0, 1)]
    later = shifted(played, 5)
    assert [(e.instance, e.decisions[0].instance) for e in later] == [(5, 5), (6, 6)]
    assert num_tokens([d for e in later for d in e.decisions]) == 10  # 2 of the prompt and 3 of the completion, twice


def test_the_rows_at_some_places_are_those_that_the_data_loader_gives_there() -> None:
    sampler = EpochSampler(range(7), mini_repeat_count=1, batch_size=2, repeat_count=1, seed=5)
    epochs: list[int] = []
    for epoch in range(4):
        sampler.epoch = epoch
        epochs += list(sampler)
    assert len(epochs) == 24  # of 7 rows the last one makes no batch
    for start in range(12):
        for number in (0, 1, 5, 12):
            assert places(sampler, start, number) == epochs[start : start + number]


# ---- In training ----------------------------------------------------------------------------------------------------


BRIEF = partial(Dull, 1)
ONLY_DULL = Dataset.from_dict({"seed": [1, 3, 5, 7]})


class Watched(KeepsRollouts, KeepsBatches, MultiAgentGRPOTrainer):
    """Keeps the gradients before each step as well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kept = KeepsGradients()
        self.gradients = kept.steps
        super().__init__(*args, callbacks=[kept], **kwargs)

    @property
    def seeds(self) -> list[list[int]]:
        """Of each rollout's rows."""
        return [[row["seed"] for row in rows] for rows in self.rollout_rows]


def made(model: str, path: Path, *, env: Any = BRIEF, dataset: Any = None, **options: Any) -> Watched:
    """4 rows of 2 candidates a generation; a row has a decision of each agent."""
    names = ("credit", "filters", "policies", "curriculum")
    own = {name: options.pop(name) for name in names if name in options}
    arguments = {
        "num_generations": 2,
        "max_completion_length": 6,
        "max_grad_norm": 0.0,  # gradients as they are
        "seed": 5,
        "shuffle_dataset": False,
        "audit": "stop",
    }
    args = settings(path, **{**arguments, **options})
    data = Dataset.from_dict({"seed": range(16)}) if dataset is None else dataset
    return Watched(model, env, args, data, **own)


def num_sequences(trainer: Watched) -> int:
    return sum(len(batch["advantages"]) for batch in trainer.batches)


def logged(trainer: Watched, key: str) -> list[float]:
    return [log[key] for log in trainer.state.log_history if key in log]


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
def test_the_normaliser_of_the_loss_follows_what_is_left(loss_type: str, model_path: str, tmp_path: Path) -> None:
    """A group that is dropped has advantage 0: it adds nothing to the gradient but its size to the denominator."""
    options = {"loss_type": loss_type, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    whole = made(model_path, tmp_path / "whole", **options)
    keep_all_rows(whole)
    whole.train()
    filtered = made(model_path, tmp_path / "filtered", filters="nonzero_variance", **options)
    filtered.train()
    assert whole.seeds == filtered.seeds  # what is sampled does not depend on the filter
    decisions = [d for episodes in whole.rollouts for e in episodes for d in e.decisions]
    left = [d for d in decisions if len({c.reward for c in d.candidates}) > 1]
    assert 0 < len(left) < len(decisions)
    assert (num_sequences(whole), num_sequences(filtered)) == (2 * len(decisions), 2 * len(left))
    if loss_type == "dapo":
        sizes = [sum(len(c.completion.ids) for d in ds for c in d.candidates) for ds in (decisions, left)]
    else:
        sizes = [len(decisions), len(left)]
    for name, gradient in filtered.gradients[0].items():
        expected = whole.gradients[0][name] * sizes[0] / sizes[1]
        assert torch.allclose(gradient, expected, atol=2e-6, rtol=1e-4), name


def test_what_filters_drop_is_logged_by_agent_and_filter(model_path: str, tmp_path: Path) -> None:
    trainer = made(model_path, tmp_path, filters="nonzero_variance", max_steps=2)
    trainer.train()
    for step, episodes in enumerate(trainer.rollouts):
        for agent in ("opener_0", "closer_0"):
            own = [d for e in episodes for d in e.decisions if d.agent == agent]
            flat = sum(len({c.reward for c in d.candidates}) == 1 for d in own)
            assert logged(trainer, f"agent/{agent}/dropped/nonzero_variance")[step] == flat > 0
            assert logged(trainer, f"agent/{agent}/decisions")[step] == len(own) - flat
    assert logged(trainer, "rollout/rows") == [4, 4]
    everything = [d for episodes in trainer.rollouts for e in episodes for d in e.decisions]
    assert logged(trainer, "num_tokens")[-1] == num_tokens(everything)  # the dropped were generated, too


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_the_credit_sees_all_decisions_once_a_generation_and_its_advantages_follow(
    loss_type: str, model_path: str, tmp_path: Path
) -> None:
    seen: list[int] = []

    def spying(decisions: Sequence[Decision]) -> Any:
        seen.append(len(decisions))
        return [[float(i), -float(i)] for i in range(len(decisions))]

    trainer = made(
        model_path,
        tmp_path,
        credit=spying,
        filters="nonzero_variance",
        max_resamples=2,
        max_steps=2,
        log_completions=True,
        num_completions_to_print=0,
        loss_type=loss_type,
    )
    trainer.train()
    rows = [sum(len(seeds) for seeds in trainer.seeds[first:last]) for first, last in waves(trainer)]
    assert seen[1:] == [2 * number for number in rows]  # the first call tries a made-up rollout
    for step, (first, last) in enumerate(waves(trainer), start=1):
        table = pandas.read_parquet(tmp_path / "completions" / f"completions_{step:05d}.parquet")
        decisions = [d for episodes in trainer.rollouts[first:last] for e in episodes for d in e.decisions]
        varied = [i for i, d in enumerate(decisions) if len({c.reward for c in d.candidates}) > 1]
        assert list(table["advantage"][::2]) == varied[: len(table) // 2]
        assert table["instance"].is_monotonic_increasing
        assert len(table) // 2 == len(varied[:8]) or len(table) // 2 > 8


def waves(trainer: Watched) -> list[tuple[int, int]]:
    """Where the waves of each generation begin and end among the rollouts, by the logged numbers of rows."""
    found, first = [], 0
    for number in logged(trainer, "rollout/rows"):
        last = first
        while sum(map(len, trainer.seeds[first:last])) < number:
            last += 1
        found.append((first, last))
        first = last
    return found


def test_further_rows_are_played_until_enough_is_left_and_are_the_next_of_the_data(
    model_path: str, tmp_path: Path
) -> None:
    options = {"max_resamples": 5, "max_steps": 3, "shuffle_dataset": True}
    trainer = made(model_path, tmp_path, filters="nonzero_variance", **options)
    trainer.train()
    played = [seed for seeds in trainer.seeds for seed in seeds]
    sampler = EpochSampler(range(16), mini_repeat_count=1, batch_size=4, repeat_count=1, seed=5)
    assert played == places(sampler, 0, len(played))
    assert sorted(played[:16]) == list(range(16))  # none twice before each was played once
    assert len(trainer.seeds) > 3
    assert all(len(seeds) <= 4 for seeds in trainer.seeds)
    assert logged(trainer, "rollout/data_epoch")[-1] == len(played) / 16
    kept = [
        sum(logged(trainer, f"agent/{agent}/decisions")[step] for agent in ("opener_0", "closer_0"))
        for step in range(3)
    ]
    assert all(8 <= number <= 9 for number in kept)  # 4 rows of 2; the last row may bring one more than needed
    assert num_sequences(trainer) == 2 * sum(kept)


def test_further_rows_are_played_so_many_times_at_most(model_path: str, tmp_path: Path) -> None:
    trainer = made(model_path, tmp_path, filters="nonzero_variance", max_resamples=2, dataset=ONLY_DULL)
    with pytest.warns(UserWarning, match="dropped every decision"):
        trainer.train()
    assert trainer.seeds == [[1, 3, 5, 7]] * 3
    assert logged(trainer, "rollout/resampled_rows") == [8]


def test_where_nothing_is_dropped_a_run_with_resampling_equals_one_without(model_path: str, tmp_path: Path) -> None:
    runs = []
    for number in (0, 3):
        options = {"max_steps": 5, "shuffle_dataset": True, "gradient_accumulation_steps": 2}
        run = made(model_path, tmp_path / str(number), env=partial(Relay, 1), max_resamples=number, **options)
        run.train()
        runs.append(run)
    assert runs[0].seeds == runs[1].seeds
    assert len(runs[0].seeds) == 5  # past the end of the data's first epoch, of two generations of 8
    assert equal(weights(runs[0]), weights(runs[1]))


class Breaks(OneShot):
    """Fails in the row with the seed 3, whichever environment plays it."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        if seed == 3:
            raise RuntimeError("out of order")


def test_rows_that_an_environment_failed_in_are_played_for(model_path: str, tmp_path: Path) -> None:
    trainer = made(
        model_path,
        tmp_path,
        env=Breaks,
        max_resamples=2,
        per_device_train_batch_size=16,  # 8 rows of 2
        dataset=Dataset.from_dict({"seed": range(16)}),
    )
    keep_all_rows(trainer)
    with pytest.warns(UserWarning, match="instance was dropped"):
        trainer.train()
    # 7 of 8 rows are there: 1 * 8 / 7 = 1.1, so 2 more, of which one is more than enough.
    assert trainer.seeds == [list(range(8)), [8, 9]]
    assert logged(trainer, "agent/solver_0/decisions") == [8]
    assert logged(trainer, "agent/solver_0/dropped/surplus") == [1]
    trained = {instance for batch in trainer.batches for instance in batch["instance"].tolist()}
    assert trained == {0, 1, 2, 4, 5, 6, 7, 8}


@pytest.mark.parametrize("max_resamples", [0, 1])
def test_a_generation_that_nothing_is_left_of_changes_nothing_and_is_said(
    max_resamples: int, model_path: str, tmp_path: Path
) -> None:
    trainer = made(
        model_path,
        tmp_path,
        dataset=ONLY_DULL,
        filters="nonzero_variance",
        max_resamples=max_resamples,
        max_steps=2,
        weight_decay=0.5,
        max_grad_norm=1.0,
        log_completions=True,
        beta=0.1,
    )
    before = weights(trainer)
    with pytest.warns(UserWarning, match="dropped every decision"):
        trainer.train()
    assert trainer.state.global_step == 2
    assert equal(before, weights(trainer))
    assert logged(trainer, "rollout/empty") == [1, 1]
    assert logged(trainer, "rollout/rows") == [4 + 4 * max_resamples] * 2
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00002.parquet")
    assert len(table) == 0
    assert list(trees(table)) == []


def test_a_step_after_an_empty_one_learns(model_path: str, tmp_path: Path) -> None:
    data = Dataset.from_dict({"seed": [1, 3, 5, 7, 0, 2, 4, 6]})
    trainer = made(model_path, tmp_path, dataset=data, filters="nonzero_variance", max_steps=2, shuffle_dataset=False)
    before = weights(trainer)
    with pytest.warns(UserWarning, match="dropped every decision"):
        trainer.train()
    assert logged(trainer, "rollout/empty") == [1, 0]
    assert not equal(before, weights(trainer))


def test_partners_that_teach_nobody_are_neither_filtered_nor_counted(model_path: str, tmp_path: Path) -> None:
    trainer = made(
        model_path,
        tmp_path,
        policies={"opener": Policy(model=model_path), "closer": Policy(model=model_path, trainable=False)},
        filters="nonzero_variance",
        max_resamples=3,
    )
    trainer.train()
    assert not logged(trainer, "agent/closer_0/decisions")
    assert logged(trainer, "agent/opener_0/decisions") == [4]
    assert num_sequences(trainer) == 8


def test_a_curriculum_counts_the_rows_that_were_played_for_what_was_dropped(model_path: str, tmp_path: Path) -> None:
    class Graded(Dull):
        """Says how it ended; nobody is paid on level 1 at all."""

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            super().reset(seed, options)
            self.level = (options or {}).get("level", 1)

        def step(self, action: str | None) -> None:
            super().step(action)
            self.infos = {agent: {"outcome": {"success": True}} for agent in self.agents}

    trainer = made(
        model_path,
        tmp_path,
        env=partial(Graded, 1),
        dataset=ONLY_DULL,
        filters="nonzero_variance",
        max_resamples=1,
        curriculum=Curriculum(levels=(1, 2), window=8, advance_at=1.0),
    )
    with pytest.warns(UserWarning, match="dropped every decision"):
        trainer.train()
    assert trainer.collector.curricula.progress[DEFAULT_ENVIRONMENT].index == 1  # 8 rows in one generation of 4
    # All that the generation sampled, of both waves, where `rollout/completion_tokens` has it summed over episodes.
    assert logged(trainer, "rollout/sampled_tokens") == logged(trainer, "rollout/completion_tokens")


# ---- Survival -------------------------------------------------------------------------------------------------------


RESAMPLED = {"env": BRIEF, "filters": "nonzero_variance", "max_resamples": 3}


@pytest.mark.parametrize(
    ("inside", "steps"),
    [
        pytest.param({}, (2,), marks=pytest.mark.slow),
        ({"gradient_accumulation_steps": 1, "steps_per_generation": 2}, (1, 2)),
    ],
    ids=["between generations", "inside a generation"],
)
def test_a_resumed_run_goes_on_at_its_place_in_the_data(
    inside: Any, steps: tuple[int, ...], model_path: str, tmp_path: Path
) -> None:
    whole = mortal(model_path, tmp_path / "whole", steps=3, **RESAMPLED, **inside)
    whole.train()
    assert len(whole.rollouts) > 3  # more waves than generations
    for step in steps:
        folder = tmp_path / "whole" / f"checkpoint-{step}"
        resumed = mortal(model_path, tmp_path / f"from {step}", steps=3, **RESAMPLED, **inside)
        resumed.train(resume_from_checkpoint=str(folder))
        assert equal(weights(whole), weights(resumed))
        assert resumed.rollouts == whole.rollouts[len(whole.rollouts) - len(resumed.rollouts) :]
        assert 0 < len(resumed.rollouts) < len(whole.rollouts)
        assert resumed.collector.rows_played.number == whole.collector.rows_played.number
        place = torch.load(folder / "place_0.pt", weights_only=True)["parts"]["rows"]["number"]
        assert 0 < place < whole.collector.rows_played.number


# ---- The door -------------------------------------------------------------------------------------------------------

STREAM = Dataset.from_dict({"seed": range(16)}).to_iterable_dataset()
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "unknown filter": (
        {"filters": "nonzero_varianc"},
        ValueError,
        r"nonzero_varianc'.*'nonzero_variance'",
    ),
    "unknown option": (
        {"filters": {"signal_to_noise": {"treshold": 0.5}}},
        ValueError,
        r"signal_to_noise.*'treshold'.*'threshold'",
    ),
    "option out of range": (
        {"filters": [{"signal_to_noise": {"threshold": 2.0}}]},
        ValueError,
        r"threshold=2\.0",
    ),
    "filter of no kind": ({"filters": [3]}, TypeError, "filter is 3"),
    "filter that returns a list": ({"filters": lambda ds: list(ds)}, TypeError, "a list.*Kept"),
    "unknown option of a credit": (
        {"credit": {"at_grpo": {"valeu": "reward"}}},
        ValueError,
        r"'at_grpo'.*'valeu'.*scale, value, gamma.*'value'",
    ),
    "unknown value": (
        {"credit": {"at_grpo": {"value": "return"}}},
        ValueError,
        r"value='return'.*reward, return_to_go, outcome",
    ),
    "unknown scale": (
        {"credit": partial(at_grpo, scale="std")},
        ValueError,
        r"scale='std'.*group, batch, none",
    ),
    "options of no kind": ({"credit": {"at_grpo": "reward"}}, TypeError, r"expected a name .*, a name with options"),
    "a stream": (
        {"max_resamples": 1, "dataset": STREAM},
        ValueError,
        r"max_resamples=1.*stream",
    ),
    "fewer than none": ({"max_resamples": -1}, ValueError, r"max_resamples=-1"),
}


@pytest.mark.parametrize(("options", "error", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_meant_is_refused_before_a_model_is_loaded(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        made(str(tmp_path / "no model"), tmp_path, **options)
