"""Models of this process as agents of a benchmark that shows pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoProcessor

from pettingllms_envs.agents import AgentFailed, AgentRefused, AgentSpec, Request
from pettingllms_envs.evaluation.teams import spec_of
from pettingllms_envs.observations import Message
from pettingllms_envs.prompts import images_of
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.cli import transformers_agents
from pettingllms_trl.cli.transformers_agents import open_transformers
from pettingllms_trl.engines.prefix_cache import PrefixCache
from pettingllms_trl.testing import MAX_POSITIONS
from picture_books import PictureBook, as_image, drawn, played
from short_runs import adapter, settings
from tiny_vlms import FAMILIES


GREEDY = {"temperature": 0.0, "max_tokens": 6}


@contextmanager
def opened(spec: AgentSpec, concurrency: int = 4) -> Iterator[Any]:
    models = open_transformers({"solver_0": spec}, concurrency)
    try:
        yield models.agents["solver_0"]
    finally:
        models.close()


def asked(*content: Any) -> Request:
    fields: dict[str, Any] = {"env": None, "agent": "solver_0", "seed": 0, "instance": 0, "sample": 0, "step": 0}
    messages: list[Message] = [{"role": "user", "content": content[0] if len(content) == 1 else list(content)}]
    return Request(messages=messages, **fields)


def saved(path: Path, family: str, *, is_blind: bool = False) -> Path:
    """A model that looks at its pictures and its processor, or a model of which the vision part says nothing."""
    make_processor, make_model = FAMILIES[family]
    processor = make_processor()
    model = make_model(processor, initializer_range=0.1)
    if is_blind:
        last = model.model.visual.merger.mlp[-1] if family == "qwen" else model.model.multi_modal_projector
        for parameter in last.parameters():
            torch.nn.init.zeros_(parameter)
    model.save_pretrained(path)
    processor.save_pretrained(path)
    return path


@pytest.fixture
def without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor of Qwen2.5-VL is loaded without its part for videos."""
    load = AutoProcessor.from_pretrained

    def from_pretrained(path: Any, **options: Any) -> Any:
        is_still = "StillProcessor" in (Path(path) / "processor_config.json").read_text()
        return FAMILIES["qwen"][0]() if is_still else load(path, **options)

    monkeypatch.setattr(AutoProcessor, "from_pretrained", from_pretrained)


@pytest.mark.usefixtures("without_torchvision")
@pytest.mark.parametrize(("family", "policies"), [("qwen", "shared"), ("gemma", "lora")])
def test_a_saved_team_replies_in_bench_as_the_trainer_samples(family: str, policies: str, tmp_path: Path) -> None:
    base = saved(tmp_path / "base", family)
    model = FAMILIES[family][1](FAMILIES[family][0]()).from_pretrained(base, dtype="float32")
    trainer = MultiAgentGRPOTrainer(
        model,
        PictureBook,
        settings(
            tmp_path / "team",
            max_completion_length=6,
            generation_kwargs={"do_sample": False},
            shared_prefix=False,
        ),
        Dataset.from_dict({"seed": range(8)}),
        processing_class=FAMILIES[family][0](),
        policies=policies,
        peft_config=adapter(init_lora_weights=False) if policies == "lora" else None,
    )
    trainer.save_model()
    expected = [
        each.decisions[0].candidates[0].completion.text
        for each in trainer.play([{"seed": seed} for seed in range(12)])
    ]
    team = AgentSpec("team", str(tmp_path / "team"), {"temperature": 0.0})
    with opened(spec_of(team, "solver_0", "solver", {})) as agent:
        assert played(agent, range(12)) == expected  # three sizes, two pictures, none, and text before one
    assert len(set(expected)) > 3


@pytest.mark.usefixtures("without_torchvision")
@pytest.mark.parametrize("family", FAMILIES)
def test_another_picture_is_answered_otherwise_but_by_a_model_that_does_not_look(family: str, tmp_path: Path) -> None:
    pictures = [as_image(drawn(number)) for number in (3, 30, 90)]
    found: Mapping[bool, set[str]] = {False: set(), True: set()}
    for is_blind, replies in found.items():
        path = saved(tmp_path / str(is_blind), family, is_blind=is_blind)
        with opened(AgentSpec("transformers", str(path), GREEDY)) as agent:
            replies |= {agent.reply(asked(picture, "Moves?")).text for picture in pictures}
    assert len(found[False]) == 3
    assert len(found[True]) == 1


def test_what_was_read_of_one_picture_is_not_used_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal ids and other pictures, of a model whose prompts of texts are kept: all of its layers see all tokens."""
    caches: list[PrefixCache] = []

    def cache(max_bytes: int) -> PrefixCache:
        caches.append(PrefixCache(max_bytes))
        return caches[-1]

    monkeypatch.setattr(transformers_agents, "PrefixCache", cache)
    saved(tmp_path, "gemma")
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"sliding_attention"', '"full_attention"'))
    pictures = [as_image(drawn(number)) for number in (3, 90)]
    shown = [asked(picture, "Moves?") for picture in (*pictures, *pictures)]
    alone = []
    for request in shown:
        with opened(AgentSpec("transformers", str(tmp_path), {**GREEDY, "shared_prefix": "false"})) as agent:
            alone.append(agent.reply(request))
    with opened(AgentSpec("transformers", str(tmp_path), GREEDY)) as agent:
        kept = caches[-1]
        assert [agent.reply(request) for request in shown] == alone
        assert not kept.num_bytes
        text = agent.reply(asked("A" * 80))
        assert kept.num_bytes
        assert agent.reply(asked("A" * 80)) == text
        assert [agent.reply(request) for request in shown] == alone
    assert alone[0].prompt_tokens == alone[1].prompt_tokens
    assert alone[0].text == alone[2].text != alone[1].text == alone[3].text


def test_pictures_for_a_model_that_reads_texts_are_refused_with_what_helps(model_path: str) -> None:
    request = asked(as_image(drawn(3)), "Moves?")
    assert images_of(request.messages)
    message = (
        rf"{model_path} cannot play solver_0: a prompt shows Image\(.*\), and its policy reads texts only .* "
        "Expected a model with vision and its processor"
    )
    with opened(AgentSpec("transformers", model_path, GREEDY)) as agent, pytest.raises(AgentRefused, match=message):
        agent.reply(request)


def test_pictures_without_room_for_a_reply_are_counted(tmp_path: Path) -> None:
    path = saved(tmp_path, "gemma")
    picture = as_image(drawn(3))
    with (
        opened(AgentSpec("transformers", str(path), GREEDY)) as agent,
        pytest.raises(AgentFailed, match=r"tokens, \[4, 4\] of its 2 images; expected fewer than"),
    ):
        agent.reply(asked(picture, "A" * MAX_POSITIONS, picture))
