"""Who learns in which generation: the others play, answer once, and nothing of theirs moves."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from mortal import equal, mortal
from moved_weights import moved, part_of, weights
from pettingllms_trl import Alternate, MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.update.schedule import check_windows, learners
from short_runs import settings
from third_party import Monologue, Relay


# ---- The value ------------------------------------------------------------------------------------------------------


def test_turns_are_taken_for_so_many_generations_each() -> None:
    schedule = Alternate(("a", "b", "c"), every=2)
    assert [schedule(g) for g in range(8)] == [("a",), ("a",), ("b",), ("b",), ("c",), ("c",), ("a",), ("a",)]


def test_with_a_rest_all_learn_and_those_whose_turn_it_is_not_at_a_part_of_their_rate() -> None:
    schedule = Alternate(("a", "b"), every=2, rest=0.1)
    assert [schedule(g) for g in range(3)] == [{"a": 1.0, "b": 0.1}, {"a": 1.0, "b": 0.1}, {"a": 0.1, "b": 1.0}]
    assert learners(schedule, 2, ["a", "b"]) == ("a", "b")
    with pytest.raises(ValueError, match=r"the schedule gave {'a': 0.0} for generation 1; expected factors"):
        learners(lambda generation: {"a": 0.0}, 1, ["a"])


def test_learners_come_in_the_order_of_the_policies() -> None:
    assert learners(lambda generation: {"b", "a"}, 3, ["a", "b", "c"]) == ("a", "b")


@pytest.mark.parametrize("names", [(), ("d",), "a"])
def test_a_schedule_that_names_nobody_or_a_stranger_is_refused(names: Any) -> None:
    with pytest.raises(ValueError, match=r"the schedule gave .* for generation 3; expected some of .*: a, b\."):
        learners(lambda generation: names, 3, ["a", "b"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"order": ()}, r"order is \(\); expected the names"),
        ({"order": "drafter"}, "order is 'drafter'; expected the names of policies"),
        ({"order": ("a",), "every": 0}, "every is 0; expected a number of generations"),
        ({"order": ("a",), "rest": 1.0}, r"rest is 1\.0; expected a factor from 0 to below 1"),
    ],
)
def test_turns_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Alternate(**settings)


def test_an_optimizer_step_may_not_reach_over_two_generations() -> None:
    check_windows(4, 8)
    with pytest.raises(ValueError, match="gradient_accumulation_steps is 4, and a generation has 6 micro-steps"):
        check_windows(4, 6)


# ---- A run ----------------------------------------------------------------------------------------------------------


def moments(run: Any) -> dict[str, dict[str, torch.Tensor]]:
    """What AdamW remembers of each parameter that it ever stepped."""
    names = {id(p): name for name, p in run.model.named_parameters()}
    return {
        names[id(p)]: {key: value.clone() for key, value in state.items()} for p, state in run.optimizer.state.items()
    }


class Watched(MultiAgentGRPOTrainer):
    """Keeps the weights and the optimizer's state before every optimizer step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: list[Any] = []
        super().__init__(*args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.seen.append((weights(self), moments(self)))
        return super().training_step(*args, **kwargs)


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("lora", "full")), "mixture"]
)
def test_only_those_whose_turn_it_is_move_and_the_moments_of_the_others_stand_still(
    name: str, model_path: str, tmp_path: Path
) -> None:
    own = Policy(model=model_path, max_grad_norm=0.5, beta=0.04)
    args = settings(
        tmp_path,
        alternate_every=1,
        gradient_accumulation_steps=1,
        steps_per_generation=2,  # two optimizer steps a generation
        max_steps=5,
        weight_decay=0.5,
    )
    run = Watched(
        model_path,
        partial(Relay, 1),
        args,
        Dataset.from_dict({"seed": range(24)}),
        policies={"opener": "opener", "closer": own} if name == "mixture" else name,
    )
    run.train()
    states = [*run.seen, (weights(run), moments(run))]
    assert len(states) == 6
    turns = [{"opener"}, {"opener"}, {"closer"}, {"closer"}, {"opener"}]
    for turn, (before, old), (after, new) in zip(turns, states, states[1:], strict=False):
        assert moved(before, after) == turn
        for parameter, state in old.items():
            same = all(torch.equal(value, new[parameter][key]) for key, value in state.items())
            assert same == (part_of(parameter) not in turn), parameter
    logs = [log for log in run.state.log_history if "loss" in log]
    for turn, log in zip(turns, logs, strict=True):
        assert {policy for policy in ("opener", "closer") if f"policy/{policy}/grad_norm" in log} == turn
        assert {policy for policy in ("opener", "closer") if f"policy/{policy}/entropy" in log} == turn
    flat = [{key.split("/")[1] for key in log if key.endswith("/frac_reward_zero_std")} for log in logs[::2]]
    assert flat == [{"opener_0"}, {"closer_0"}, {"opener_0"}]


def test_who_does_not_learn_answers_each_prompt_once_and_its_tokens_count_once(
    model_path: str, tmp_path: Path
) -> None:
    run = mortal(model_path, tmp_path, steps=2, alternate_every=1, save_strategy="no")
    run.train()
    for learner, rollout, log in zip(("opener_0", "closer_0"), run.rollouts, run.state.log_history, strict=False):
        tokens = 0
        for decision in [d for e in rollout for d in e.decisions]:
            assert len(decision.candidates) == (4 if decision.agent == learner else 1)
            tokens += sum(len(candidate.completion.ids) for candidate in decision.candidates)
        assert log["rollout/completion_tokens"] == tokens


