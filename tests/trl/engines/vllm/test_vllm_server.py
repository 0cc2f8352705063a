"""The client of `vllm serve`: against a server of the standard library that keeps count, and once against vLLM."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from PIL import Image as Picture
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from fake_vllm import ADAPTER, HELLO, LORA, PLACE, TEAM, WHOLE, FakeVLLM, answers_of, engine_on, fakes
from pettingllms_envs.agents.server import ServerUnreachable
from pettingllms_trl import MultiAgentGRPOConfig
from pettingllms_trl.engines.kinds import PromptCodec
from pettingllms_trl.engines.vllm.params import VllmParams
from pettingllms_trl.engines.vllm.server import VllmServer
from pettingllms_trl.engines.weight_store import StaleWeights
from pettingllms_trl.pixels import ImageInputs, PixelCache
from pettingllms_trl.records import Prompt, Request, Sampled, Scored
from picture_books import as_image, drawn
from plays import play
from real_vllm import served
from short_runs import settings
from third_party import Relay
from tiny_vlms import qwen_processor


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeVLLM]]:
    with fakes() as start:
        yield start


@pytest.fixture
def connect(tmp_path: Path) -> Callable[..., VllmServer]:
    def connect(servers: Sequence[FakeVLLM], *args: Any, **options: Any) -> VllmServer:
        return engine_on([server.url for server in servers], tmp_path, *args, **options)

    return connect


def ask(engine: VllmServer, requests: Mapping[int, Request], rollout: str = "test") -> dict[int, Sampled]:
    with engine.rollout(rollout):
        return answers_of(engine, requests)


def test_candidates_of_a_prompt_are_one_request_answered_by_ids_as_they_were_sampled(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    engine = connect([server], {"solver_0": "shared"}, {}, temperature=0.7)
    (answer,) = ask(engine, {4: Request("solver_0", Prompt(HELLO), 3)}).values()
    (body,) = server.completions
    asked = {"model": "base", "prompt": [97, 98, 99], "n": 3, "logprobs": 0, "return_token_ids": True}
    assert asked.items() <= body.items()
    assert {"temperature": 0.7, "max_tokens": 8, "stop_token_ids": [7]}.items() <= body.items()
    assert answer.prompt.ids == (97, 98, 99)
    for i, completion in enumerate(answer.completions):
        first = 32 + (body["seed"] + i) % 90
        assert completion.ids == (first, 32 + (body["seed"] + i + 1) % 90)
        assert completion.text == "".join(map(chr, completion.ids))
        assert completion.logprobs == (-0.5, -1.0)


@pytest.fixture
def seeing(connect: Callable[..., VllmServer]) -> Callable[..., VllmServer]:
    images = ImageInputs(qwen_processor(), PixelCache())
    return lambda server: connect([server], {"solver_0": "shared"}, {}, images=images)


PICTURE = as_image(drawn(1))  # of 56 x 56 pixels, which are 4 places of 28 x 28
SHOWN = Prompt([], (97, *[PLACE] * 4, 98), (PICTURE,))


def test_a_picture_goes_beside_ids_with_one_place_for_it_and_the_ids_that_come_back_are_the_trainers(
    fake: Callable[..., FakeVLLM], seeing: Callable[..., VllmServer]
) -> None:
    server = fake()
    engine = seeing(server)
    requests = {4: Request("solver_0", SHOWN, 3), 5: Request("solver_0", Prompt(HELLO), 1)}
    answers = ask(engine, requests)
    (body,) = server.seen
    assert body["token_ids"] == [97, PLACE, 98]
    asked = {"n": 3, "logprobs": 0, "max_tokens": 8, "logit_bias": {str(PLACE): -100.0}}  # no place is sampled
    assert asked.items() <= body["sampling_params"].items()
    (part,) = body["content_parts"]
    sent = Picture.open(io.BytesIO(base64.b64decode(part["url"].removeprefix("data:image/png;base64,"))))
    assert sent.tobytes() == drawn(1).tobytes()
    assert answers[4].prompt == SHOWN
    assert [each.logprobs for each in answers[4].completions] == [(-0.5, -1.0)] * 3
    assert len(server.completions) == 2  # the prompt of text went there itself
    with engine.rollout("score"):
        (scored,) = engine.score("shared", SHOWN)
    assert scored.logprobs == (*[-PLACE / 1000] * 4, -0.098)


def test_a_server_that_makes_other_ids_of_a_picture_or_takes_none_is_an_error(
    fake: Callable[..., FakeVLLM], seeing: Callable[..., VllmServer]
) -> None:
    server = fake()
    server.num_places = 6
    engine = seeing(server)
    message = (
        r"of agent 'solver_0' has 6 tokens with \[4\] of its pictures, and vLLM read 8; expected the same. Pictures "
        r"are bounded by {'longest_edge': 12544, 'shortest_edge': 3136} here, and there by --mm-processor-kwargs of "
        r"http://127.0.0.1:\d+, or else its model's folder. Set equal bounds."
    )
    with engine.rollout("test"):
        with pytest.raises(ValueError, match=message):
            answers_of(engine, {0: Request("solver_0", SHOWN, 1)})
        with pytest.raises(ValueError, match=message):
            engine.score("shared", SHOWN)
        server.sees = False
        with pytest.raises(ValueError, match="takes pictures beside token ids: start it with --enable-scale-out"):
            answers_of(engine, {1: Request("solver_0", SHOWN, 1)})


def test_an_episode_stays_on_its_replica_and_the_same_rollout_is_seeded_the_same(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    servers = [fake(), fake()]
    engine = connect(servers, {"solver_0": "shared"}, {})
    requests = {
        ticket: Request("solver_0", Prompt([{"role": "user", "content": f"{ticket}"}]), 2) for ticket in range(6)
    }
    first = ask(engine, requests, "0/1")
    assert [sorted(chr(body["prompt"][0]) for body in s.completions) for s in servers] == [list("024"), list("135")]
    assert ask(engine, requests, "0/1") == first
    assert ask(engine, requests, "0/2") != first


def test_a_new_version_is_loaded_on_every_replica_before_the_old_one_goes(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    servers = [fake(), fake()]
    engine = connect(servers)
    for policy, version in (("opener", 1), ("closer", 1), ("opener", 2)):
        engine.load(policy, ADAPTER.items(), version)
    assert engine.versions == {"opener": 2, "closer": 1}
    run = servers[0].folder.name
    for server in servers:
        assert server.log == [
            ("load_lora_adapter", f"{run}/opener-v1"),
            ("load_lora_adapter", f"{run}/closer-v1"),
            ("load_lora_adapter", f"{run}/opener-v2"),
            ("unload_lora_adapter", f"{run}/opener-v1"),
        ]
    assert sorted(path.name for path in servers[0].folder.iterdir()) == ["closer-v1", "opener-v2"]
    ask(engine, {0: Request("opener_0", Prompt(HELLO), 2), 2: Request("closer_0", Prompt(HELLO), 2)})
    assert sorted(b["model"] for b in servers[0].completions) == [f"{run}/closer-v1", f"{run}/opener-v2"]


TEXT = Prompt([], (97, 98, 99))


def test_a_text_is_scored_by_every_replica_with_the_weights_that_it_samples_from(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    servers = [fake(), fake()]
    engine = connect(servers)
    engine.load("opener", ADAPTER.items(), 1)
    servers[1].adapters.clear()  # restarted: it is given the adapter again
    weights = f"{servers[0].folder.name}/opener-v1"
    logprobs = (-0.098, -0.099)
    assert engine.score("opener", TEXT) == tuple(Scored(s.url, weights, logprobs) for s in servers)
    engine = connect(servers, {"solver_0": "shared"}, {})
    assert [scored.weights for scored in engine.score("shared", TEXT)] == ["default"] * 2
    engine.load("shared", WHOLE.items(), 1)
    weights = f"{servers[0].folder.name}/shared-v1"
    assert [scored.weights for scored in engine.score("shared", TEXT)] == [weights] * 2
    long = Prompt([], (97,) * 5000)
    assert len(engine.score("shared", long)[0].logprobs) == 4094  # of a context of 4096, with one to be sampled
    servers[0].serves_as = "another"
    with pytest.raises(StaleWeights, match=r"answered with 'another', expected 'base'"):
        engine.score("shared", TEXT)


def test_two_runs_on_one_server_do_not_take_each_others_adapters(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    for engine in (connect([server]), connect([server])):
        engine.load("opener", ADAPTER.items(), 1)
    assert len(server.adapters) == 2


def test_beside_adapters_the_base_is_an_adapter_of_zeros(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    engine = connect([server], {"opener_0": "opener", "partner_0": "frozen"}, {"opener": LORA})
    engine.load("opener", ADAPTER.items(), 1)
    ask(engine, {0: Request("partner_0", Prompt(HELLO), 2)})
    assert server.completions[0]["model"] == f"{server.folder.name}/frozen-zero"
    assert engine.versions == {"opener": 1}


def test_a_whole_model_is_read_by_every_replica_from_a_folder_of_its_own(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    servers = [fake(), fake()]
    engine = connect(servers, {"solver_0": "shared"}, {})
    ask(engine, {0: Request("solver_0", Prompt(HELLO), 2)})
    engine.load("shared", WHOLE.items(), 1)
    engine.load("shared", {**WHOLE, "head": WHOLE["embed"]}.items(), 2)
    for server in servers:
        assert server.weights == ["shared-v1", "shared-v2"]
        assert server.weight_version == f"{server.folder.name}/shared-v2"
    assert [path.name for path in servers[0].folder.iterdir()] == ["shared-v2"]
    ask(engine, {0: Request("solver_0", Prompt(HELLO), 2)})


def test_a_replica_that_lost_a_whole_model_gets_it_again_before_a_rollout_and_ends_it_within(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    engine = connect([server], {"solver_0": "shared"}, {})
    engine.load("shared", WHOLE.items(), 1)
    server.weight_version = "default"  # as of one that was restarted
    ask(engine, {0: Request("solver_0", Prompt(HELLO), 2)})
    assert server.weights == ["shared-v1", "shared-v1"]
    with (
        pytest.raises(StaleWeights, match=r"has the weights 'default', expected 'adapters-.*/shared-v1': it was"),
        engine.rollout("lost"),
    ):
        server.weight_version = "default"


def test_a_server_with_the_weights_of_another_run_is_not_taken_for_one_as_it_was_started(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    connect([server], {"solver_0": "shared"}, {}).load("shared", WHOLE.items(), 1)
    engine = connect([server])
    engine.load("opener", ADAPTER.items(), 1)
    with pytest.raises(StaleWeights, match=r"has the weights 'adapters-.*/shared-v1', expected 'default'"):
        ask(engine, {0: Request("opener_0", Prompt(HELLO), 2)})


# ---- What goes wrong ------------------------------------------------------------------------------------------------


def test_a_connection_that_breaks_is_tried_again_and_no_completion_is_lost(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    engine = connect([server], {"solver_0": "shared"}, {})
    undisturbed = ask(engine, {ticket: Request("solver_0", Prompt(HELLO), 2) for ticket in range(4)})
    server.drops = 5
    assert ask(engine, {ticket: Request("solver_0", Prompt(HELLO), 2) for ticket in range(4)}) == undisturbed


def test_a_server_that_stays_away_is_an_error_of_its_own_and_never_an_empty_completion(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    engine = connect([server], {"solver_0": "shared"}, {}, vllm_server_timeout=0.5)
    server.drops = 10**6
    with pytest.raises(
        ServerUnreachable,
        match=r"/v1/completions did not answer in \d tries and 0.5 s, .* Remote.* vllm_server_timeout",
    ):
        ask(engine, {0: Request("solver_0", Prompt(HELLO), 2)})
    assert engine.num_in_flight == 0


def test_a_replica_that_was_started_anew_gets_its_adapter_again(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    engine = connect([server])
    for policy in ("opener", "closer"):
        engine.load(policy, ADAPTER.items(), 1)
    server.adapters.clear()
    assert len(ask(engine, {ticket: Request("opener_0", Prompt(HELLO), 2) for ticket in range(8)})) == 8
    engine.load("closer", ADAPTER.items(), 2)  # whose old version the server no longer knows


def test_a_load_whose_answer_was_lost_has_happened(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    engine = connect([server])
    server.drops_loads = 1
    engine.load("opener", ADAPTER.items(), 1)
    assert [name.rpartition("/")[2] for name in server.adapters] == ["opener-v1"]


def test_an_answer_of_other_weights_than_asked_for_is_refused(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake()
    engine = connect([server])
    engine.load("opener", ADAPTER.items(), 1)
    server.serves_as = "base"
    with pytest.raises(StaleWeights, match=r"answered with 'base', expected 'adapters-.*/opener-v1'"):
        ask(engine, {0: Request("opener_0", Prompt(HELLO), 2)})


def test_weights_are_given_before_a_rollout_and_not_under_it(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    engine = connect([fake()])
    with (
        pytest.raises(StaleWeights, match=r"policy 'opener', whose weights were never given. Call load first"),
        engine.rollout("early"),
    ):
        engine.submit(0, Request("opener_0", Prompt(HELLO), 1))
    engine.load("opener", ADAPTER.items(), 1)
    with engine.rollout("under way"):
        engine.submit(0, Request("opener_0", Prompt(HELLO), 1))
        with pytest.raises(StaleWeights, match="policy 'closer' while 1 requests are in flight, expected none"):
            engine.load("closer", ADAPTER.items(), 1)


def test_a_version_is_loaded_once_and_may_be_tried_again_where_that_failed(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    server = fake(takes_adapters=False)
    engine = connect([server])
    with pytest.raises(ValueError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
        engine.load("opener", ADAPTER.items(), 3)
    assert engine.versions == {}
    server.takes_adapters = True
    engine.load("opener", ADAPTER.items(), 3)
    for version in (3, 2):
        with pytest.raises(
            ValueError, match=rf"version {version} of policy 'opener' after version 3, expected a higher"
        ):
            engine.load("opener", ADAPTER.items(), version)
    assert [name.rpartition("/")[2] for name in server.adapters] == ["opener-v3"]
    server = fake(reloads=False)
    engine = connect([server], {"solver_0": "shared"}, {})
    with pytest.raises(ValueError, match="VLLM_SERVER_DEV_MODE"):
        engine.load("shared", WHOLE.items(), 1)
    server.reloads = True
    engine.load("shared", WHOLE.items(), 1)
    assert [path.name for path in engine._store.folder.iterdir()] == ["shared-v1"]


def test_servers_that_will_not_do_are_refused_at_the_door(
    fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    with pytest.raises(ValueError, match=r"log-probability -1.250, expected 0: .* --logprobs-mode processed_logprobs"):
        connect([fake(), fake(logprob=-1.25)])
    with pytest.raises(
        ValueError, match=r"'one', 4096\).*'other', 4096\).*expected one model with one --max-model-len"
    ):
        connect([fake(model="one"), fake(model="other")])
    engine = connect([fake(takes_adapters=False)])
    with pytest.raises(ValueError, match=r"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 .*--max-loras 2 and --max-lora-rank 8"):
        engine.load("opener", ADAPTER.items(), 1)
    engine = connect([fake(reloads=False)], {"solver_0": "shared"}, {})
    with pytest.raises(ValueError, match=r"reads .* new weights at any time: start it with VLLM_SERVER_DEV_MODE=1"):
        engine.load("shared", WHOLE.items(), 1)
    engine = connect([fake()], {"solver_0": "shared", "partner_0": "frozen"}, {})
    with pytest.raises(ValueError, match=r"policy 'shared', but the engine's own are those of \('shared', 'frozen'\)"):
        engine.load("shared", WHOLE.items(), 1)


@pytest.mark.parametrize("num_threads", [0, 4])
def test_a_team_plays_whole_episodes_over_two_replicas(
    num_threads: int, fake: Callable[..., FakeVLLM], connect: Callable[..., VllmServer]
) -> None:
    servers = [fake(), fake()]
    engine = connect(servers, {"opener_0": "shared", "closer_0": "shared"}, {})
    with engine.rollout("play"):
        rollout = play(
            [{"seed": seed} for seed in range(6)],
            make_env=Relay,
            engine=engine,
            sampling="tree",
            num_candidates=3,
            seed="play",
            num_threads=num_threads,
        )
    assert [len(episode.decisions) for episode in rollout.episodes] == [4] * 6
    assert [len(server.completions) for server in servers] == [12, 12]


# ---- vLLM itself ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vllm_serve(base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = (
        "--max-model-len 512 --logprobs-mode processed_logprobs --enable-lora --max-loras 3 --max-cpu-loras 6 "
        "--max-lora-rank 8 --no-enable-chunked-prefill"  # see `engine_arguments`
    )
    environment = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}
    with served(base_path, tmp_path_factory.mktemp("serve") / "log", options, **environment) as url:
        yield url


def real_engine(
    url: str,
    tokenizer: PreTrainedTokenizerFast,
    path: Path,
    of_agent: Mapping[str, str],
    adapters: Mapping[str, LoraConfig],
) -> VllmServer:
    args = MultiAgentGRPOConfig(str(path), use_cpu=True, bf16=False, max_completion_length=16)
    tongue = PromptCodec(
        tokenize=lambda prompt: tokenizer.apply_chat_template(
            list(prompt.messages), add_generation_prompt=True, return_dict=False
        ),
        decode=lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
    )
    params = VllmParams.of_config(args, dict.fromkeys(of_agent, tongue))
    return VllmServer([url], of_agent=of_agent, adapters=adapters, params=params, folder=path, patience=240.0)


@pytest.mark.vllm
@pytest.mark.slow
def test_a_real_server_samples_each_adapter_and_the_base_as_hugging_face_scores_them(
    vllm_serve: str, base_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(Qwen3ForCausalLM.from_pretrained(base_path), config, adapter_name="opener")
    model.add_adapter("closer", config)
    engine = real_engine(
        vllm_serve,
        tokenizer,
        tmp_path,
        {**TEAM, "partner_0": "frozen"},
        {name: model.peft_config[name] for name in ("opener", "closer")},
    )
    long = [{"role": "user", "content": "What follows? " * 20}]
    requests = {i: Request(agent, Prompt(long), 4) for i, agent in enumerate([*TEAM, "partner_0"])}
    for number in range(4):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter += 0.05 * torch.randn_like(parameter)
        for name in ("opener", "closer"):
            engine.load(name, get_peft_model_state_dict(model, adapter_name=name).items(), number)
        answers = ask(engine, requests, rollout=str(number))
        assert ask(engine, requests, rollout=str(number)) == answers
        for ticket, name in enumerate(("opener", "closer", None)):
            largest = max(_differences(model, name, answers[ticket]))
            print(f"round {number}, {name}: largest |log-prob(HF) - log-prob(vLLM)| {largest:.1e}")
            assert largest < 2e-5


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("layout", ["lora", "shared"])  # in this order: whole weights stay on the server
def test_a_training_on_a_real_server_is_up_to_date_in_every_step_and_stops_where_the_server_stays_behind(
    layout: str, vllm_serve: str, base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pettingllms_trl import MultiAgentGRPOTrainer  # where vLLM is installed, importing TRL warns of much

    options = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": vllm_serve}
    monkeypatch.setattr("pettingllms_trl.engines.synced_engines.CANARY_STEPS", 1)
    trainer = MultiAgentGRPOTrainer(
        base_path,
        Relay,
        settings(tmp_path, max_steps=3, vllm_max_model_length=256, **options),
        Dataset.from_dict({"seed": range(64)}),
        policies=layout,
        peft_config=LORA if layout == "lora" else None,
    )
    trainer.train()
    policies = ["opener", "closer"] if layout == "lora" else ["base"]
    differences = [log[name] for log in trainer.state.log_history for name in log if name.startswith("canary/")]
    assert len(differences) == 3 * len(policies)
    assert max(differences) < 1e-5
    (served,) = trainer.engines.engine_set._served
    load, kept = served.engine.load, {}

    def late(policy: str, state: Any, version: int) -> None:
        kept.setdefault(policy, {name: tensor.clone() for name, tensor in dict(state).items()})
        load(policy, kept[policy].items(), version)

    served.engine.load = late
    with pytest.raises(StaleWeights, match=f"policy '({'|'.join(policies)})'"):
        trainer.train()


@pytest.mark.vllm
@pytest.mark.slow
def test_a_real_server_samples_a_whole_model_as_hugging_face_scores_it(
    vllm_serve: str, base_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = Qwen3ForCausalLM.from_pretrained(base_path)
    engine = real_engine(vllm_serve, tokenizer, tmp_path, {"solver_0": "shared"}, {})
    long = [{"role": "user", "content": "What follows? " * 20}]
    for number in range(3):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
        engine.load("shared", model.state_dict().items(), number)
        answer = ask(engine, {0: Request("solver_0", Prompt(long), 4)}, rollout=str(number))[0]
        largest = max(_differences(model, "", answer))
        print(f"round {number}: largest |log-prob(HF) - log-prob(vLLM)| {largest:.1e}")
        assert largest < 2e-5
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(1.1)
    assert max(_differences(model, "", answer)) > 1e-2
    engine = real_engine(vllm_serve, tokenizer, tmp_path, {"partner_0": "frozen"}, {})
    with pytest.raises(StaleWeights, match=r"has the weights 'adapters-.*', expected 'default': it was restarted"):
        ask(engine, {0: Request("partner_0", Prompt(long), 4)})


def _differences(model: Any, name: str | None, answer: Sampled) -> Iterator[float]:
    for completion in answer.completions:
        ids = torch.tensor([[*answer.prompt.ids, *completion.ids]])
        if name is None:
            with model.disable_adapter():
                logits = model(ids).logits
        else:
            if name:
                model.set_adapter(name)
            logits = model(ids).logits
        rows = logits[0, len(answer.prompt.ids) - 1 : -1].log_softmax(-1)
        scored = rows[torch.arange(len(completion.ids)), list(completion.ids)]
        yield float((scored.detach() - torch.tensor(completion.logprobs)).abs().max())
