"""The warm-up of a model with vision: demonstrations that show pictures, from an oracle, in a file, and imitated."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import SFTConfig

from pettingllms_envs import plan_path_v0
from pettingllms_envs.observations import Image
from pettingllms_trl import Prompt
from pettingllms_trl.pixels import ImageInputs, PixelCache
from pettingllms_trl.policies.routing import route
from pettingllms_trl.sft.demonstrations import Demonstration, by_oracle, read, write
from pettingllms_trl.sft.warm_up import warm_up
from picture_books import as_image, drawn
from tiny_vlms import gemma, gemma_processor


BOARDS = partial(plan_path_v0.env, workflow="single", size=4, view="image")
MOVES = ("Moves: U", "Moves: D")


def demonstration(number: int, **change: Any) -> Demonstration:
    """What is said follows from the picture alone."""
    image = as_image(drawn(100 * number), "a board")
    prompt = Prompt([{"role": "user", "content": ["Look:", image, "Moves?"]}], images=(image,))
    return replace(Demonstration(role="planner", prompt=prompt, reply=MOVES[number], success=True), **change)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A tiny Gemma 3 with its processor, in a folder."""
    processor = gemma_processor()
    gemma(processor, initializer_range=0.2).save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def arguments(path: Path, **more: Any) -> SFTConfig:
    options: dict[str, Any] = {"max_steps": 30, "learning_rate": 5e-3, "per_device_train_batch_size": 2}
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "bf16": False}
    return SFTConfig(output_dir=str(path), max_length=None, **{**options, **quiet, **more})


def test_demonstrations_of_an_oracle_show_what_the_agent_saw_and_survive_a_file(tmp_path: Path) -> None:
    found = list(by_oracle(BOARDS(), range(2)))
    env = BOARDS()
    env.reset(seed=0, options={"split": "train"})
    picture, _ = env.observe("planner_0")["parts"]
    assert isinstance(picture, Image)
    assert found[0].prompt.images == (picture,)
    assert picture in found[0].prompt.messages[-1]["content"]
    assert write(tmp_path / "d.jsonl", found) == len(found)
    assert list(read(tmp_path / "d.jsonl")) == found


def test_a_policy_learns_to_say_what_the_picture_shows_and_its_processor_is_saved_with_it(
    model: str, tmp_path: Path
) -> None:
    warm_up(model, map(demonstration, (0, 1)), route("shared", ["planner_0"]), arguments(tmp_path / "out"))
    trained = AutoModelForImageTextToText.from_pretrained(tmp_path / "out")
    processor = AutoProcessor.from_pretrained(tmp_path / "out")
    inputs = ImageInputs(processor, PixelCache())

    def log_probability(number: int, reply: str) -> float:
        images = demonstration(number).prompt.images
        content = [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": "Moves?"}]
        with inputs.writing(images):
            prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
            ids = processor(text=prompt, images=[[drawn(0)]], add_special_tokens=False)["input_ids"][0]
        own = processor.tokenizer(reply, add_special_tokens=False)["input_ids"]
        whole = torch.tensor([[*ids, *own]])
        given = inputs.of_batch(whole, [images], len(own))
        del given["num_images"]
        with torch.no_grad():
            scores = trained(whole, **given).logits.log_softmax(-1)
        return float(sum(scores[0, i - 1, whole[0, i]] for i in range(len(ids), whole.shape[1])))

    for number in (0, 1):
        assert log_probability(number, MOVES[number]) > log_probability(number, MOVES[1 - number]) + 1.0


def test_pictures_for_a_model_that_reads_texts_only_and_beside_tools_are_refused(
    model_path: str, tmp_path: Path
) -> None:
    one, routing = demonstration(0), route("shared", ["planner_0"])
    with pytest.raises(ValueError, match=r"a demonstration shows Image\(.*\), and its policy reads texts only"):
        warm_up(model_path, [one], routing, arguments(tmp_path))
    add = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
    both = replace(one, prompt=replace(one.prompt, tools=(add,)))
    processor = gemma_processor()
    processor.chat_template = "{{ tools }}{% for m in messages %}{{ m }}{% endfor %}"
    with pytest.raises(ValueError, match=r"show images .* and tools; expected one of them"):
        warm_up(model_path, [both], routing, arguments(tmp_path), processing_class=processor)
