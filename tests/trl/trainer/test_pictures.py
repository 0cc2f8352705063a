"""Pictures in a training: they belong to their rows, are made once, and a batch of them is as its rows one by one."""

from __future__ import annotations

import gc
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig

from pettingllms_envs.observations import Image
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.update.micro_batches import select_rows
from picture_books import PictureBook, as_image, drawn
from short_runs import KeepsBatches, KeepsRollouts, settings
from tiny_vlms import FAMILIES, QWEN_TEMPLATE, gemma, gemma_processor, qwen, qwen_processor


SEEDS = 8
WIDE = {"initializer_range": 0.1}  # at the usual 0.02 what is shown hardly moves a log-probability


class Book(KeepsRollouts, KeepsBatches, MultiAgentGRPOTrainer):
    """Keeps what was played, and the batch of each forward pass."""


def trainer_of(path: Path, family: str = "qwen", *, env: Any = PictureBook, **options: Any) -> Book:
    make_processor, make_model = FAMILIES[family]
    processor = make_processor()
    more = {name: options.pop(name) for name in ("policies", "peft_config") if name in options}
    return Book(
        make_model(processor, **WIDE),
        env,
        settings(path, **{"shared_prefix": False, **options}),
        Dataset.from_dict({"seed": range(SEEDS)}),
        processing_class=processor,
        **{"policies": "shared", **more},
    )


def weights_of(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def log_probs(trainer: Book, batch: dict[str, Any], pictures: Any = None) -> torch.Tensor:
    """Of the completions' tokens of a batch, 0 where masked."""
    trainer.scorer.pictures = batch.get("pictures") if pictures is None else pictures
    trainer.model.eval()
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    scores, _, _ = trainer.scorer.score(trainer.model, ids, mask, batch["completion_ids"].size(1))
    trainer.scorer.pictures = None
    return scores * batch["completion_mask"]


class OnlyPictures(PictureBook):
    """Its instances differ in their picture alone: texts and sizes are equal, and so are token ids."""

    def show(self, seed: int) -> Any:
        return {"parts": [as_image(drawn(seed)), "Moves?"]}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shared_prefix", [False, True])
@pytest.mark.filterwarnings("ignore:shared_prefix=True, but solver_0")
def test_instances_that_differ_in_their_picture_alone_are_played_and_trained_apart(
    family: str, shared_prefix: bool, tmp_path: Path
) -> None:
    trainer = trainer_of(tmp_path, family, env=OnlyPictures, shared_prefix=shared_prefix, max_tokens_per_microbatch=400)
    before = weights_of(trainer)
    trainer.train()
    (episodes,) = trainer.rollouts
    prompts = [decision.prompt for episode in episodes for decision in episode.decisions]
    assert len({prompt.ids for prompt in prompts}) == 1 < len(prompts) == len({prompt.key for prompt in prompts})
    rows = 0
    for batch in trainer.batches:
        whole = log_probs(trainer, batch).detach()
        for row, pictures in enumerate(batch["pictures"]):
            instance = int(batch["instance"][row])
            assert [each.digest for each in pictures] == [as_image(drawn(prompt_seed(trainer, instance))).digest]
            alone = log_probs(trainer, select_rows(batch, torch.tensor([row]), trim=True)).detach()
            assert torch.allclose(alone, whole[row : row + 1, : alone.size(1)], atol=1e-5)
            rows += 1
    assert rows == 8
    assert any(not torch.equal(value, before[name]) for name, value in weights_of(trainer).items())


def prompt_seed(trainer: Book, instance: int) -> int:
    return int(trainer.rollout_rows[0][instance]["seed"])
