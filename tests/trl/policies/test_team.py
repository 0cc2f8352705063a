"""Every layout of weights on tiny models: what plays, what moves, what stays, what is logged, saved and read back."""

from __future__ import annotations

import copy
import logging
import re
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import PeftModel, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GraniteConfig,
    GraniteForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
)

from mortal import forget_configuration
from moved_weights import moved, part_of, weights
from pettingllms_envs import apps_v0
from pettingllms_trl import Completion, Decision, MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from short_runs import KeepsBatches, KeepsGradients, KeepsRollouts, adapter, around_generation, keep_all_rows, settings
from third_party import Monologue, Relay


SEEDS = Dataset.from_dict({"seed": range(24)})
GAME = partial(Relay, 1)  # the opener says something, the closer answers
ADAPTER = adapter()
STEPS = 2


@pytest.fixture(scope="session")
def granite_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another architecture, whose logits are scaled, with another vocabulary, chat template and end of turn."""
    path: Path = tmp_path_factory.mktemp("granite")
    words = ["</s>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet(), reverse=True), "[INST]", "[/INST]"]
    inner = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="</s>",
        additional_special_tokens=["[INST]", "[/INST]"],
        padding_side="left",
    )
    tokenizer.chat_template = "{% for m in messages %}{{ '[INST]' + m['content'] + '[/INST]' }}{% endfor %}"
    tokenizer.save_pretrained(path)
    torch.manual_seed(3)
    config = GraniteConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        logits_scaling=0.25,
        max_position_embeddings=1024,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    GraniteForCausalLM(config).save_pretrained(path)
    return str(path)


class Team(KeepsRollouts, KeepsBatches, MultiAgentGRPOTrainer):
    pass


def team(model: Any, path: Path, policies: Any, *, env: Any = GAME, **options: Any) -> Team:
    """2 steps of 2 rows of 4 candidates, adapters of rank 4; `options` go where they belong."""
    own = {name: options.pop(name) for name in ("train_dataset", "callbacks", "credit") if name in options}
    adapters = policies == "lora" or (isinstance(policies, dict) and any(map(is_adapter, policies.values())))
    return Team(
        model=model,
        env=env,
        policies=policies,
        args=settings(path, **{"max_steps": STEPS, "seed": 7, "audit": "stop", **options}),
        peft_config=ADAPTER if adapters else None,
        **{"train_dataset": SEEDS, **own},
    )


def is_adapter(policy: str | Policy) -> bool:
    return isinstance(policy, str) or policy.adapter is not None


def layout(name: str, granite: str) -> dict[str, Any]:
    """`policies=` of the layouts that every test below goes through."""
    return {
        "shared": "shared",
        "lora": "lora",
        "full": "full",
        "mixture": {"opener": "opener", "closer": Policy(model=granite)},
        "base and full": {"opener": Policy(), "closer": Policy(model=granite)},
    }[name]


LAYOUTS = {
    "shared": {"base"},
    "lora": {"opener", "closer"},
    "full": {"opener", "closer"},
    "mixture": {"opener", "closer"},
    "base and full": {"base", "closer"},
}


def layouts(*names: str) -> list[Any]:
    """By default those in which two policies differ in kind, a base, an adapter and a model among them."""
    quick = ("mixture", "base and full")
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


EVERY_LAYOUT = pytest.mark.parametrize("name", layouts(*LAYOUTS))


# ---- What moves ---------------------------------------------------------------------------------------------------


@EVERY_LAYOUT
def test_going_from_one_layout_to_another_is_one_argument(
    name: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, layout(name, granite_path))
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == LAYOUTS[name]
    assert trainer.state.global_step == STEPS
    assert {batch["policy"] for batch in trainer.batches} == LAYOUTS[name]


@EVERY_LAYOUT
def test_rows_of_an_agent_move_its_policy_and_no_other(
    name: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, layout(name, granite_path), env=Monologue, weight_decay=0.5)
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == {"base" if "base" in LAYOUTS[name] else "opener"}


def test_two_roles_may_play_one_full_model(model_path: str, granite_path: str, tmp_path: Path) -> None:
    one = Policy(model=granite_path)
    trainer = team(None, tmp_path, {"opener": one, "closer": one})
    keep_all_rows(trainer)
    before = weights(trainer)
    trainer.train()
    assert set(map(part_of, before)) == {"opener"} == moved(before, weights(trainer))
    decisions = [d for rollout in trainer.rollouts for e in rollout for d in e.decisions]
    assert {d.agent for d in decisions} == {"opener_0", "closer_0"}
    rows = sum(len(batch["advantages"]) for batch in trainer.batches)
    assert rows == sum(len(d.candidates) for d in decisions)


def test_copies_of_a_model_start_equal_and_part(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, "full")

    def apart() -> bool:
        opener, closer = (trainer.model.models[name].state_dict() for name in ("opener", "closer"))
        return any(not torch.equal(opener[name], closer[name]) for name in opener)

    assert not apart()
    trainer.train()
    assert apart()


@pytest.mark.parametrize("name", layouts("lora", "full", "mixture"))
def test_each_policy_moves_by_its_own_learning_rate_times_its_gradient(
    name: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    kept = KeepsGradients()
    kinds = {
        "lora": [{"adapter": "opener"}, {"adapter": "closer"}],
        "full": [{"model": model_path}, {"model": model_path}],
        "mixture": [{"adapter": "opener"}, {"model": granite_path}],
    }[name]
    rates = {"opener": 0.5, "closer": 0.125}
    policies = {r: Policy(**kind, learning_rate=rates[r]) for r, kind in zip(rates, kinds, strict=True)}
    model = None if name == "full" else model_path
    trainer = team(
        model,
        tmp_path,
        policies,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=1e6,
        max_steps=1,
        callbacks=[kept],
    )
    before = weights(trainer)
    trainer.train()
    after = weights(trainer)
    (gradients,) = kept.steps
    assert {part_of(n) for n, g in gradients.items() if g.abs().max() > 0} == {"opener", "closer"}
    for n, gradient in gradients.items():
        torch.testing.assert_close(before[n] - after[n], rates[part_of(n)] * gradient, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("policies", "loaded"), [("lora", True), ("full", True), ("lora", False), ("shared", False)])
def test_only_model_init_kwargs_that_nobody_uses_are_said_to_be_ignored(
    policies: str, loaded: bool, model_path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = model_path if loaded else AutoModelForCausalLM.from_pretrained(model_path)
    logging.getLogger("trl").addHandler(caplog.handler)
    try:
        trainer = team(given, tmp_path, policies, model_init_kwargs={"dtype": "float32"})
    finally:
        logging.getLogger("trl").removeHandler(caplog.handler)
    assert ("`model_init_kwargs` will be ignored" in caplog.text) is not loaded
    assert trainer.args.model_init_kwargs == {"dtype": "float32"}


# ---- Another architecture, another tokenizer ----------------------------------------------------------------------


def test_every_policy_reads_and_writes_with_its_own_tokenizer(
    model_path: str, granite_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, layout("mixture", granite_path), max_steps=1)
    keep_all_rows(trainer)
    others = AutoTokenizer.from_pretrained(granite_path)
    # So that it ends most of its replies; its end is the other's padding, and the other way round.
    likely = torch.zeros(len(others)).index_fill(0, torch.tensor(others.eos_token_id), 2.0)
    trainer.model.models["closer"].lm_head.register_forward_hook(lambda module, given, logits: logits + likely)
    trainer.train()
    assert (others.eos_token_id, others.pad_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    ended = [c.ids[-1] == 0 for c in completions_of(trainer, "closer_0")]
    assert sum(ended) > len(ended) / 2
    for decision in [d for e in trainer.rollouts[0] for d in e.decisions]:
        own = tokenizer if decision.agent == "opener_0" else others
        text = decision.prompt.messages[0]["content"]
        expected = f"<|user|>{text}<|end|><|assistant|>" if own is tokenizer else f"[INST]{text}[/INST]"
        assert own.decode(decision.prompt.ids) == expected
        for candidate in decision.candidates:
            ids = candidate.completion.ids
            assert candidate.completion.text == own.decode(ids, skip_special_tokens=True)
            assert own.eos_token_id not in ids[:-1]
    pads = {batch["policy"]: set(batch["prompt_ids"][batch["prompt_mask"] == 0].tolist()) for batch in trainer.batches}
    assert pads["closer"] <= {others.pad_token_id}
    assert pads["opener"] <= {tokenizer.pad_token_id}


@pytest.mark.parametrize("name", layouts("lora", "full", "mixture", "base and full"))
def test_the_log_probabilities_trained_on_are_those_of_the_policys_own_model(
    name: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, layout(name, granite_path), temperature=0.7)
    trainer.train()
    for policy in LAYOUTS[name]:
        trainer.activate(policy)
        alone = trainer.model.active_model if hasattr(trainer.model, "active_model") else trainer.model
        batch = next(batch for batch in trainer.batches if batch["policy"] == policy)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        keep = batch["completion_ids"].size(1)
        with torch.no_grad():
            found, _, _ = trainer.scorer.score(trainer.model, ids, mask, keep)
            logits = alone(input_ids=ids, attention_mask=mask).logits[:, -keep - 1 : -1] / 0.7
        expected = logits.log_softmax(-1).gather(-1, batch["completion_ids"].unsqueeze(-1)).squeeze(-1)
        real = batch["completion_mask"].bool()
        torch.testing.assert_close(found[real], expected[real], rtol=1e-4, atol=1e-5)


def completions_of(trainer: Team, agent: str) -> list[Completion]:
    decisions = [d for rollout in trainer.rollouts for e in rollout for d in e.decisions if d.agent == agent]
    return [candidate.completion for decision in decisions for candidate in decision.candidates]


def test_an_adapter_may_have_a_chat_template_of_its_own(
    model_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    terse = copy.deepcopy(tokenizer)
    terse.chat_template = "{% for m in messages %}{{ m['content'] + '<|end|>' }}{% endfor %}"
    trainer = team(
        model_path, tmp_path, {"opener": "opener", "closer": Policy(adapter="closer", tokenizer=terse)}, max_steps=1
    )
    trainer.train()
    prompts = {d.agent: tokenizer.decode(d.prompt.ids) for e in trainer.rollouts[0] for d in e.decisions}
    assert prompts["opener_0"].startswith("<|user|>opener_0, task ")
    assert prompts["closer_0"].startswith("closer_0, task ")


# ---- Partners that do not learn -----------------------------------------------------------------------------------


def carrying(model_path: str, *adapters: str) -> PeftModel:
    """A model with adapters that were trained before: B is not zero."""
    torch.manual_seed(5)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(model_path), ADAPTER, adapter_name=adapters[0])
    for name in adapters[1:]:
        model.add_adapter(name, ADAPTER)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.1)
    return model


FROZEN = {
    "adapter": lambda granite: {"opener": "opener", "closer": Policy(adapter="closer", trainable=False)},
    "full": lambda granite: {"opener": "opener", "closer": Policy(model=granite, trainable=False)},
    "full beside full": lambda granite: {
        "opener": Policy(model=granite),
        "closer": Policy(model=granite, trainable=False),
    },
    "base": lambda granite: {"opener": "opener", "closer": Policy(trainable=False)},
}


@pytest.mark.parametrize("kind", FROZEN)
def test_a_frozen_partner_plays_and_nothing_of_it_moves(
    kind: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    model = None if kind == "full beside full" else carrying(model_path, "opener", "closer")
    trainer = team(model, tmp_path, FROZEN[kind](granite_path), weight_decay=0.5)
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == {"opener"}
    assert {batch["policy"] for batch in trainer.batches} == {"opener"}
    optimized = {id(p) for group in trainer.optimizer.param_groups for p in group["params"]}
    assert {part_of(n) for n, p in trainer.model.named_parameters() if id(p) in optimized} == {"opener"}
    assert all(id(p) in optimized for p in trainer.optimizer.state)
    partner = [d for rollout in trainer.rollouts for e in rollout for d in e.decisions if d.agent == "closer_0"]
    assert len(partner) == STEPS * 2
    assert all(d.prompt.ids and d.played.completion.ids for d in partner)


def test_the_credit_is_given_the_decisions_of_those_who_learn(model_path: str, tmp_path: Path) -> None:
    seen: list[set[str]] = []

    def credit(decisions: Sequence[Decision]) -> list[list[float]]:
        seen.append({decision.agent for decision in decisions})
        return [[1.0] * len(decision.candidates) for decision in decisions]

    trainer = team(model_path, tmp_path, {"opener": "opener", "closer": Policy(trainable=False)}, credit=credit)
    seen.clear()  # it was tried out
    trainer.train()
    assert seen == [{"opener_0"}] * STEPS


@pytest.mark.parametrize("kind", FROZEN)
def test_a_frozen_partner_answers_once_without_dropout_and_with_the_weights_it_was_given(
    kind: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    model = None if kind == "full beside full" else carrying(model_path, "opener", "closer")
    trainer = team(model, tmp_path, FROZEN[kind](granite_path), max_steps=1)
    ids = torch.tensor([[5, 6, 7]])
    expected = {
        "adapter": lambda: logits_of(carrying(model_path, "opener", "closer"), ids, "closer"),
        "base": lambda: AutoModelForCausalLM.from_pretrained(model_path)(ids).logits,
    }.get(kind, lambda: AutoModelForCausalLM.from_pretrained(granite_path)(ids).logits)()
    asked = []

    def keep(prompts: Any, generate: Any) -> Any:
        asked.append((len(prompts), trainer.model.training, trainer.model(input_ids=ids).logits.detach()))
        return generate()

    around_generation(trainer, keep)
    trainer.train()
    (rows, training, _), (rows_of_partner, training_of_partner, logits) = asked
    assert (rows, training) == (2 * 4, True)
    assert (rows_of_partner, training_of_partner) == (2, False)
    assert torch.equal(logits, expected)
    for decision in [d for e in trainer.rollouts[0] for d in e.decisions if d.agent == "closer_0"]:
        assert len({candidate.completion for candidate in decision.candidates}) == 1


def logits_of(model: PeftModel, ids: torch.Tensor, adapter: str) -> torch.Tensor:
    model.set_adapter(adapter)
    return model.eval()(input_ids=ids).logits


def test_a_team_of_frozen_policies_plays_but_does_not_train(
    model_path: str, granite_path: str, tmp_path: Path
) -> None:
    policies = {"opener": Policy(trainable=False), "closer": Policy(model=granite_path, trainable=False)}
    trainer = team(model_path, tmp_path, policies, train_dataset=None)
    episodes = trainer.play([{"seed": 0}, {"seed": 1}], num_episodes=2)
    assert [len(e.decisions) for e in episodes] == [2] * 4
    with pytest.raises(ValueError, match=r"train\(\) needs a train_dataset"):
        trainer.train()


class Service:
    """Somebody else's model."""

    def __init__(self, reply: Any = "Hello") -> None:
        self.reply = reply
        self.asked: list[list[dict[str, str]]] = []
        self.threads: set[int] = set()

    def __call__(self, messages: list[dict[str, str]]) -> str:
        self.asked.append(copy.deepcopy(messages))
        self.threads.add(threading.get_ident())
        messages.clear()  # the recorded prompt is a copy
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


