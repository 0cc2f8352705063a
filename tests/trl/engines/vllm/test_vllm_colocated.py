"""The colocated engine on vLLM for CPUs, beside Hugging Face models with the same weights. Run with `-m vllm`."""

from __future__ import annotations

import itertools
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from pettingllms_trl import MultiAgentGRPOConfig
from pettingllms_trl.engines.kinds import PromptCodec
from pettingllms_trl.engines.vllm.adapters import RANKS
from pettingllms_trl.engines.vllm.params import VllmParams
from pettingllms_trl.engines.weight_store import AdapterVersion, StaleWeights, WeightStore
from pettingllms_trl.records import Completion, Prompt, Request, Sampled
from pettingllms_trl.role_sampling import SamplingOverrides
from plays import play
from third_party import Relay


pytestmark = [
    pytest.mark.vllm,
    # vLLM's own, at import and start: swig types, torch.jit, a fork with threads running.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
]

# A tokenizer of bytes: every letter is a token, so this prompt fills two of the 128-token blocks of the prefix cache.
LONG = [{"role": "user", "content": "What follows? " * 20}]
SHORT = [{"role": "user", "content": "Go on."}]
ADAPTERS = ("opener", "closer")
EXACT = 2e-5  # in float32; a stale or foreign adapter is off by 1e-2 and more
TEAM = {"opener_0": "opener", "closer_0": "closer", "partner_0": "partner"}  # the partner is the base model


def config(path: Path, **options: Any) -> MultiAgentGRPOConfig:
    options = {"max_completion_length": 16, "seed": 3, "vllm_max_model_length": 512, **options}
    return MultiAgentGRPOConfig(str(path), use_cpu=True, bf16=False, report_to="none", **options)


