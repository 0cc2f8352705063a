"""Sampling of single roles: what is refused, where a stop word ends a completion, and the temperature of the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.cli import arguments
from pettingllms_trl.cli.train import KINDS
from pettingllms_trl.engines.batched import before_stop, up_to_stop
from pettingllms_trl.engines.transformers import sample
from pettingllms_trl.policies.routing import route
from pettingllms_trl.policies.sampling import check, check_evaluation, of_agents, temperatures
from pettingllms_trl.records import Prompt, Request
from pettingllms_trl.role_sampling import NOTHING, SamplingOverrides, parse
from short_runs import KeepsBatches, KeepsRollouts, adapter, settings
from third_party import Relay


AGENTS = ["planner_0", "planner_1", "drafter_0"]
TEAM = {"opener": "opener", "closer": "closer"}
TWO = {"opener": {"temperature": 0.7}, "closer": {"temperature": 1.5}}


def letters(ids: Any) -> str:
    return "".join(map(chr, ids))


# ---- What is given ------------------------------------------------------------------------------------------------


def test_an_agents_own_sampling_comes_before_that_of_its_role() -> None:
    overrides = parse({"planner": {"temperature": 0.3, "stop": "END"}, "planner_1": {"top_p": 0.9}})
    assert of_agents(overrides, AGENTS) == {
        "planner_0": SamplingOverrides(temperature=0.3, stop=("END",)),
        "planner_1": SamplingOverrides(top_p=0.9),
        "drafter_0": NOTHING,
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"planner": {"temprature": 0.7}}, r"role_sampling\['planner'\] has 'temprature', .*Did you mean 'temperatu"),
        ({"planner": 0.7}, r"role_sampling\['planner'\] is 0.7, expected a mapping with some of temperature"),
        ("planner", r"role_sampling is 'planner', expected a mapping"),
        ({"planner": {"temperature": 0.0}}, r"temperature=0.0 for a role's sampling, expected a number above 0"),
        ({"planner": {"top_p": 1.1}}, r"top_p=1.1 .*at most 1"),
        ({"planner": {"top_k": -1}}, r"top_k=-1 .*or more"),
        ({"planner": {"min_p": -0.1}}, r"min_p=-0.1 .*from 0 to 1"),
        ({"planner": {"max_completion_length": 0}}, r"max_completion_length=0 .*1 or more"),
        (
            {"planner": {"enable_thinking": "no"}},
            r"enable_thinking='no' for a role's sampling, expected true or false",
        ),
        ({"planner": {"stop": [""]}}, r"stop=\(''\,\) for a role's sampling, expected words"),
    ],
)
def test_what_a_role_cannot_sample_by_is_refused_by_the_configuration(
    given: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, role_sampling=given)


def test_the_command_line_gives_it_as_json(tmp_path: Path) -> None:
    args = MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, role_sampling='{"planner": {"top_k": 5}}')
    assert args.role_sampling == {"planner": {"top_k": 5}}


def test_a_yaml_file_gives_it_as_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "env_id: any\nmodel_name_or_path: m\nuse_cpu: true\nbf16: false\n"
        "role_sampling:\n  planner: {temperature: 0.7, stop: ['</plan>']}\n"
        "vllm_server_urls:\n  planner: http://a:8000\n"
    )
    *_, args, _ = arguments.parse(["--config", str(path)], KINDS, prog="train")
    assert parse(args.role_sampling) == {"planner": SamplingOverrides(temperature=0.7, stop=("</plan>",))}
    assert args.vllm_server_urls == {"planner": "http://a:8000"}


@pytest.mark.parametrize(
    ("policies", "given", "options", "message"),
    [
        ("lora", {"planer": {"top_k": 5}}, {}, r"role_sampling is given for 'planer', but .* Did you mean 'planner'"),
        (
            "shared",
            {"planner": {"temperature": 0.7}},
            {},
            r"policy 'base' samples at different temperatures \(\{'planner_0': 0.7, 'planner_1': 0.7, 'drafter_0': 1",
        ),
        ("lora", {"planner_1": {"temperature": 0.7}}, {}, r"policy 'planner' samples at different temperatures"),
        (
            {"planner": "p", "drafter": Policy(api=lambda messages: "")},
            {"drafter": {"top_k": 5}},
            {},
            r"given for 'drafter_0', who is an API, expected a policy with weights",
        ),
    ],
)
def test_what_a_team_cannot_meet_is_refused(
    policies: Any, given: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    args = MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **options)
    with pytest.raises(ValueError, match=message):
        check(parse(given), route(policies, AGENTS), args.temperature)


def test_partners_who_do_not_learn_may_share_weights_at_different_temperatures() -> None:
    routing = route({"planner": Policy(trainable=False), "drafter": "d"}, AGENTS)
    overrides = of_agents(parse({"planner_1": {"temperature": 0.7}, "drafter": {"temperature": 0.5}}), AGENTS)
    assert temperatures(overrides, routing, 1.0)["d"] == 0.5


# ---- Stop words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stop", "ids", "said"),
    [
        ("move U. END move D", ("END",), "move U. END", "move U. "),
        ("move U", ("END",), "move U", "move U"),
        ("one\n\ntwo###", ("###", "\n\n"), "one\n\n", "one"),
        ("ENDEND", ("END",), "END", ""),
        ("abcab", ("cab", "bc"), "abc", "a"),
        ("anything", (), "anything", "anything"),
    ],
)
def test_ids_end_with_the_stop_word_and_the_text_before_it(
    text: str, stop: tuple[str, ...], ids: str, said: str
) -> None:
    kept = up_to_stop([*map(ord, text)], stop, letters)
    assert letters(kept) == ids
    assert before_stop(letters(kept), stop) == said


def test_what_the_generator_sampled_after_a_stop_word_is_not_trained_on() -> None:
    (answer,) = sample(
        [Request("solver_0", Prompt([{"role": "user", "content": "?"}]), 2)],
        tokenize=lambda prompts: [[1, 2] for _ in prompts],
        generate=lambda prompts, images: ([[*map(ord, "go. left")], [*map(ord, "stay")]], [[-1.0] * 8, [-2.0] * 4]),
        decode=lambda rows: [letters(ids) for ids in rows],
        ends={ord("!")},
        stop=(".",),
    )
    first, second = answer.completions
    assert (first.finish, second.finish) == ("stop", "length")
    assert (first.text, letters(first.ids), first.logprobs) == ("go", "go.", (-1.0,) * 3)
    assert (second.text, letters(second.ids), second.logprobs) == ("stay", "stay", (-2.0,) * 4)


# ---- In the trainer -----------------------------------------------------------------------------------------------


class Team(KeepsRollouts, KeepsBatches, MultiAgentGRPOTrainer):
    pass


def team(path: str, tmp_path: Path, policies: Any = TEAM, **options: Any) -> Team:
    given = policies.values() if isinstance(policies, dict) else ()
    adapters = policies == "lora" or any(isinstance(policy, str) for policy in given)
    return Team(
        None if given and not adapters else path,
        Relay,
        settings(tmp_path, **{"max_turns": 1, "max_steps": 2, "seed": 7, **options}),
        Dataset.from_dict({"seed": range(24)}),
        policies=policies,
        peft_config=adapter() if adapters else None,
    )


def scored(trainer: MultiAgentGRPOTrainer, model: Any) -> torch.Tensor:
    """Log-probabilities of some tokens, as the loss reads them."""
    ids = torch.arange(5, 25).view(2, 10)
    return trainer.scorer.score(model, ids, torch.ones_like(ids), 6)[0].detach()


def by_hand(model: Any, temperature: float) -> torch.Tensor:
    ids = torch.arange(5, 25).view(2, 10)
    logits = model(input_ids=ids).logits[:, 3:-1].detach() / temperature
    return logits.log_softmax(-1).gather(-1, ids[:, 4:, None]).squeeze(-1)


ONES = {"opener": 0.7, "closer": 1.5}
LAYOUTS: dict[str, Any] = {
    "lora": lambda path: (TEAM, TWO, ONES),
    "full": lambda path: ({"opener": Policy(model=path), "closer": Policy(model=path)}, TWO, ONES),
    "mixture": lambda path: ({"opener": "opener", "closer": Policy(model=path)}, TWO, ONES),
    "one of two": lambda path: (TEAM, {"closer": {"temperature": 1.5}}, {"opener": 1.0, "closer": 1.5}),
    "shared": lambda path: (
        "shared",
        {"opener": {"temperature": 0.7}, "closer": {"temperature": 0.7}},
        {"base": 0.7},
    ),
}


@pytest.mark.parametrize(
    "layout",
    [pytest.param(name, marks=() if name in ("mixture", "one of two") else pytest.mark.slow) for name in LAYOUTS],
)
def test_the_loss_divides_the_logits_of_a_policy_by_the_temperature_of_its_role(
    layout: str, model_path: str, tmp_path: Path
) -> None:
    policies, role_sampling, expected = LAYOUTS[layout](model_path)
    trainer = team(model_path, tmp_path, policies, role_sampling=role_sampling, beta=0.1)
    trainer.train()  # prepared by accelerate, and the policies have become different
    assert {policy.name for policy in trainer.routing.trained} == {*expected}
    for _ in range(2):  # switched to and fro
        for name, temperature in expected.items():
            trainer.activate(name)
            found = scored(trainer, trainer.model)
            assert torch.allclose(found, by_hand(trainer.model, temperature), atol=1e-5)
            assert not torch.allclose(found, by_hand(trainer.model, 1.1), atol=1e-2)
            reference = scored(trainer, trainer.ref_model)
            start = AutoModelForCausalLM.from_pretrained(model_path)
            assert torch.allclose(reference, by_hand(start, temperature), atol=1e-5)


def test_generate_samples_each_role_by_its_own_settings(model_path: str, tmp_path: Path) -> None:
    role_sampling = {
        "opener": {"temperature": 0.7, "max_completion_length": 3, "top_k": 9},
        "closer": {"stop": ["A", "e"], "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.1},
    }
    trainer = team(model_path, tmp_path, max_completion_length=24, role_sampling=role_sampling)
    asked = []
    generate = trainer.model.generate

    def keep(*args: Any, generation_config: Any, **kwargs: Any) -> Any:
        asked.append((generation_config, kwargs.get("tokenizer")))
        return generate(*args, generation_config=generation_config, **kwargs)

    trainer.model.generate = keep
    (episode,) = trainer.play([{"seed": 3}])
    (opener, without), (closer, tokenizer), *_ = asked
    assert (opener.temperature, opener.max_new_tokens, opener.top_k, opener.top_p) == (0.7, 3, 9, 1.0)
    assert (closer.temperature, closer.max_new_tokens, closer.top_k, closer.top_p) == (1.0, 24, 0, 0.95)
    assert (closer.min_p, closer.repetition_penalty, closer.stop_strings) == (0.01, 1.1, ["A", "e"])
    assert (opener.stop_strings, without, tokenizer) == (None, None, trainer.processing_class)
    for decision in episode.decisions:
        completion = decision.played.completion
        if decision.agent == "opener_0":
            assert len(completion.ids) <= 3
        else:
            assert not {*"Ae"} & {*completion.text}
    assert trainer.generation_config.stop_strings is None


THINKING = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>{{ '!' if enable_thinking else '' }}{% endif %}"
)


def test_evaluations_sample_each_role_by_their_own_settings_and_training_goes_on_as_before(
    model_path: str, tmp_path: Path
) -> None:
    trainer = team(
        model_path,
        tmp_path,
        max_steps=1,
        max_completion_length=6,
        chat_template_kwargs={"enable_thinking": False},
        role_sampling={"opener": {"max_completion_length": 5}, "closer": {"enable_thinking": True}},
        role_sampling_eval={"opener": {"temperature": 0.5, "enable_thinking": True}, "closer": {"top_k": 1}},
    )
    trainer.chat_template = THINKING
    for codec in trainer.codecs.values():
        codec._chat_template = THINKING
    asked, generate = [], trainer.model.generate

    def keep(input_ids: Any, generation_config: Any, **kwargs: Any) -> Any:
        thinks = trainer.processing_class.decode(input_ids[0]).endswith("!")
        config = generation_config
        asked.append((thinks, config.temperature, config.max_new_tokens, config.top_k))
        return generate(input_ids=input_ids, generation_config=generation_config, **kwargs)

    trainer.model.generate = keep
    in_training = [(False, 1.0, 5, 0), (True, 1.0, 6, 0)]
    trainer.play([{"seed": 3}])
    assert asked == in_training
    asked.clear()
    trainer.evaluate(Dataset.from_dict({"seed": [3]}))
    assert asked == [(True, 0.5, 5, 0), (True, 1.0, 6, 1)]
    asked.clear()
    trainer.play([{"seed": 3}])
    assert asked == in_training


@pytest.mark.parametrize(
    ("policies", "given", "message"),
    [
        ("lora", {"planer": {"top_k": 5}}, r"role_sampling_eval is given for 'planer', but .* Did you mean 'planner'"),
        (
            {"planner": "p", "drafter": Policy(api=lambda messages: "")},
            {"drafter": {"top_k": 5}},
            r"role_sampling_eval is given for 'drafter_0', who is an API",
        ),
    ],
)
def test_what_an_evaluation_cannot_meet_is_refused(policies: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_evaluation(parse(given), route(policies, AGENTS))


def test_agents_of_one_policy_may_be_evaluated_at_different_temperatures() -> None:
    check_evaluation(parse({"planner_0": {"temperature": 0.7}}), route("shared", AGENTS))


def test_completions_that_a_stop_word_ended_are_trained_on_to_the_word(model_path: str, tmp_path: Path) -> None:
    stop = [chr(number) for number in range(65, 90)]
    trainer = team(model_path, tmp_path, "shared", max_completion_length=32, role_sampling={"closer": {"stop": stop}})
    trainer.train()
    said = [
        (candidate.completion.ids, candidate.completion.text)
        for episodes in trainer.rollouts
        for episode in episodes
        for decision in episode.decisions
        if decision.agent == "closer_0"
        for candidate in decision.candidates
    ]
    stopped = [ids for ids, text in said if trainer.processing_class.decode(ids)[-1:] in stop]
    assert len(stopped) > len(said) / 2  # one in ten of a random model's bytes ends it
    assert not any({*stop} & {*text} for _, text in said)
    trained = {
        tuple(row[mask.bool()].tolist())
        for batch in trainer.batches
        for row, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    }
    assert {*stopped} <= trained


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param(TEAM, id="lora"),
        pytest.param("full", id="full", marks=pytest.mark.slow),
        pytest.param("shared", id="shared", marks=pytest.mark.slow),  # as TRL has it
    ],
)
def test_continuous_batching_samples_for_every_layout(policies: Any, model_path: str, tmp_path: Path) -> None:
    trainer = team(
        model_path,
        tmp_path,
        policies,
        use_transformers_continuous_batching=True,
        transformers_continuous_batching_config={"num_blocks": 32, "page_size": 32, "max_batch_tokens": 256},
        role_sampling={"closer": {"max_completion_length": 3}},
        max_steps=1,
    )
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.train()
    assert trainer.state.global_step == 1
    for policy in trainer.routing.trained:
        own = {id(p) for p in trainer.team.parameters_of(policy)}
        assert any(not torch.equal(p, before[n]) for n, p in trainer.model.named_parameters() if id(p) in own)
    trainer.model.eval()
    (episode,) = trainer.play([{"seed": 3}])
    assert not trainer.model.training
    assert all(0 < len(d.played.completion.ids) <= (3 if d.agent == "closer_0" else 8) for d in episode.decisions)