@pytest.mark.parametrize("num_threads", [pytest.param(0, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("other", ["adapter", "base", "full"])
def test_an_api_partner_is_asked_once_for_each_decision_and_never_trained_on(
    other: str, num_threads: int, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    service = Service()
    partner = {"adapter": "opener", "base": Policy(), "full": Policy(model=granite_path)}[other]
    model = None if other == "full" else model_path
    trainer = team(model, tmp_path, {"opener": partner, "closer": Policy(api=service)}, num_threads=num_threads)
    before = weights(trainer)
    trainer.train()
    assert moved(before, weights(trainer)) == {"base" if other == "base" else "opener"}
    own = [d for rollout in trainer.rollouts for e in rollout for d in e.decisions if d.agent == "closer_0"]
    assert sorted(d.prompt.messages[0]["content"] for d in own) == sorted(m[0]["content"] for m in service.asked)
    assert len(own) == STEPS * 2
    assert (threading.get_ident() in service.threads) == (num_threads == 0)
    for decision in own:
        assert decision.prompt.ids == ()
        assert {(c.completion.text, c.completion.ids) for c in decision.candidates} == {("Hello", ())}
        assert decision.played.reward == 0.2  # of "Hello" only the H is below P
    assert not {batch["policy"] for batch in trainer.batches} & {"closer"}


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            TimeoutError("slow"),
            r"the API partner of agent 'closer_0' raised TimeoutError: slow\. Let the function retry",
        ),
        (7, r"the API partner of agent 'closer_0' returned a int, expected a str"),
    ],
    ids=["error", "no text"],
)
def test_an_api_partner_that_fails_ends_the_run_and_is_named(
    reply: Any, message: str, model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, {"opener": Policy(), "closer": Policy(api=Service(reply))})
    with pytest.raises(RuntimeError, match=message):
        trainer.train()


# ---- KL references ------------------------------------------------------------------------------------------------


KL = {
    "fresh adapters": lambda granite: [{"adapter": "opener"}, {"adapter": "closer"}],
    "adapters trained before": lambda granite: [{"adapter": "opener"}, {"adapter": "closer"}],
    "full": lambda granite: [{"model": granite}, {"model": granite}],
    "mixture": lambda granite: [{"adapter": "opener"}, {"model": granite}],
    "base and full": lambda granite: [{}, {"model": granite}],
}


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        *(("opener", kind) for kind in ("adapters trained before", "full", "mixture")),
        ("closer", "base and full"),
        *(pytest.param("opener", kind, marks=pytest.mark.slow) for kind in ("fresh adapters", "base and full")),
        *(pytest.param("closer", kind, marks=pytest.mark.slow) for kind in ("fresh adapters", "full", "mixture")),
    ],
)
def test_the_kl_divergence_of_the_policy_that_has_beta_is_zero_at_first_and_positive_later(
    role: str, kind: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    kinds = KL[kind](granite_path)
    betas = {"opener": 0.1 if role == "opener" else None, "closer": 0.1 if role == "closer" else None}
    policies = {r: Policy(**fields, beta=betas[r]) for r, fields in zip(betas, kinds, strict=True)}
    model = {"adapters trained before": lambda: carrying(model_path, "opener", "closer"), "full": lambda: None}.get(
        kind, lambda: model_path
    )()
    trainer = team(model, tmp_path, policies)
    trainer.train()
    names = {r: "base" if not fields else r for r, fields in zip(betas, kinds, strict=True)}
    other = next(name for r, name in names.items() if r != role)
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert [log[f"policy/{names[role]}/kl"] == pytest.approx(0, abs=1e-6) for log in logs] == [True, False]
    assert all(log[f"policy/{names[role]}/kl"] >= 0 for log in logs)
    assert all(f"policy/{other}/kl" not in log for log in logs)


def test_a_reference_costs_nothing_where_no_policy_has_beta(
    model_path: str, granite_path: str, tmp_path: Path
) -> None:
    trainer = team(carrying(model_path, "opener"), tmp_path, layout("mixture", granite_path))
    assert [voice.ref_model for voice in trainer.team.profiles.values()] == [None, None]
    assert set(trainer.model.models["base"].peft_config) == {"opener"}


def test_the_beta_of_a_policy_goes_before_that_of_the_arguments(model_path: str, tmp_path: Path) -> None:
    policies = {"opener": "opener", "closer": Policy(adapter="closer", beta=0.0)}
    trainer = team(model_path, tmp_path, policies, beta=0.25)
    assert {name: voice.beta for name, voice in trainer.team.profiles.items()} == {"opener": 0.25, "closer": 0.0}
    plain = team(model_path, tmp_path, {"opener": Policy(beta=0.5), "closer": Policy(beta=0.5)}, beta=0.25)
    assert (plain.beta, plain.args.beta, plain.ref_model is None) == (0.5, 0.25, False)


# ---- Disk ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", layouts("lora", "full", "mixture", "base and full"))
def test_each_policy_is_saved_to_a_folder_that_loads_alone(
    name: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, layout(name, granite_path), beta=0.1)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    assert {path.name for path in (tmp_path / "saved").iterdir() if path.is_dir()} == LAYOUTS[name]
    ids = torch.tensor([[5, 6, 7]])
    for policy in LAYOUTS[name]:
        folder = tmp_path / "saved" / policy
        if (folder / "adapter_config.json").is_file():
            alone = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_path), folder)
        else:
            alone = AutoModelForCausalLM.from_pretrained(folder)
        trainer.activate(policy)
        assert torch.equal(alone(input_ids=ids).logits, trainer.model.eval()(input_ids=ids).logits)
        own = AutoTokenizer.from_pretrained(folder)
        assert own.chat_template == trainer.processing_class.chat_template
        assert own.encode("task 3") == trainer.processing_class.encode("task 3")


