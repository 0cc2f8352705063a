"""Expert iteration: what is kept, the loss by hand, rounds and passes, kill and resume, and what is refused."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback

from moved_weights import weights
from pettingllms_envs.programs import program
from pettingllms_trl import Decision, Episode, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.imitation.rounds import NothingToImitate
from short_runs import KeepsRollouts, adapter, settings
from third_party import Relay, letters
from twin_teams import ask, score


class Draft(Relay):
    """An opener writes, then a closer; they succeed where a fifth of the characters is below 'P'."""

    wins = True

    def __init__(self) -> None:
        super().__init__(1)

    def step(self, action: str | None) -> None:
        super().step(action)
        success = self.wins and letters("".join(self.written)) > 0.2
        self.infos = {agent: {"outcome": {"success": success}} for agent in self.possible_agents}


class Hopeless(Draft):
    wins = False


class Constant(Draft):
    """The closer is always paid the same."""

    def step(self, action: str | None) -> None:
        acting = self.agent_selection
        super().step(action)
        if acting == "closer_0":
            self.rewards[acting] = 0.5


class Team(KeepsRollouts, MultiAgentGRPOTrainer):
    """Replies are random bytes; most come to their end, the others are cut off. Says what was evaluated."""

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
        drawn = torch.randint(5, 200, (len(prompt_ids), 6)).tolist()
        return [[*ids[: 2 + ids[0] % 3], self.eos_token_ids[0]] if ids[1] > 30 else ids for ids in drawn], None


def team(model: Any, path: Path, imitate: str = "success", **options: Any) -> Team:
    """Two rounds of two generations of 2 rows of 4 replies or episodes, in mini-batches of 8."""
    names = ("policies", "credit", "filters", "callbacks", "eval_dataset", "schedule", "reward_funcs")
    own = {name: options.pop(name) for name in names if name in options}
    env, number = options.pop("env", Draft), options.pop("num_rows", 8)
    adapters = own.get("policies", "shared") not in ("shared", "full")
    common = {"max_steps": -1, "num_train_epochs": 1, "num_rounds": 2, "max_completion_length": 6, "seed": 3}
    return Team(
        model,
        env,
        settings(path, **{**common, "imitate": imitate, **options}),
        Dataset.from_dict({"seed": range(number)}),
        peft_config=adapter() if adapters else None,
        **own,
    )


Reply = tuple[tuple[int, ...], tuple[int, ...]]


def replies(decisions: Sequence[Decision]) -> list[Reply]:
    return [(d.prompt.ids, c.completion.ids) for d in decisions for c in d.candidates]


def of_successes(rollout: Sequence[Episode]) -> list[Reply]:
    return [
        (d.prompt.ids, d.played.completion.ids)
        for episode in rollout
        for d in episode.decisions
        if episode.outcome["success"] and d.played.completion.finish == "stop"
    ]


def of_the_best(rollout: Sequence[Episode]) -> list[Reply]:
    found = []
    for decision in (d for episode in rollout for d in episode.decisions):
        most, least = (f(c.reward for c in decision.candidates) for f in (max, min))
        best = [c for c in decision.candidates if c.reward == most > least and c.completion.finish == "stop"]
        found += [(decision.prompt.ids, c.completion.ids) for c in best]
    return found


@pytest.mark.parametrize(
    ("imitate", "by_hand", "replay"), [("success", of_successes, "all"), ("best", of_the_best, "last")]
)
def test_rounds_play_their_share_and_pass_over_what_all_or_the_last_have_kept(
    imitate: str, by_hand: Any, replay: str, model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, imitate, replay=replay, num_iterations=3)
    trainer.train()
    assert trainer.args.sampling == {"success": "parallel", "best": "tree"}[imitate]
    assert trainer.rollout_names == ["round 1.0", "round 1.1", "round 2.0", "round 2.1"]
    assert sorted(row["seed"] for rows in trainer.rollout_rows for row in rows) == list(range(8))
    first, second = (by_hand(a) + by_hand(b) for a, b in (trainer.rollouts[:2], trainer.rollouts[2:]))
    assert len(first) > 8  # so that a pass takes several steps
    pools = [first, first + second if replay == "all" else second]
    assert replies(trainer.rounds.decisions) == pools[-1]
    assert trainer.state.global_step == sum(3 * -(-len(pool) // 8) for pool in pools)
    logged = [log["imitation/replies"] for log in trainer.state.log_history if "imitation/replies" in log]
    assert sorted(set(logged)) == sorted(set(map(len, pools)))


def likelihood_step(model: Any, pool: Sequence[Reply], *, rate: float, temperature: float) -> Mapping[str, Any]:
    """The weights after one step of plain gradient descent on the mean negative log-likelihood of all tokens."""
    model = copy.deepcopy(model)
    loss = torch.zeros(())
    for prompt, completion in pool:
        logits = model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1] / temperature
        loss = loss + torch.nn.functional.cross_entropy(logits, torch.tensor(completion), reduction="sum")
    (loss / sum(len(completion) for _, completion in pool)).backward()
    return {name: p.detach() - rate * p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("per_device", "options"),
    [
        (64, {}),
        (32, {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "shared_prefix": False}),
        pytest.param(16, {"gradient_accumulation_steps": 4}, marks=pytest.mark.slow),
    ],
)
def test_a_step_on_all_replies_is_one_on_their_mean_negative_log_likelihood(
    per_device: int, options: dict[str, Any], model_path: str, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    plain = {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    given = {**plain, "temperature": 0.7, "num_rounds": 1, "num_rows": 16, **options}
    trainer = team(copy.deepcopy(model), tmp_path, "best", per_device_train_batch_size=per_device, **given)
    trainer.train()
    pool = replies(trainer.rounds.decisions)
    assert (trainer.state.global_step, len(pool) > 8) == (1, True)
    expected = likelihood_step(model, pool, rate=0.5, temperature=0.7)
    for name, weight in weights(trainer).items():
        assert torch.allclose(weight, expected[name], atol=1e-6), name
    before = {name: parameter.detach() for name, parameter in model.named_parameters()}
    assert max(float((weight - before[name]).abs().max()) for name, weight in expected.items()) > 1e-3
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert losses[0] == pytest.approx(5.5, abs=0.5)  # about the logarithm of the number of tokens, before any step


STATES = ("number", "passes_left", "steps_left", "num_generated", "is_over")


@pytest.mark.slow
def test_a_run_resumed_between_and_inside_rounds_equals_one_never_interrupted_to_the_last_bit(
    model_path: str, tmp_path: Path
) -> None:
    options = {
        "policies": "lora",
        "save_strategy": "steps",
        "save_steps": 1,
        "num_iterations": 2,
        "max_generated_tokens": 330,
        "num_rounds": 3,
        "eval_strategy": "epoch",
        "eval_dataset": Dataset.from_dict({"seed": [90, 91]}),
    }
    whole = team(model_path, tmp_path / "whole", **options)
    whole.train()
    assert whole.rounds.number == 3
    steps = whole.state.global_step
    first = next(log["step"] for log in whole.state.log_history if log.get("eval_imitation/round") == 1)
    assert 1 < first < steps - 2
    for step in (first, first + 1, steps):
        resumed = team(model_path, tmp_path / f"from {step}", **options)
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert all(torch.equal(value, weights(resumed)[name]) for name, value in weights(whole).items())
        assert resumed.rounds.decisions == whole.rounds.decisions
        assert [getattr(resumed.rounds, name) for name in STATES] == [getattr(whole.rounds, name) for name in STATES]
        own = {"epoch", "step", "loss"}
        logs = [[log for log in each.state.log_history if "eval_runtime" in log] for each in (whole, resumed)]
        assert [log["eval_outcome/success"] for log in logs[0]] == [log["eval_outcome/success"] for log in logs[1]], (
            own
        )
    names = [each for each in resumed.rollout_names if each.startswith("round")]
    assert names == []  # it was over


class Interrupts(TrainerCallback):
    """Sends SIGTERM in the optimizer step after `step`."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self._step:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.usefixtures("signals_on_purpose")
