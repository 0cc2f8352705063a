"""Data sets with the columns `image` and `images`, as TRL has them, in a conversation that is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from pettingllms_envs import conversation
from pettingllms_envs.pictures import image_of
from pettingllms_trl import MultiAgentGRPOTrainer
from picture_books import drawn
from short_runs import KeepsRollouts, settings
from tiny_vlms import qwen, qwen_processor


class Trainer(KeepsRollouts, MultiAgentGRPOTrainer):
    """Keeps what was played."""


def rows(number: int = 4) -> Dataset:
    """Rows that differ in their picture alone."""
    return Dataset.from_list([{"prompt": "What is it?", "image": drawn(i), "solution": "x"} for i in range(number)])


def paid(completions: list[str], image: list[Any], **columns: Any) -> list[float]:
    """By the last byte, and the picture's width, which shows that it is given."""
    return [float(sum(map(ord, each)) % 7 + given.width) for each, given in zip(completions, image, strict=True)]


def test_every_role_is_shown_the_rows_picture_and_records_have_its_digest(tmp_path: Path) -> None:
    processor = qwen_processor()
    trainer = Trainer(
        qwen(processor),
        conversation(["solver", "critic"]),
        settings(tmp_path, shared_prefix=False, log_rollouts=True, max_completion_length=4),
        rows(),
        processing_class=processor,
        reward_funcs=paid,
    )
    trainer.train()
    (episodes,), (played,) = trainer.rollouts, trainer.rollout_rows
    place = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    for episode in episodes:
        picture = image_of(played[episode.instance]["image"])
        assert [decision.agent for decision in episode.decisions] == ["solver_0", "critic_0"]
        assert [[each.digest for each in d.prompt.images] for d in episode.decisions] == [[picture.digest]] * 2
        assert all(decision.prompt.ids.count(place) == 4 for decision in episode.decisions)  # 56 x 56 pixels
        assert all(56 <= earned < 63 for earned in episode.returns.values())
    log = (tmp_path / "rollouts" / "episodes.jsonl").read_text()
    options = [json.loads(line)["instance"]["options"] for line in log.splitlines()]
    digests = {image_of(row["image"]).digest for row in played}
    assert {each["image"]["image"] for each in options} == digests
    assert {file.stem for file in (tmp_path / "rollouts" / "media").iterdir()} == digests
    assert " at 0x" not in log


def test_a_model_that_reads_texts_only_is_refused_when_the_trainer_is_created(model_path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"agent 'solver_0' of policy .* observes images, and"):
        Trainer(model_path, conversation(["solver"]), settings(tmp_path), rows(), reward_funcs=paid)