def test_an_adapter_of_pefts_usual_name_has_a_folder_as_the_others_have(model_path: str, tmp_path: Path) -> None:
    trainer = team(carrying(model_path, "default", "closer"), tmp_path, {"opener": "default", "closer": "closer"})
    trainer.save_model(str(tmp_path / "saved"))
    for policy in ("default", "closer"):
        assert (tmp_path / "saved" / policy / "adapter_model.safetensors").is_file()
    assert not (tmp_path / "saved" / "adapter_model.safetensors").exists()


RESUMED = {
    "full": lambda path, granite: (path, "full"),
    "mixture": lambda path, granite: (path, layout("mixture", granite)),
    "base and full": lambda path, granite: (path, layout("base and full", granite)),
    "adapters trained before, one frozen": lambda path, granite: (
        carrying(path, "opener", "closer"),
        {"opener": "opener", "closer": Policy(adapter="closer", trainable=False)},
    ),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "mixture" else pytest.mark.slow) for kind in RESUMED]
)
def test_a_resumed_run_equals_one_never_interrupted(
    kind: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    def run(path: Path) -> Team:
        model, policies = RESUMED[kind](model_path, granite_path)
        return team(
            model,
            path,
            policies,
            beta=0.1,
            save_strategy="steps",
            save_steps=1,
            gradient_accumulation_steps=2,
            lr_scheduler_type="cosine",
        )

    whole = run(tmp_path / "whole")
    whole.train()
    resumed = run(tmp_path / "resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-1"))
    assert moved(weights(whole), weights(resumed)) == set()
    assert whole.rollouts[1:] == resumed.rollouts
    logs = [[log for log in trainer.state.log_history if "loss" in log] for trainer in (whole, resumed)]
    for one, other in zip(*logs, strict=True):
        assert {k: v for k, v in one.items() if "time" not in k} == {k: v for k, v in other.items() if "time" not in k}


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ("lora", "policy opener is a model, trained there, but an adapter, trained is given"),
        ({"opener": Policy(), "closer": Policy()}, "the policy of opener_0 is opener there, but base is given"),
    ],
    ids=["another kind", "another layout"],
)
def test_a_checkpoint_of_other_policies_is_refused_before_anything_is_read(
    policies: Any, message: str, model_path: str, tmp_path: Path
) -> None:
    team(model_path, tmp_path, "full", max_steps=1, save_strategy="steps", save_steps=1).train()
    other = team(model_path, tmp_path, policies)
    before = weights(other)
    with pytest.raises(ValueError, match=message):
        other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert moved(before, weights(other)) == set()