def test_a_run_that_a_signal_ends_before_the_evaluation_of_a_round_begins_with_it_when_it_is_resumed(
    model_path: str, tmp_path: Path
) -> None:
    options = {
        "save_strategy": "epoch",
        "eval_strategy": "epoch",
        "eval_dataset": Dataset.from_dict({"seed": [90, 91]}),
        "per_device_train_batch_size": 16,
    }
    whole = team(model_path, tmp_path / "whole", **options)
    whole.train()
    shown = [(log["step"], log["eval_outcome/success"]) for log in whole.state.log_history if "eval_runtime" in log]
    assert len(shown) == 2
    for step, _ in shown:  # that of the last round, too, after which nothing is trained
        folder = tmp_path / f"ended in {step}"
        ended = team(model_path, folder, callbacks=[Interrupts(step - 1)], **options)
        ended.train()
        assert (ended.stopped_by, ended.state.global_step) == ("SIGTERM", step)
        resumed = team(model_path, folder, **options)
        resumed.train(resume_from_checkpoint=True)
        logs = [log for log in resumed.state.log_history if "eval_runtime" in log]
        assert [(log["step"], log["eval_outcome/success"]) for log in logs] == shown
        assert all(torch.equal(value, weights(resumed)[name]) for name, value in weights(whole).items())