@pytest.fixture(scope="module")
def start(
    base_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    alive = []  # an engine that is forgotten takes the process groups of all others along

    def start(of_agent: Mapping[str, str], adapters: Mapping[str, Any], **options: Any) -> Any:
        engine_module = pytest.importorskip("pettingllms_trl.engines.vllm.colocated", reason="needs the extra `vllm`")
        overrides = options.pop("overrides", {})
        engine_args = {"kv_cache_memory_bytes": 2**27, **options.pop("engine_args", {})}
        args = config(tmp_path_factory.mktemp("run"), **options)
        tongue = PromptCodec(
            tokenize=lambda prompt: tokenizer.apply_chat_template(
                list(prompt.messages), add_generation_prompt=True, return_dict=False
            ),
            decode=lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
        )
        codecs = {
            agent: replace(tongue, overrides=partial(overrides.get, agent, SamplingOverrides())) for agent in of_agent
        }
        arguments = {"model": base_path, "dtype": "float32", **engine_module.engine_arguments(args), **engine_args}
        engine = engine_module.ColocatedVllm(
            arguments,
            of_agent=of_agent,
            adapters=adapters,
            params=VllmParams.of_config(args, codecs),
            folder=Path(args.output_dir),
        )
        alive.append(engine)
        return engine

    return start


@pytest.fixture(scope="module")
def peft_config() -> LoraConfig:
    return LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")


@pytest.fixture(scope="module")
def peft_model(base_path: str, peft_config: LoraConfig) -> PeftModel:
    """The trainer's side: the same base, with an adapter for each of two roles."""
    torch.manual_seed(1)
    model = get_peft_model(Qwen3ForCausalLM.from_pretrained(base_path), peft_config, adapter_name=ADAPTERS[0])
    model.add_adapter(ADAPTERS[1], peft_config)
    return model.eval()


@pytest.fixture(scope="module")
def team(start: Callable[..., Any], peft_model: PeftModel) -> Any:
    """An engine that serves two adapters and, for a third agent, the base beside them."""
    return start(TEAM, {name: peft_model.peft_config[name] for name in ADAPTERS})


@pytest.fixture
def synced(team: Any, peft_model: PeftModel) -> Any:
    for name in ADAPTERS:
        renew(team, name, adapter(peft_model, name))
    return team


def renew(engine: Any, policy: str, state: Mapping[str, torch.Tensor]) -> None:
    engine.load(policy, state.items(), engine.versions.get(policy, 0) + 1)


def adapter(model: PeftModel, name: str) -> dict[str, torch.Tensor]:
    return get_peft_model_state_dict(model, adapter_name=name)


def ask(engine: Any, requests: Sequence[Request], rollout: str = "test") -> list[Sampled]:
    """All at once, so that they share batches."""
    answers: dict[int, Sampled] = {}
    with engine.rollout(rollout):
        for ticket, request in enumerate(requests):
            engine.submit(ticket, request)
        while len(answers) < len(requests):
            answers.update(engine.step())
    return [answers[ticket] for ticket in range(len(requests))]


def logprobs(
    model: Any, answer: Sampled, name: str | None = None, keep: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
) -> list[torch.Tensor]:
    """Of each completion's tokens, under the model with the named adapter, or none. `keep` shapes the logits."""
    if name is not None:
        model.set_adapter(name)
        return [_forward(model, answer.prompt.ids, c.ids, keep) for c in answer.completions]
    if isinstance(model, PeftModel):
        with model.disable_adapter():
            return [_forward(model, answer.prompt.ids, c.ids, keep) for c in answer.completions]
    return [_forward(model, answer.prompt.ids, c.ids, keep) for c in answer.completions]


def _forward(
    model: Any, prompt: Sequence[int], ids: Sequence[int], keep: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return keep(logits).log_softmax(-1)[torch.arange(len(ids)), list(ids)]


def difference(expected: Sequence[torch.Tensor], answer: Sampled) -> float:
    return max(
        float((one.detach() - torch.tensor(c.logprobs)).abs().max())
        for one, c in zip(expected, answer.completions, strict=True)
    )


def update(model: PeftModel, name: str, answer: Sampled, rate: float = 0.3) -> None:
    """A step that makes the first half of the candidates likelier and the other half less so."""
    losses = logprobs(model, answer, name)
    half = len(losses) // 2
    loss = sum(one.sum() for one in losses[half:]) - sum(one.sum() for one in losses[:half])
    parameters = [p for key, p in model.named_parameters() if f".{name}." in key]
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter -= rate * gradient / (1e-6 + gradient.norm())


# ---- Which weights --------------------------------------------------------------------------------------------------


def test_over_20_updates_two_adapters_and_the_base_are_each_sampled_as_hugging_face_scores_them(
    team: Any, peft_model: PeftModel
) -> None:
    largest = []
    before: list[tuple[int, ...]] = []
    for number in range(20):
        for name in ADAPTERS:
            renew(team, name, adapter(peft_model, name))
        assert team.versions == dict.fromkeys(ADAPTERS, number + 1)
        requests = [Request(agent, Prompt(prompt), 4) for agent in TEAM for prompt in (LONG, SHORT)]
        answers = ask(team, requests, rollout=str(number))
        for request, answer in zip(requests, answers, strict=True):
            name = TEAM[request.agent]
            expected = logprobs(peft_model, answer, name if name in ADAPTERS else None)
            largest.append(difference(expected, answer))
        assert [c.ids for c in answers[0].completions] != before
        before = [c.ids for c in answers[0].completions]
        for name, answer in (("opener", answers[0]), ("closer", answers[2])):
            update(peft_model, name, answer)
    with torch.no_grad():
        apart = difference(logprobs(peft_model, answers[0], "closer"), answers[0])
    print(
        f"largest |log-prob(HF) - log-prob(vLLM)| of 20 rounds: {max(largest):.1e}; of the other adapter {apart:.1e}"
    )
    assert max(largest) < EXACT
    assert apart > 0.1  # the adapters have become different enough for the claim to mean something


def test_a_version_that_overwrites_the_last_is_seen_in_the_log_probabilities(
    synced: Any, peft_model: PeftModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What versioned names are for: the same name, path and id for new weights, and vLLM goes on with the old."""
    (before,) = ask(synced, [Request("opener_0", Prompt(LONG), 4)])
    assert difference(logprobs(peft_model, before, "opener"), before) < EXACT
    write = WeightStore.write
    kept, lora = synced._serving["opener"], synced._loras["opener"]

    def overwrite(self: WeightStore, policy: str, *args: Any) -> AdapterVersion:
        version = write(self, policy, *args)
        for file in version.path.iterdir():
            file.replace(kept.path / file.name)
        version.path.rmdir()
        return kept

    with monkeypatch.context() as patch:
        patch.setattr(WeightStore, "write", overwrite)
        patch.setattr(WeightStore, "remove", lambda *_: None)
        patch.setattr(synced, "_adapter_ids", itertools.repeat(lora.lora_int_id))
        patch.setattr(synced._engine, "remove_lora", lambda _: True)
        update(peft_model, "opener", before)
        renew(synced, "opener", adapter(peft_model, "opener"))
        (stale,) = ask(synced, [Request("opener_0", Prompt(LONG), 4)])
    assert difference(logprobs(peft_model, stale, "opener"), stale) > 1e-2
    renew(synced, "opener", adapter(peft_model, "opener"))
    (fresh,) = ask(synced, [Request("opener_0", Prompt(LONG), 4)])
    assert difference(logprobs(peft_model, fresh, "opener"), fresh) < EXACT


def test_on_a_cpu_rows_without_an_adapter_still_need_one_of_zeros(
    synced: Any, peft_model: PeftModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vllm-project/vllm#48421. Where this fails vLLM has mended it, and `WeightStore.write_zero` can go."""
    (first,) = ask(synced, [Request("closer_0", Prompt(SHORT), 4)])
    update(peft_model, "closer", first)
    renew(synced, "closer", adapter(peft_model, "closer"))
    requests = [Request(agent, Prompt(SHORT), 4) for agent in TEAM]
    answer = ask(synced, requests)[2]
    assert difference(logprobs(peft_model, answer), answer) < EXACT
    add_request = synced._engine.add_request
    zero = synced._loras["partner"]

    def without_zero(*args: Any, lora_request: Any) -> Any:
        return add_request(*args, lora_request=None if lora_request is zero else lora_request)

    monkeypatch.setattr(synced._engine, "add_request", without_zero)
    monkeypatch.setattr(type(synced), "_answer", lambda self, output: _raw_answer(self, output))
    answer = ask(synced, requests)[2]
    assert difference(logprobs(peft_model, answer), answer) > 1e-3


def _raw_answer(engine: Any, output: Any) -> tuple[int, Sampled]:
    """The engine's own refuses it: not sampled by the adapter of zeros."""
    asked = engine._waiting.pop(output.request_id)
    completions = tuple(
        Completion(ids=tuple(c.token_ids), text="", logprobs=tuple(c.logprobs.logprobs)) for c in output.outputs
    )
    return asked.ticket, Sampled(asked.prompt, completions)


def test_a_text_is_scored_as_hugging_face_does_at_temperature_1_with_the_weights_of_now(
    start: Callable[..., Any], peft_model: PeftModel, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Not from keys and values that are kept: the text is scored twice, and sampled after as a prompt in between.

    The difference is the root mean square, as the canary has it: where queries or keys have next to no norm,
    float32 alone is off by up to 1e-4 at a token, in Hugging Face's model as in vLLM's.
    """
    engine = start({"opener_0": "opener"}, {"opener": peft_model.peft_config["opener"]}, temperature=0.5, top_k=20)
    ids = tokenizer.apply_chat_template(LONG, add_generation_prompt=True, return_dict=False)
    before = torch.zeros(len(ids) - 1)
    for number in range(1, 4):
        renew(engine, "opener", adapter(peft_model, "opener"))
        for _ in range(2):
            with engine.rollout("score"):
                (scored,) = engine.score("opener", Prompt(LONG, tuple(ids)))
            assert (scored.place, scored.weights) == ("this process", f"opener-v{number}")
            peft_model.set_adapter("opener")
            with torch.no_grad():
                expected = _forward(peft_model, ids[:1], ids[1:], lambda logits: logits)
            assert _rms(expected - torch.tensor(scored.logprobs)) < EXACT
            (answer,) = ask(engine, [Request("opener_0", Prompt(LONG), 4)])
        assert _rms(expected - before) > 100 * EXACT  # those of the weights before
        before = expected
        update(peft_model, "opener", answer)
    long = Prompt([], (5,) * 600)
    with engine.rollout("long"):
        assert len(engine.score("opener", long)[0].logprobs) == 510  # of a context of 512, with one to be sampled


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def test_new_base_weights_with_tied_embeddings_reach_the_base_and_the_adapters_on_it(
    start: Callable[..., Any], base_path: str, peft_config: LoraConfig
) -> None:
    model = get_peft_model(Qwen3ForCausalLM.from_pretrained(base_path), peft_config, adapter_name="critic").eval()
    engine = start({"solver_0": "shared", "critic_0": "critic"}, {"critic": model.peft_config["critic"]})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    renew(engine, "critic", adapter(model, "critic"))
    requests = [Request(agent, Prompt(prompt), 4) for agent in ("solver_0", "critic_0") for prompt in (LONG, SHORT)]
    ask(engine, requests)  # fills the prefix cache from the base on disk
    base = {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): tensor
        for name, tensor in model.state_dict().items()
        if "lora_" not in name
    }
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= base.keys()
    renew(engine, "shared", base)
    answers = ask(engine, requests)
    for answer in answers[:2]:
        assert difference(logprobs(model, answer), answer) < EXACT
    for answer in answers[2:]:
        assert difference(logprobs(model, answer, "critic"), answer) < EXACT


def test_a_base_model_that_two_policies_share_is_not_trained_for_one(start: Callable[..., Any]) -> None:
    engine = start({"solver_0": "shared", "partner_0": "frozen"}, {})
    assert engine.versions == {}
    with pytest.raises(ValueError, match=r"one set can be trained for one policy. Give each an adapter, or an engine"):
        renew(engine, "shared", {})


def test_a_policy_is_not_asked_before_it_has_weights(start: Callable[..., Any], peft_config: LoraConfig) -> None:
    engine = start({"opener_0": "opener"}, {"opener": peft_config})
    with (
        pytest.raises(StaleWeights, match=r"policy 'opener', whose weights were never given. Call load first"),
        engine.rollout("early"),
    ):
        engine.submit(0, Request("opener_0", Prompt(SHORT), 1))


def test_weights_do_not_change_under_requests_in_flight(synced: Any, peft_model: PeftModel) -> None:
    with synced.rollout("in flight"):
        synced.submit(0, Request("opener_0", Prompt(SHORT), 4))
        with pytest.raises(StaleWeights, match="policy 'closer' while 1 requests are in flight, expected none"):
            renew(synced, "closer", adapter(peft_model, "closer"))


def test_one_version_of_each_adapter_lies_on_disk_and_is_loaded(synced: Any, peft_model: PeftModel) -> None:
    for _ in range(3):
        renew(synced, "opener", adapter(peft_model, "opener"))
    number = synced.versions
    assert sorted(path.name for path in synced._store.folder.iterdir()) == [
        f"closer-v{number['closer']}",
        f"opener-v{number['opener']}",
        "partner-zero",
    ]
    assert len(synced._engine.list_loras()) == 3


# ---- What is sampled ------------------------------------------------------------------------------------------------


def test_completions_end_with_the_token_that_ended_them_and_their_text_is_their_ids_decoded(
    start: Callable[..., Any], tokenizer: PreTrainedTokenizerFast, base_path: str
) -> None:
    engine = start(
        {"solver_0": "shared", "talker_0": "shared"},
        {},
        max_completion_length=100,
        overrides={"talker_0": SamplingOverrides(stop=("A", "B"), top_k=200), "solver_0": SamplingOverrides(top_k=0)},
    )
    answer, talk = ask(engine, [Request("solver_0", Prompt(SHORT), 32), Request("talker_0", Prompt(SHORT), 32)])
    assert list(answer.prompt.ids) == tokenizer.apply_chat_template(
        SHORT, add_generation_prompt=True, return_dict=False
    )
    ended = [c for c in answer.completions if tokenizer.eos_token_id in c.ids]
    assert len(ended) > 3  # a random model ends with probability 1/261 at each of 100 tokens
    for c in ended:
        assert c.ids.index(tokenizer.eos_token_id) == len(c.ids) - 1
    assert all(len(c.ids) == 100 for c in answer.completions if c not in ended)
    for c in answer.completions:
        assert c.text == tokenizer.decode(c.ids, skip_special_tokens=True)
        assert "<|end|>" not in c.text
    said = [tokenizer.decode(c.ids, skip_special_tokens=True) for c in talk.completions]
    assert sum(text.endswith(("A", "B")) for text in said) > 10
    for c, text in zip(talk.completions, said, strict=True):  # the word was sampled; the action ends before it
        assert c.text == (text[:-1] if text.endswith(("A", "B")) else text)
        assert not {*"AB"} & {*c.text}
    model = Qwen3ForCausalLM.from_pretrained(base_path)
    assert difference(logprobs(model, answer), answer) < EXACT

    def keep(logits: torch.Tensor) -> torch.Tensor:
        return logits.masked_fill(logits < logits.topk(200).values[:, -1:], -torch.inf)

    assert difference(logprobs(model, talk, keep=keep), talk) < EXACT


def test_log_probabilities_are_those_of_the_distribution_sampled_from(
    start: Callable[..., Any], base_path: str
) -> None:
    engine = start({"solver_0": "shared"}, {}, temperature=0.5, top_k=20)

    def keep(logits: torch.Tensor) -> torch.Tensor:
        logits = logits / 0.5
        return logits.masked_fill(logits < logits.topk(20).values[:, -1:], -torch.inf)

    (answer,) = ask(engine, [Request("solver_0", Prompt(SHORT), 8)])
    model = Qwen3ForCausalLM.from_pretrained(base_path)
    assert difference(logprobs(model, answer, keep=keep), answer) < EXACT
    assert difference(logprobs(model, answer), answer) > 0.1


def test_a_rollout_of_the_same_name_repeats_itself_and_another_does_not(synced: Any) -> None:
    requests = [Request(agent, Prompt(SHORT), 4) for agent in TEAM]
    one, again, other = (ask(synced, requests, rollout=name) for name in ("3/7", "3/7", "3/8"))
    assert one == again
    assert [[c.ids for c in a.completions] for a in one] != [[c.ids for c in a.completions] for a in other]
    for answer in one:
        assert len({c.ids for c in answer.completions}) == 4


def test_a_ticket_used_again_is_not_seeded_again(synced: Any) -> None:
    answers = []
    with synced.rollout("tickets"):
        for _ in range(2):
            synced.submit(5, Request("opener_0", Prompt(SHORT), 2))
            got: list[Any] = []
            while not got:
                got.extend(synced.step())
            answers.append(got[0])
    assert answers[0][0] == answers[1][0] == 5
    assert answers[0][1].completions != answers[1][1].completions


def test_what_a_broken_rollout_left_in_flight_does_not_reach_the_next(synced: Any) -> None:
    with synced.rollout("broken off"):
        synced.submit(0, Request("opener_0", Prompt(LONG), 4))
        synced.step()
    assert not synced._engine.has_unfinished_requests()
    answer, undisturbed = (ask(synced, [Request("closer_0", Prompt(SHORT), 2)], rollout="next") for _ in range(2))
    assert answer == undisturbed


def test_a_prompt_that_leaves_no_room_is_refused_by_name(synced: Any) -> None:
    long = [{"role": "user", "content": "x" * 600}]
    with (
        pytest.raises(ValueError, match="prompt of agent 'opener_0' has 603 tokens, but the context holds 512"),
        synced.rollout("long"),
    ):
        synced.submit(0, Request("opener_0", Prompt(long), 2))


def test_prompts_that_do_not_fit_one_pass_wait_for_the_next(start: Callable[..., Any], base_path: str) -> None:
    """Cut in two, as vLLM would by default, a request with a seed raises on a CPU: its generator has no offset."""
    engine = start({"solver_0": "shared"}, {}, engine_args={"max_num_batched_tokens": 512})
    prompts = [[{"role": "user", "content": f"{number}. " * 100}] for number in range(5)]
    answers = ask(engine, [Request("solver_0", Prompt(prompt), 4) for prompt in prompts])
    assert {len(answer.prompt.ids) for answer in answers} == {303}
    model = Qwen3ForCausalLM.from_pretrained(base_path)
    assert max(difference(logprobs(model, answer), answer) for answer in answers) < EXACT


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_team_plays_whole_episodes_on_it(synced: Any, num_threads: int) -> None:
    of_agent = {"opener_0", "closer_0"}
    with synced.rollout("play"):
        rollout = play(
            [{"seed": seed} for seed in range(3)],
            make_env=Relay,
            engine=synced,
            sampling="tree",
            num_candidates=4,
            seed="3/play",
            num_threads=num_threads,
        )
    assert len(rollout.episodes) == 3
    for episode in rollout.episodes:
        assert [d.agent for d in episode.decisions] == ["opener_0", "closer_0"] * 2
        assert {d.agent for d in episode.decisions} == of_agent
        assert all(c.completion.logprobs is not None for d in episode.decisions for c in d.candidates)


# ---- The engine's arguments -----------------------------------------------------------------------------------------


def test_ranks_are_those_vllm_offers() -> None:
    lora = pytest.importorskip("vllm.config.lora")
    assert typing.get_args(lora.MaxLoRARanks) == RANKS


def test_a_gpu_gets_the_memory_and_sleep_that_the_configuration_says(tmp_path: Path) -> None:
    module = pytest.importorskip("pettingllms_trl.engines.vllm.colocated")
    args = config(tmp_path, vllm_gpu_memory_utilization=0.4, vllm_enable_sleep_mode=True, vllm_tensor_parallel_size=2)
    on_gpu, on_cpu = (module.engine_arguments(args, on_cpu=on_cpu) for on_cpu in (False, True))
    expected = {"gpu_memory_utilization": 0.4, "enable_sleep_mode": True, "tensor_parallel_size": 2}
    assert expected.items() <= on_gpu.items()
    assert not {*expected} & {*on_cpu}
    assert on_gpu["max_model_len"] == on_cpu["max_model_len"] == 512
    assert on_gpu["logprobs_mode"] == on_cpu["logprobs_mode"] == "processed_logprobs"


def test_adapters_beside_a_base_get_a_slot_each_and_one_for_the_base(peft_config: LoraConfig) -> None:
    module = pytest.importorskip("pettingllms_trl.engines.vllm.colocated")
    assert module.lora_arguments({}, num_bases=1) == {}
    assert module.lora_arguments({"opener": peft_config, "closer": peft_config}, num_bases=1) == {
        "enable_lora": True,
        "max_loras": 3,
        "max_lora_rank": 8,
    }