def test_policies_that_an_older_checkpoint_lacks_are_named(model_path: str, tmp_path: Path) -> None:
    team(model_path, tmp_path, "full", max_steps=1, save_strategy="steps", save_steps=1).train()
    forget_configuration(tmp_path / "checkpoint-1")
    other = team(model_path, tmp_path, "lora")
    before = weights(other)
    message = (
        r"checkpoint-1 has no opener/adapter_config.json, expected weights of the policy 'opener' \(there are: "
        r"closer/config\.json, opener/config\.json\)\. Resume with the policies that it was saved with"
    )
    with pytest.raises(ValueError, match=message):
        other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert moved(before, weights(other)) == set()


@pytest.mark.parametrize(
    "name", ["mixture", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lora", "full"))]
)
def test_the_best_checkpoint_of_every_policy_comes_back_at_the_end(
    name: str, model_path: str, granite_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, layout(name, granite_path), save_strategy="steps", save_steps=1)
    seen: list[dict[str, torch.Tensor]] = []

    class Keep(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seen.append(weights(trainer))

    trainer.add_callback(Keep())
    trainer.train()
    trainer.state.best_model_checkpoint = str(tmp_path / "checkpoint-1")
    trainer._load_best_model()
    assert moved(seen[0], weights(trainer)) == set()


def test_an_upload_during_training_has_every_policys_folder(
    model_path: str, granite_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded = []
    monkeypatch.setattr(Trainer, "_push_from_checkpoint", lambda self, folder: uploaded.append(folder))
    trainer = team(model_path, tmp_path, layout("mixture", granite_path), max_steps=1)
    trainer.train()
    trainer.save_model(str(tmp_path / "checkpoint-1"))
    trainer._push_from_checkpoint(str(tmp_path / "checkpoint-1"))
    assert uploaded == [str(tmp_path / "checkpoint-1")]
    assert (tmp_path / "opener" / "adapter_model.safetensors").is_file()
    assert (tmp_path / "closer" / "model.safetensors").is_file()


def test_the_model_card_says_which_is_which(model_path: str, granite_path: str, tmp_path: Path) -> None:
    policies = {"opener": "opener", "closer": Policy(model=granite_path, trainable=False)}
    trainer = team(model_path, tmp_path, policies)
    trainer.create_model_card(model_name="me/team")
    text = (tmp_path / "README.md").read_text()
    assert "| `opener_0` | the LoRA adapter `opener` | `opener/` |" in text
    assert "| `closer_0` | a full model, not trained | not here |" in text
    assert not re.search(r"/(tmp|granite)", text)  # nobody else has our folders


@pytest.mark.parametrize("policies", ["shared", {"coder": "coder", "tester": "coder"}], ids=["one model", "adapters"])
def test_the_model_card_says_that_the_data_are_no_benchmark_and_has_every_setting(
    policies: Any, model_path: str, tmp_path: Path
) -> None:
    args = MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to="none", num_generations=2)
    rows = Dataset.from_dict({"seed": range(8)})
    make = partial(apps_v0.env, order=("tester", "coder"))
    trainer = MultiAgentGRPOTrainer(model_path, make, args, rows, policies=policies)
    trainer.create_model_card(model_name="me/team")
    text = (tmp_path / "README.md").read_text()
    assert "The data are problems written for this package, not APPS." in text
    assert policies == "shared" or "| env order | `('tester', 'coder')` |" in text