def test_every_round_is_evaluated_saved_and_on_the_card(
    model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = team(
        model_path,
        tmp_path,
        save_strategy="epoch",
        eval_strategy="epoch",
        eval_dataset=Dataset.from_dict({"seed": range(90, 94)}),
        disable_tqdm=False,
    )
    trainer.train()
    logs = [log for log in trainer.state.log_history if "eval_outcome/success" in log]
    assert [log["eval_imitation/round"] for log in logs] == [1, 2]
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [f"checkpoint-{log['step']}" for log in logs]
    shown = [line for line in capsys.readouterr().out.splitlines() if "  eval round " in line]
    assert [line.rsplit(maxsplit=1)[1] for line in shown] == ["1", "2"]
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text("utf-8")
    for number, log in enumerate(logs, 1):
        assert f"| eval, round {number} | {100 * log['eval_outcome/success']:.1f}% |" in card


def test_a_policy_of_which_nothing_is_kept_stays_as_it_is_and_the_other_learns(
    model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, "best", env=Constant, policies="lora", weight_decay=0.1, learning_rate=0.01)
    before = weights(trainer)
    trainer.train()
    after = weights(trainer)
    changed = {name.split("lora_")[1].split(".")[1] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"opener"}
    assert {decision.agent for decision in trainer.rounds.decisions} == {"opener_0"}


def test_partners_that_are_frozen_or_behind_an_api_are_never_imitated(model_path: str, tmp_path: Path) -> None:
    def api(messages: Sequence[Any]) -> str:
        return "AB"

    for number, partner in enumerate((Policy(trainable=False), Policy(api=api))):
        trainer = team(model_path, tmp_path / str(number), policies={"opener": "opener", "closer": partner})
        trainer.train()
        assert {decision.agent for decision in trainer.rounds.decisions} == {"opener_0"}


def test_rounds_that_keep_nothing_play_other_instances_and_then_end_training(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, env=Hopeless, num_rounds=8, num_rows=16)
    before = weights(trainer)
    with (
        pytest.warns(
            UserWarning, match="round . played 8 episodes and kept none of their replies: no episode"
        ) as told,
        pytest.raises(NothingToImitate, match=r"Training ends, as the last 4 rounds have kept nothing\. Look at"),
    ):
        trainer.train()
    assert [str(each.message)[:7] for each in told] == ["round 1", "round 2", "round 3"]
    assert trainer.rollout_names == [f"round {number}.0" for number in (1, 2, 3, 4)]
    assert len({row["seed"] for rows in trainer.rollout_rows for row in rows}) == 8
    assert all(torch.equal(value, before[name]) for name, value in weights(trainer).items())


def test_where_earlier_rounds_have_trained_a_run_that_finds_nothing_more_ends_with_a_warning(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = team(model_path, tmp_path, num_rounds=2)
    play = trainer.collector.source.play

    def losing(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(Draft, "wins", len(trainer.rollouts) < 2)
        return play(*args, **kwargs)

    trainer.collector.source.play = losing
    with pytest.warns(UserWarning, match=r"round 2 played 16 episodes .* Training ends, as the last 1 rounds"):
        trainer.train()
    assert trainer.rounds.number == 2
    assert trainer.state.log_history[-1]["train_runtime"] > 0
    with pytest.warns(UserWarning, match=r"trained 0 steps: an earlier one has used .* all rounds of imitate"):
        trainer.train()


class Silent(Relay):
    """Says nothing of success."""

    def __init__(self) -> None:
        super().__init__(1)


def test_without_success_keep_fraction_is_named_and_keeps_the_highest_returns(model_path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"do not say if they succeeded; expected .* Set keep_fraction=0\.2"):
        team(model_path, tmp_path / "no", env=Silent).train()
    trainer = team(model_path, tmp_path / "yes", env=Silent, keep_fraction=0.25, num_rounds=1, num_rows=2)
    trainer.train()
    (rollout,) = trainer.rollouts
    for agent in ("opener_0", "closer_0"):
        best = sorted((episode.returns[agent] for episode in rollout), reverse=True)[1]  # the second of eight
        expected = [
            d.played.completion.ids
            for episode in rollout
            for d in episode.decisions
            if d.agent == agent and episode.returns[agent] >= best and d.played.completion.finish == "stop"
        ]
        own = [decision for decision in trainer.rounds.decisions if decision.agent == agent]
        assert [ids for _, ids in replies(own)] == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"imitate": "worst"}, "imitate='worst', expected 'best' or 'success', or None"),
        ({"replay": "none"}, "replay='none', expected 'all' rounds so far or the 'last'"),
        ({"num_rounds": 0}, r"num_rounds=0, expected a whole number, 1 or more\. Set num_rounds=10"),
        ({"num_rounds": 1.5}, r"num_rounds=1\.5, expected a whole number"),
        ({"imitate": None}, "num_rounds=2 without imitate, whose rounds it is about"),
        ({"imitate": None, "num_rounds": 10, "replay": "last"}, "replay='last' without imitate"),
        ({"top_entropy_quantile": 0.2}, r"top_entropy_quantile=0\.2 with imitate='success', expected 1\.0: the loss"),
        ({"imitate": "best", "keep_fraction": 0.5}, "keep_fraction=0.5 with imitate='best', expected 'success'"),
        ({"keep_fraction": 1.0}, "keep_fraction=1.0, expected a share of the episodes between 0 and 1"),
        ({"beta": 0.1}, r"beta=0\.1 with imitate='success', expected 0\.0: .* Leave it out"),
        ({"loss_type": "grpo"}, "loss_type='grpo' with imitate='success'"),
        ({"lr_scheduler_type": "cosine"}, "lr_scheduler_type='cosine' and warmup_steps=0 with imitate"),
        ({"warmup_steps": 0.1}, "warmup_steps=0.1 with imitate='success', whose number of steps is not known"),
        ({"credit": "grpo"}, "credit='grpo' with imitate='success', which says itself what is learned"),
        ({"filters": "nonzero_variance"}, "filters='nonzero_variance' with imitate='success'"),
        (
            {"policies": {"opener": Policy(adapter="one", beta=0.1), "closer": Policy(adapter="two")}},
            r"beta of policy 'one'=0\.1 with imitate",
        ),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 3}, "with a schedule or imitate a generation"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    options: dict[str, Any], said: str, model_path: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        team(model_path, tmp_path, **{"imitate": "success", **options})


LAYOUTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "shared": lambda path: {},
    "adapters": lambda path: {"policies": "lora"},
    "models": lambda path: {"policies": "full"},
    "a mixture": lambda path: {"policies": {"opener": "opener", "closer": Policy(model=path, name="closer")}},
    "a conversation": lambda path: {"policies": "lora", "history": "conversation", "env": Talk},
    "TRL's path": lambda path: {"policies": "lora", "shared_prefix": False},
    "in turns": lambda path: {"policies": "lora", "alternate_every": 1},
    "a program": lambda path: {"policies": "lora", "imitate": "best", "env": program(poem, agents=AGENTS)},
}
AGENTS = ("opener", "closer")


class Talk(Draft):
    """Of two turns each."""

    def __init__(self) -> None:
        Relay.__init__(self, 2)


def poem(base_url: str, row: Any) -> float:
    first = ask(base_url, "opener", "You write.", f"Poem {row['seed']}?")
    return score(ask(base_url, "closer", "You end it.", first))


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_imitates_with_all_of_its_policies(layout: str, model_path: str, tmp_path: Path) -> None:
    given = {"imitate": "success", "num_rows": 16, "num_iterations": 2, **LAYOUTS[layout](model_path)}
    trainer = team(model_path, tmp_path, **given)
    before = weights(trainer)
    trainer.train()
    changed = {id(p) for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    for policy in trainer.routing.trained:
        assert changed & {id(parameter) for parameter in trainer.team.parameters_of(policy)}, policy.name
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_two_models_each_descend_on_the_likelihood_of_their_own_replies(model_path: str, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    plain = {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    given = {**plain, "temperature": 0.7, "num_rounds": 1, "num_rows": 16, "per_device_train_batch_size": 64}
    trainer = team(model_path, tmp_path, "best", policies="full", **given)
    trainer.train()
    assert trainer.state.global_step == 1
    for agent in AGENTS:
        pool = replies([each for each in trainer.rounds.decisions if each.agent == f"{agent}_0"])
        expected = likelihood_step(model, pool, rate=0.5, temperature=0.7)
        found = dict(trainer.team.weights_of(agent).named_parameters())
        assert all(torch.allclose(found[name], weight, atol=1e-6) for name, weight in expected.items()), agent
