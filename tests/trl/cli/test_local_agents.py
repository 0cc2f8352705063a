"""Models of this process as agents of a benchmark."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import shutil
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from datasets import Dataset
from peft import get_peft_model
from transformers import Qwen3ForCausalLM

import pettingllms_envs
import short_runs
from pettingllms_envs import cli
from pettingllms_envs.agents import AgentFailed
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.commands.runs import specs as specs_of
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.evaluation import agent_pools
from pettingllms_envs.evaluation import bench as benches
from pettingllms_envs.observations import Limits
from pettingllms_trl import MultiAgentGRPOTrainer, records
from pettingllms_trl.cli.local_agents import EngineThread
from pettingllms_trl.cli.transformers_agents import _Penalty, _Seeded, open_transformers
from pettingllms_trl.records import Prompt, Sampled
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model
from real_vllm import served
from short_runs import adapter


ROOT = Path(__file__).parents[3]


class Request(NamedTuple):
    messages: tuple[Mapping[str, str], ...]
    seed: int
    tools: tuple[Mapping[str, object], ...] = ()
    limits: Limits = Limits()


def asked(text: str, seed: int = 0) -> Request:
    return Request(({"role": "system", "content": "Reply."}, {"role": "user", "content": text}), seed)


@contextmanager
def opened(specs: Mapping[str, AgentSpec], concurrency: int = 4) -> Iterator[Mapping[str, Any]]:
    models = open_transformers(specs, concurrency)
    try:
        yield models.agents
    finally:
        models.close()


@pytest.fixture(scope="module")
def adapter_path(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(1)
    model = get_peft_model(
        Qwen3ForCausalLM.from_pretrained(model_path),
        adapter(init_lora_weights=False),
    )
    model.save_pretrained(path)
    return str(path)


def test_the_kinds_that_the_package_declares_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"][agent_pools.GROUP]
    assert sorted(declared) == ["transformers", "vllm"]
    point = importlib.metadata.EntryPoint("transformers", declared["transformers"], agent_pools.GROUP)
    assert point.load() is open_transformers
    module, _, function = declared["vllm"].partition(":")
    assert f"def {function}(" in (ROOT / f"{module.replace('.', '/')}.py").read_text()


def test_a_reply_follows_from_prompt_and_seed_whatever_it_is_sampled_beside(model_path: str) -> None:
    spec = {"planner_0": AgentSpec("transformers", model_path, {"max_tokens": 12, "temperature": 1.5})}
    questions = [asked("A" * (1 + 7 * i), seed=i) for i in range(8)]
    with opened(spec, 1) as agents:
        alone = [agents["planner_0"].reply(question) for question in questions]
    with opened(spec, 8) as agents, ThreadPoolExecutor(8) as threads:
        together = list(threads.map(agents["planner_0"].reply, questions))
    assert together == alone
    assert len({reply.text for reply in alone}) == len(alone)
    assert {reply.model for reply in alone} == {model_path}


def test_the_draw_has_the_probabilities_of_the_softmax() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).expand(4000, 3)
    drawn = _Seeded(range(4000), "cpu")(torch.zeros(4000, 1), logits).argmax(-1)
    shares = torch.bincount(drawn, minlength=3) / 4000
    assert shares.tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.03)  # four standard errors


def test_the_penalty_is_of_tokens_of_prompt_and_reply_and_not_of_padding() -> None:
    attended = torch.tensor([[0, 1, 1], [1, 1, 1]])
    ids = torch.tensor([[0, 1, 2, 3], [1, 1, 1, 1]])  # the last was sampled, the first 0 is padding
    scores = torch.tensor([[4.0, 4.0, -4.0, 4.0, 4.0], [4.0, 4.0, -4.0, 4.0, 4.0]])
    found = _Penalty(2.0, attended)(ids, scores)
    assert found.tolist() == [[4.0, 2.0, -8.0, 2.0, 4.0], [4.0, 2.0, -4.0, 4.0, 4.0]]


def test_a_models_own_penalty_governs_replies_and_what_vllm_does_not_read_does_not(tmp_path: Path) -> None:
    plain_path = save_tiny_model(tmp_path / "plain", byte_tokenizer(), initializer_range=0.2)  # logits far from 0

    def replies(folder: str, **options: Any) -> list[str]:
        spec = {"planner_0": AgentSpec("transformers", folder, {"max_tokens": 12, **options})}
        with opened(spec, 1) as agents:
            return [agents["planner_0"].reply(asked("AB", seed)).text for seed in range(3)]

    def says(**settings: Any) -> str:
        path = tmp_path / "-".join(settings)
        shutil.copytree(plain_path, path)
        (path / "generation_config.json").write_text(json.dumps({"pad_token_id": 0, **settings}))
        return str(path)

    plain = replies(plain_path)
    assert replies(says(no_repeat_ngram_size=1, suppress_tokens=[*range(5, 200)])) == plain
    penalised = says(repetition_penalty=50.0)
    assert replies(penalised) == replies(plain_path, repetition_penalty=50.0) != plain
    assert replies(penalised, repetition_penalty=1.0) == plain  # as of a team that was trained without
    assert replies(says(min_p=0.9)) == replies(plain_path, min_p=0.9) != plain


def test_without_temperature_the_likeliest_token_is_taken(model_path: str) -> None:
    spec = {"planner_0": AgentSpec("transformers", model_path, {"max_tokens": 5, "temperature": 0.0})}
    with opened(spec) as agents:
        replies = [agents["planner_0"].reply(asked("Hello", seed)).text for seed in (1, 2)]
    assert replies[0] == replies[1]


def test_an_adapter_a_role_and_the_model_itself_are_told_apart(model_path: str, adapter_path: str) -> None:
    greedy = {"max_tokens": 8, "temperature": 0.0}
    specs = {
        "tuned_0": AgentSpec("transformers", model_path, {**greedy, "adapter": adapter_path}),
        "base_0": AgentSpec("transformers", model_path, greedy),
    }
    with opened({"base_0": specs["base_0"]}) as agents:
        expected = agents["base_0"].reply(asked("Hello"))
    with opened(specs) as agents, ThreadPoolExecutor(4) as threads:
        order = ["tuned_0", "base_0", "tuned_0", "base_0"]
        replies = list(threads.map(lambda name: agents[name].reply(asked("Hello")), order))
    assert replies[1] == replies[3] == expected
    assert replies[0] == replies[2]
    assert replies[0].text != expected.text
    assert replies[0].model == f"{model_path} + {adapter_path}"


@pytest.mark.parametrize(("others", "why"), [((None,), "other agents play the base without it"), ((), None)])
def test_an_adapter_that_changes_its_base_plays_it_alone(
    others: tuple[Any, ...], why: str | None, model_path: str, tmp_path: Path
) -> None:
    base = Qwen3ForCausalLM.from_pretrained(model_path)
    get_peft_model(base, short_runs.adapter(init_lora_weights="pissa")).save_pretrained(tmp_path)
    adapters = [str(tmp_path), *others]
    options = [{"max_tokens": 2} if each is None else {"max_tokens": 2, "adapter": each} for each in adapters]
    specs = {f"role{i}_0": AgentSpec("transformers", model_path, own) for i, own in enumerate(options)}
    with nullcontext() if why is None else pytest.raises(ValueError, match=why), opened(specs) as agents:
        assert agents["role0_0"].reply(asked("Hello")).completion_tokens


def test_a_reply_ends_at_its_own_limit_or_before_a_stop_word(model_path: str) -> None:
    options = {"max_tokens": 20, "temperature": 1.0}
    with opened({"a_0": AgentSpec("transformers", model_path, options)}) as agents:
        whole = agents["a_0"].reply(asked("Hello", 3))
    word = whole.text[4:6]
    assert word
    with opened({"a_0": AgentSpec("transformers", model_path, {**options, "stop": [word]})}) as agents:
        stopped = agents["a_0"].reply(asked("Hello", 3))
    assert stopped.text == whole.text[: whole.text.index(word)]
    assert stopped.finish == "stop"
    with opened({"a_0": AgentSpec("transformers", model_path, {**options, "max_tokens": 3})}) as agents:
        short = agents["a_0"].reply(asked("Hello", 3))
    assert (short.completion_tokens, short.finish) == (3, "length")
    assert whole.text.startswith(short.text)


def test_a_prompt_without_room_for_a_reply_is_an_error_row_and_no_failure(model_path: str, tmp_path: Path) -> None:
    with (
        opened({"a_0": AgentSpec("transformers", model_path)}) as agents,
        pytest.raises(AgentFailed, match="has 20"),
    ):
        agents["a_0"].reply(asked("A" * 2000))
    env = pettingllms_envs.make("plan_path", size=30)  # more than the 1,024 letters that the model can read
    env.reset(seed=0)
    with opened(
        dict.fromkeys(env.possible_agents, AgentSpec("transformers", model_path, {"max_tokens": 2}))
    ) as agents:
        row = episode(env, Instance(0, 0), 0, agents, RunLimits())
    assert row["error"]["kind"] == "refused"
    assert row["error"]["message"].startswith("the prompt has ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temprature": 1.0}, r"transformers got the option 'temprature'; .* Did you mean 'temperature'\?"),
        ({"extra": {"n": 2}}, r"extra has n; expected chat_template_kwargs alone"),
    ],
)
def test_options_that_there_are_not_are_refused(model_path: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_transformers({"a_0": AgentSpec("transformers", model_path, options)}, 1)


class Failing:
    """Fails at its first step, and answers at every other."""

    is_remote = False

    def __init__(self, *, is_batched: bool) -> None:
        self.is_batched = is_batched
        self.num_steps = 0
        self.tickets: list[int] = []

    def rollout(self, name: str) -> Any:
        return nullcontext()

    def submit(self, ticket: int, request: Any) -> None:
        if request.agent == "unknown":
            raise KeyError("unknown")
        self.tickets.append(ticket)

    def step(self, timeout: float = 0.0) -> list[tuple[int, Sampled]]:
        self.num_steps += 1
        tickets, self.tickets = self.tickets, []
        if self.num_steps == 1:
            raise RuntimeError("out of memory")
        return [(ticket, Sampled(Prompt([], (1,)), ())) for ticket in tickets]


@pytest.mark.parametrize("is_batched", [True, False])
def test_a_fault_of_an_engine_is_raised_where_the_reply_is_waited_for(is_batched: bool) -> None:
    """A batch fails by itself; an engine with requests in flight is not stepped again."""
    engine = Failing(is_batched=is_batched)
    thread = EngineThread(engine, 2)
    with pytest.raises(KeyError, match="unknown"):
        thread.ask(records.Request("unknown", Prompt([]), 1))
    with pytest.raises(RuntimeError, match="out of memory"):
        thread.ask(records.Request("a_0", Prompt([]), 1))
    if is_batched:
        assert thread.ask(records.Request("a_0", Prompt([]), 1)) == Sampled(Prompt([], (1,)), ())
    else:
        with pytest.raises(RuntimeError, match="out of memory"):
            thread.ask(records.Request("a_0", Prompt([]), 1))
    assert engine.num_steps == (2 if is_batched else 1)
    thread.close()


def test_nobody_waits_for_a_long_reply_when_a_run_is_ended(model_path: str) -> None:
    long = {
        "a_0": AgentSpec("transformers", model_path, {"max_tokens": 900, "temperature": 1.0, "stop": ["no such word"]})
    }
    models = open_transformers(long, 1)
    with ThreadPoolExecutor(1) as threads:
        began = time.monotonic()
        reply = threads.submit(models.agents["a_0"].reply, asked("Hello"))
        time.sleep(0.2)
        models.close()
        seconds = time.monotonic() - began
        assert reply.result(1).completion_tokens < 900
    assert seconds < 60


def bench_of(kind: str, path: str, **options: Any) -> benches.Bench:
    env = pettingllms_envs.make("plan_path", size=3, num_turns=1)
    specs = dict.fromkeys(env.possible_agents, AgentSpec(kind, path, {"max_tokens": 6, **options}))
    settings = {"size": 3, "num_turns": 1}
    return benches.Bench(
        env="plan_path_v0",
        settings=settings,
        agents=specs,
        chosen=benches.choose(env, "plan_path_v0", settings, limit=6),
    )


def test_a_benchmark_is_the_same_however_many_episodes_are_played_at_once(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = importlib.metadata.EntryPoint(
        "transformers", "pettingllms_trl.cli.transformers_agents:open_transformers", agent_pools.GROUP
    )
    monkeypatch.setattr(agent_pools, "_plug_ins", lambda: {"transformers": point})
    bench = bench_of("transformers", model_path)
    one, many = (benches.play(bench, tmp_path / str(num), concurrency=num) for num in (1, 6))
    assert [row["digest"] for row in one.ended.rows] == [row["digest"] for row in many.ended.rows]
    assert one.report["episodes"]["ended"] == 6
    assert one.report["agents"]["planner_0"]["completion_tokens"] > 6
    assert {"torch", "transformers", "peft"} <= set(one.header["versions"])


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_vllm_of_this_process_plays_a_benchmark_with_an_adapter_a_role(
    base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    adapters = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM.from_pretrained(base_path)
        config = adapter(init_lora_weights=False)
        get_peft_model(model, config).save_pretrained(tmp_path / f"adapter{seed}")
        adapters.append(str(tmp_path / f"adapter{seed}"))
    point = importlib.metadata.EntryPoint("vllm", "pettingllms_trl.cli.vllm_agents:open_vllm", agent_pools.GROUP)
    monkeypatch.setattr(agent_pools, "_plug_ins", lambda: {"vllm": point})
    bench = bench_of("vllm", base_path, dtype="float32", max_model_len=1024)
    roles = zip(bench.agents, adapters, strict=True)
    agents = {
        agent: AgentSpec("vllm", base_path, {**bench.agents[agent].options, "adapter": path}) for agent, path in roles
    }
    one = benches.play(replace(bench, agents=agents), tmp_path / "run", concurrency=4)
    assert one.report["episodes"]["ended"] == 6
    drafter, planner = (one.report["agents"][name]["models"] for name in ("drafter_0", "planner_0"))
    assert (drafter, planner) == ([f"{base_path} + {adapters[0]}"], [f"{base_path} + {adapters[1]}"])
    assert one.header["versions"]["vllm"]


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_with_vllm_an_adapter_a_role_and_the_model_itself_are_told_apart(
    base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    open_vllm = pytest.importorskip("pettingllms_trl.cli.vllm_agents", reason="needs the extra `vllm`").open_vllm
    torch.manual_seed(1)
    model = Qwen3ForCausalLM.from_pretrained(base_path)
    config = adapter(init_lora_weights=False)
    get_peft_model(model, config).save_pretrained(tmp_path)
    options = {"max_tokens": 8, "temperature": 0.0, "dtype": "float32", "max_model_len": 512}
    specs = {
        "tuned_0": AgentSpec("vllm", base_path, {**options, "adapter": str(tmp_path)}),
        "base_0": AgentSpec("vllm", base_path, options),
    }
    by_transformers = {
        name: AgentSpec(
            "transformers", base_path, {k: v for k, v in spec.options.items() if k not in ("dtype", "max_model_len")}
        )
        for name, spec in specs.items()
    }
    with opened(by_transformers) as agents:
        expected = {name: agents[name].reply(asked("Hello")) for name in specs}
    gc.collect()  # an engine that is forgotten later would take this one's process groups along
    models = open_vllm(specs, 4)
    with ThreadPoolExecutor(4) as threads:
        order = ["tuned_0", "base_0", "tuned_0", "base_0"]
        replies = list(threads.map(lambda name: models.agents[name].reply(asked("Hello")), order))
    models.close()
    assert replies == [expected[name] for name in order]
    assert expected["tuned_0"].text != expected["base_0"].text


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_a_trained_team_says_the_same_by_vllm_as_by_transformers(
    base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    team = tmp_path / "team"
    trainer = MultiAgentGRPOTrainer(
        base_path,
        lambda: pettingllms_envs.make("plan_path", size=3, num_turns=1),
        short_runs.settings(team, max_completion_length=6),
        Dataset.from_dict({"seed": range(8)}),
        policies="lora",
        peft_config=short_runs.adapter(init_lora_weights=False),
    )
    trainer.train()
    trainer.save_model()
    points = {
        kind: importlib.metadata.EntryPoint(kind, f"pettingllms_trl.cli.{kind}_agents:open_{kind}", agent_pools.GROUP)
        for kind in ("transformers", "vllm")
    }
    monkeypatch.setattr(agent_pools, "_plug_ins", lambda: points)
    bench = bench_of("transformers", base_path)
    said = {}
    for engine, options in (("transformers", ""), ("vllm", ",engine=vllm,dtype=float32,max_model_len=1024")):
        args = cli._parser({}).parse_args(["bench", "plan_path", "--team", f"{team}{options}", "--temperature", "0"])
        of_team = replace(bench, agents=specs_of(args, {agent: agent[:-2] for agent in bench.agents}))
        assert {spec.kind for spec in of_team.agents.values()} == {engine}
        played = benches.play(of_team, tmp_path / engine, concurrency=4)
        assert played.report["episodes"]["ended"] == 6
        said[engine] = [[step["reply"] for step in row["steps"]] for row in files.read(tmp_path / engine)]
    assert said["vllm"] == said["transformers"]
    assert all(any(replies) for replies in said["vllm"])


@pytest.fixture(scope="module")
def vllm_serve(base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = "--served-model-name tiny --max-model-len 1024"
    with served(base_path, tmp_path_factory.mktemp("serve") / "log", options) as url:
        yield f"{url}/v1"


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_serve_plays_a_benchmark_and_repeats_it_under_its_seed(vllm_serve: str, tmp_path: Path) -> None:
    # The client waits for the server to start, as it waits for one that was restarted.
    bench = bench_of("api", "tiny", base_url=vllm_serve, temperature=1.0, patience=1200.0)
    bench = replace(bench, samples=8)
    one = benches.play(bench, tmp_path / "8", concurrency=8)
    two = benches.play(bench, tmp_path / "3", concurrency=3)
    assert one.report["episodes"] == {"planned": 48, "ended": 48, "errors": {}, "missing": 0}
    assert one.report["agents"]["planner_0"]["completion_tokens"] > 48
    assert one.report["agents"]["planner_0"]["models"] == ["tiny"]
    assert [row["digest"] for row in one.ended.rows] == [row["digest"] for row in two.ended.rows]
    assert len({step["reply"] for row in files.read(tmp_path / "8") for step in row["steps"]}) > 80
    long = replace(bench, settings={"size": 30, "num_turns": 1}, samples=1)  # more letters than the model can read
    errors = benches.play(long, tmp_path / "long", concurrency=8).report["episodes"]["errors"]
    assert errors == {"refused": 6}