def test_one_learning_rate_schedule_goes_by_steps_for_all(model_path: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 3, "save_strategy": "no", "lr_scheduler_type": "linear"}
    together, in_turns = (
        mortal(model_path, tmp_path / "a", **options),
        mortal(model_path, tmp_path / "b", alternate_every=1, **options),
    )
    rates = []
    for run in (together, in_turns):
        run.train()
        rates.append([log["learning_rate"] for log in run.state.log_history if "learning_rate" in log])
    assert rates[0] == rates[1] == pytest.approx([1e-2, 1e-2 * 2 / 3, 1e-2 / 3])


@pytest.mark.slow
def test_a_run_in_turns_resumed_after_any_step_equals_one_never_interrupted(model_path: str, tmp_path: Path) -> None:
    options = {"alternate_every": 1, "gradient_accumulation_steps": 1, "steps_per_generation": 2, "steps": 5}
    whole = mortal(model_path, tmp_path / "whole", **options)
    whole.train()
    for step in (1, 2):
        resumed = mortal(model_path, tmp_path / f"from {step}", **options)
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert equal(weights(whole), weights(resumed))


def test_the_first_step_of_adam_is_as_long_as_the_factor_of_the_rate_says(model_path: str, tmp_path: Path) -> None:
    def step(name: str, **options: Any) -> dict[str, float]:
        run = mortal(model_path, tmp_path / name, steps=1, save_strategy="no", weight_decay=0.0, **options)
        before = weights(run)
        run.train()
        lengths: dict[str, float] = {}
        for parameter, value in weights(run).items():
            of = part_of(parameter)
            lengths[of] = max(lengths.get(of, 0.0), float((value - before[parameter]).abs().max()))
        return lengths

    full, soft = step("full"), step("soft", schedule=Alternate(("opener", "closer"), rest=0.25))
    assert soft["opener"] == pytest.approx(full["opener"], rel=1e-3)
    assert soft["closer"] == pytest.approx(full["closer"] / 4, rel=1e-3)


@pytest.mark.slow
def test_a_soft_schedule_goes_on_where_a_run_is_resumed(model_path: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"gradient_accumulation_steps": 1, "steps_per_generation": 2, "steps": 3}
    options["schedule"] = Alternate(("opener", "closer"), rest=0.1)
    whole = mortal(model_path, tmp_path / "whole", **options)
    whole.train()
    resumed = mortal(model_path, tmp_path / "part", **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-1"))  # inside a generation
    assert equal(weights(whole), weights(resumed))
    rates = [log["learning_rate"] for log in whole.state.log_history if "learning_rate" in log]
    assert rates == pytest.approx([1e-2, 0.75e-2, 0.25e-2])  # cosine's, which factors do not add up in


def trainer(model: str, path: Path, **options: Any) -> MultiAgentGRPOTrainer:
    own = {name: options.pop(name) for name in ("schedule", "policies") if name in options}
    args = MultiAgentGRPOConfig(str(path), num_generations=2, use_cpu=True, bf16=False, report_to="none", **options)
    return MultiAgentGRPOTrainer(
        model, Relay, args, Dataset.from_dict({"seed": range(8)}), **{"policies": "lora", **own}
    )


def test_a_function_is_asked_for_each_generation(model_path: str, tmp_path: Path) -> None:
    asked = []

    def both_then_closer(generation: int) -> list[str]:
        asked.append(generation)
        return ["opener", "closer"] if generation == 0 else ["closer"]

    run = trainer(
        model_path,
        tmp_path,
        schedule=both_then_closer,
        max_steps=2,
        save_strategy="no",
        logging_steps=1,
        max_completion_length=4,
    )
    run.train()
    assert set(asked) == {0, 1}
    logs = [{key for key in log if key.endswith("grad_norm")} for log in run.state.log_history if "loss" in log]
    assert logs == [
        {"grad_norm", "policy/opener/grad_norm", "policy/closer/grad_norm"},
        {"grad_norm", "policy/closer/grad_norm"},
    ]


def test_learners_that_play_nowhere_in_a_generation_leave_all_as_it_was(model_path: str, tmp_path: Path) -> None:
    schedule = Alternate(("closer",))
    run = mortal(model_path, tmp_path, steps=1, env=Monologue, save_strategy="no", schedule=schedule)
    before = weights(run)
    run.train()
    assert moved(before, weights(run)) == set()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alternate_every": 0}, r"alternate_every=0"),
        ({"alternate_every": 1, "policies": "shared"}, r"alternate_every is 1.*base"),
        ({"alternate_every": 1, "schedule": Alternate(("opener",))}, r"alternate_every is 1.*schedule"),
        (
            {"schedule": Alternate(("drafter",))},
            r"schedule.*\('drafter',\).*opener, closer",
        ),
        (
            {"alternate_every": 1, "gradient_accumulation_steps": 4, "steps_per_generation": 2},
            r"gradient_accumulation_steps is 4.*2 micro-steps",
        ),
    ],
)
def test_what_cannot_be_scheduled_is_refused_before_any_model_is_loaded(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        trainer(str(tmp_path / "no model"), tmp_path, **options)
