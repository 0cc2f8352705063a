"""Which policies are shown pictures: one model for all, adapters, models of their own; beside blind ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import PreTrainedTokenizerFast

from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from pettingllms_trl.trainer import parts
from picture_books import Describer, PictureBook, as_image, drawn, parts_of
from short_runs import settings
from tiny_vlms import gemma, gemma_processor, qwen, qwen_processor


WIDE = {"initializer_range": 0.1}
LORA = {"r": 4, "task_type": "CAUSAL_LM"}


def trained(path: Path, model: Any, *, env: Any = Describer, **more: Any) -> tuple[Any, dict[str, bool]]:
    """A trainer after a step, and whether each parameter has moved."""
    options = {"shared_prefix": False, **more.pop("options", {})}
    trainer = MultiAgentGRPOTrainer(
        model, env, settings(path, **options), Dataset.from_dict({"seed": range(8)}), **more
    )
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    return trainer, {name: not torch.equal(before[name], p) for name, p in trainer.model.named_parameters()}


def test_one_model_plays_an_agent_that_sees_and_one_that_reads(tmp_path: Path) -> None:
    processor = qwen_processor()
    _, moved = trained(tmp_path, qwen(processor, **WIDE), policies="shared", processing_class=processor)
    assert all(moved.values())


@pytest.mark.parametrize(
    ("modules", "parts"),
    [
        pytest.param(["q_proj", "v_proj"], {"language_model"}, id="language", marks=pytest.mark.slow),
        pytest.param(["qkv"], {"visual"}, id="vision", marks=pytest.mark.slow),
        pytest.param("all-linear", {"language_model", "visual"}, id="both"),
    ],
)
def test_adapters_stand_on_the_parts_that_are_named(modules: Any, parts: set[str], tmp_path: Path) -> None:
    processor = qwen_processor()
    trainer, moved = trained(
        tmp_path,
        qwen(processor, **WIDE),
        policies="lora",
        processing_class=processor,
        peft_config=LoraConfig(target_modules=modules, **LORA),
    )
    found = {
        (agent, part)
        for name, has_moved in moved.items()
        for agent in ("seer", "teller")
        for part in ("language_model", "visual")
        if has_moved and f".{agent}." in name and f".{part}." in name
    }
    assert {part for agent, part in found if agent == "seer"} == parts
    # The other agent's prompts have no picture, so its adapter of the vision part is never used.
    assert {part for agent, part in found if agent == "teller"} == parts - {"visual"}
    assert not any(has_moved for name, has_moved in moved.items() if "lora" not in name)
    assert trainer.image_inputs["seer"] is trainer.image_inputs["teller"]


def test_models_of_their_own_may_see_or_read_texts(
    tmp_path: Path, model_path: str, tokenizer: PreTrainedTokenizerFast, capsys: pytest.CaptureFixture[str]
) -> None:
    processor = qwen_processor()
    model = qwen(processor, **WIDE)
    policies = {
        "seer": Policy(model=model, tokenizer=processor),
        "teller": Policy(model=model_path, tokenizer=tokenizer),
    }
    trainer, moved = trained(tmp_path, None, policies=policies)
    assert all(moved.values())
    assert list(trainer.image_inputs) == ["seer"]
    never = {name: each.generation_config.suppress_tokens for name, each in trainer.team.profiles.items()}
    assert never == {"seer": [processor.image_token_id], "teller": []}
    of_vision = sum(parameter.numel() for parameter in model.model.visual.parameters())
    others = sum(parameter.numel() for parameter in model.parameters()) - of_vision
    line = f"Policy 'seer' trains {of_vision:,} parameters of vision and {others:,} others."
    assert line in capsys.readouterr().out


def test_two_families_see_beside_each_other(tmp_path: Path) -> None:
    class Both(Describer):
        def observe(self, agent: str) -> Any:
            return self.shown

    one, other = qwen_processor(), gemma_processor()
    policies = {
        "seer": Policy(model=qwen(one, **WIDE), tokenizer=one),
        "teller": Policy(model=gemma(other, **WIDE), tokenizer=other),
    }
    trainer, moved = trained(tmp_path, None, env=Both, policies=policies)
    assert {name.split(".")[1] for name, has_moved in moved.items() if has_moved} == {"seer", "teller"}
    assert len({id(each._cache) for each in trainer.image_inputs.values()}) == 1


@pytest.mark.parametrize(
    ("modules", "line"),
    [
        (["q_proj"], "Policy 'seer' trains 0 parameters of vision and 1,024 others."),
        (["qkv"], "Policy 'seer' trains 2,048 parameters of vision and 0 others."),
    ],
)
def test_a_line_says_how_many_parameters_of_which_part_are_trained(
    modules: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    processor = qwen_processor()
    MultiAgentGRPOTrainer(
        qwen(processor),
        Describer,
        settings(tmp_path, shared_prefix=False),
        Dataset.from_dict({"seed": range(8)}),
        policies="lora",
        processing_class=processor,
        peft_config=LoraConfig(target_modules=modules, **LORA),
    )
    assert line in capsys.readouterr().out


# ---- Errors when the trainer is created, and at the first prompt ----------------------------------------------------


def test_an_agent_that_observes_images_with_a_policy_that_reads_texts_is_an_error(
    tmp_path: Path, model_path: str, tokenizer: PreTrainedTokenizerFast
) -> None:
    message = "agent 'seer_0' of policy 'base' observes images, and its policy reads texts only.*processing_class"
    with pytest.raises(ValueError, match=message):
        MultiAgentGRPOTrainer(model_path, Describer, settings(tmp_path), processing_class=tokenizer)


def test_images_that_come_later_are_an_error_at_the_first_prompt_with_one(
    tmp_path: Path, model_path: str, tokenizer: PreTrainedTokenizerFast
) -> None:
    class Later(Describer):
        def observe(self, agent: str) -> Any:
            return self.shown if self.said else "Say something."

    trainer = MultiAgentGRPOTrainer(model_path, Later, settings(tmp_path), processing_class=tokenizer)
    with pytest.raises(ValueError, match=r"a prompt shows Image.* reads texts only"):
        trainer.play([{"seed": 0}])


def test_an_image_that_cannot_be_shown_is_an_error_when_the_trainer_is_created(tmp_path: Path) -> None:
    class Broken(PictureBook):
        def show(self, seed: int) -> Any:
            whole = as_image(drawn(seed))
            return {"parts": [type(whole)(whole.png[:60], "a board")]}

    processor = qwen_processor()
    with pytest.raises(ValueError, match="cannot be decoded"):
        MultiAgentGRPOTrainer(qwen(processor), Broken, settings(tmp_path), processing_class=processor)


@pytest.mark.filterwarnings("ignore:an instance was dropped")
def test_one_that_comes_later_is_the_environments_failure(tmp_path: Path) -> None:
    class SometimesBroken(PictureBook):
        def show(self, seed: int) -> Any:
            whole = as_image(drawn(seed))
            return {"parts": [type(whole)(whole.png[: 60 if seed == 5 else None], "a board"), "Moves?"]}

    processor = qwen_processor()
    trainer = MultiAgentGRPOTrainer(
        qwen(processor),
        SometimesBroken,
        settings(tmp_path, shared_prefix=False),
        processing_class=processor,
    )
    rollout = trainer.collector.play([{"seed": seed} for seed in range(8)], num_episodes=1, name="play")
    assert [episode.instance for episode in rollout.episodes] == [0, 1, 2, 3, 4, 6, 7]


def test_more_pictures_than_the_context_has_room_for_are_an_error_with_their_tokens(tmp_path: Path) -> None:
    class Many(PictureBook):
        def show(self, seed: int) -> Any:
            return {"parts": [as_image(drawn(seed, size)) for size in ((56, 56), (112, 112))] * 4}

    processor = qwen_processor()
    model = qwen(processor)
    model.config.get_text_config().max_position_embeddings = 64
    trainer = MultiAgentGRPOTrainer(model, Many, settings(tmp_path, shared_prefix=False), processing_class=processor)
    message = r"has \d+ tokens \(\[4, 16, 4, 16, 4, 16, 4, 16\] of its 8 images\), but the context holds 64"
    with pytest.raises(ValueError, match=message):
        trainer.play([{"seed": 0}])


def test_places_and_pictures_that_differ_in_number_are_an_error_before_the_forward_pass(tmp_path: Path) -> None:
    processor = qwen_processor()
    trainer = MultiAgentGRPOTrainer(
        qwen(processor), PictureBook, settings(tmp_path, shared_prefix=False), processing_class=processor
    )
    image = as_image(drawn(0, (112, 84)))
    place = processor.image_token_id
    with pytest.raises(ValueError, match=r"has 3 places for tokens of pictures, .* \[12\], which makes 12"):
        trainer.image_inputs["base"].of_rows([[7, place, place, place]], [[image]])


def test_a_template_that_leaves_pictures_out_is_an_error_at_the_first_prompt(tmp_path: Path) -> None:
    processor = qwen_processor()
    processor.chat_template = processor.chat_template.replace("<|vision_start|><|image_pad|><|vision_end|>", "")
    trainer = MultiAgentGRPOTrainer(
        qwen(processor), PictureBook, settings(tmp_path, shared_prefix=False), processing_class=processor
    )
    with pytest.raises(ValueError, match=r"Found total 0 .* tokens and 1 images"):
        trainer.play([{"seed": 0}])


def test_a_processor_that_needs_torchvision_is_an_error_that_names_two_ways_out(tmp_path: Path) -> None:
    processor = qwen_processor()
    qwen(processor).save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "processor_config.json"
    video = {
        "processor_class": "Qwen2_5_VLProcessor",
        "video_processor": {"video_processor_type": "Qwen2VLVideoProcessor"},
    }
    file.write_text(json.dumps({**json.loads(file.read_text()), **video}))
    with pytest.raises(ImportError, match=r"pip install torchvision.*such as Gemma 3's"):
        MultiAgentGRPOTrainer(str(tmp_path / "model"), PictureBook, settings(tmp_path))


def test_the_parts_of_an_observation_stay_in_their_order(tmp_path: Path) -> None:
    processor = qwen_processor()
    trainer = MultiAgentGRPOTrainer(
        qwen(processor), PictureBook, settings(tmp_path, shared_prefix=False), processing_class=processor
    )
    (episode,) = trainer.play([{"seed": 1}])
    text = processor.tokenizer.decode(episode.decisions[0].prompt.ids)
    first, then, second, moves = parts_of(1)
    assert (
        text.replace("<|image_pad|>", "")
        .split("user\n")[1]
        .startswith(f"<|vision_start|><|vision_end|>{then}<|vision_start|><|vision_end|>{moves}<|im_end|>")
    )
    assert not isinstance(first, str)
    assert not isinstance(second, str)


def test_images_beside_weights_that_are_spread_over_processes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "is_fsdp", lambda accelerator: True)
    processor = qwen_processor()
    with pytest.raises(ValueError, match=r"'solver_0' observes images with weights, .* Use DDP"):
        MultiAgentGRPOTrainer(
            qwen(processor),
            PictureBook,
            settings(tmp_path),
            Dataset.from_dict({"seed": [0, 1]}),
            processing_class=processor,
        )
