"""`image_gain` finds something in a policy that looks at its pictures, and nothing in one that does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from decisions import decision
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.image_gain import image_gains, with_other_images
from pettingllms_trl.trainer.dataloading import GenerationPlan
from picture_books import PictureBook, as_image, drawn
from short_runs import settings
from tiny_vlms import FAMILIES


SOLVER = "agent/solver_0/image_gain"


class OneSize(PictureBook):
    """Shows a picture of one size in each instance; texts are equal."""

    def show(self, seed: int) -> Any:
        return {"parts": [as_image(drawn(3 * seed)), "Moves?"]}


def trained(family: str, path: Path, *, is_blind: bool = False, **options: Any) -> list[dict[str, float]]:
    """The log of a training of two steps; of a blind policy what its vision part says is always nothing."""
    make_processor, make_model = FAMILIES[family]
    processor = make_processor()
    model = make_model(processor, initializer_range=0.1)
    if is_blind:
        last = model.model.visual.merger.mlp[-1] if family == "qwen" else model.model.multi_modal_projector
        for parameter in last.parameters():
            torch.nn.init.zeros_(parameter.requires_grad_(False))
    trainer = MultiAgentGRPOTrainer(
        model,
        OneSize,
        settings(path, image_gain_steps=1, max_steps=1, shared_prefix=False, logging_steps=1, **options),
        Dataset.from_dict({"seed": range(8)}),
        processing_class=processor,
    )
    trainer.train()
    return trainer.state.log_history


@pytest.mark.parametrize(
    "family", [pytest.param(family, marks=() if family == "qwen" else pytest.mark.slow) for family in FAMILIES]
)
def test_a_policy_that_looks_gains_and_a_blind_one_gains_nothing(family: str, tmp_path: Path) -> None:
    assert trained(family, tmp_path / "seeing")[0][SOLVER] > 0.3
    assert trained(family, tmp_path / "blind", is_blind=True)[0][SOLVER] == pytest.approx(0.0, abs=1e-5)


def test_the_gain_is_the_mean_over_replies_of_what_the_own_picture_adds() -> None:
    images = [as_image(drawn(number)) for number in range(3)]
    shown = [0, 0, 1, 2]  # the third has another size
    decisions = [
        replace(each, prompt=replace(each.prompt, ids=(number,), images=(images[number],)))
        for number, each in zip(shown, [decision("solver_0", [0.0, 0.0]) for _ in shown], strict=True)
    ]
    swapped = with_other_images(
        [*decisions, decision("solver_0", [0.0])], lambda d: [5 if d.prompt.ids == (2,) else 4]
    )
    # The first two have the picture 1, the third has 0, and nobody else has a picture of five tokens.
    assert [[image.digest for image in others] for _, others in swapped] == [
        [images[number].digest] for number in (1, 1, 0)
    ]

    def score(agent: str, rows: Any, pictures: Any) -> list[float]:
        own = {0: images[0].digest, 1: images[1].digest}
        given = zip(rows, pictures, strict=True)
        return [-1.0 if own[ids[0]] == picture.digest else -3.0 - ids[0] for (ids, _), (picture,) in given]

    # Two nats in each of four replies, and three in each of two.
    assert image_gains(swapped, score) == {"solver_0": pytest.approx((4 * 2 + 2 * 3) / 6)}
    assert image_gains([], score) == {}


@pytest.mark.parametrize(
    ("every", "steps_per_generation", "due"),
    [(1, 1, [0, 1, 2, 3, 4, 5]), (3, 1, [0, 3]), (3, 2, [0, 4]), (2, 2, [0, 2, 4]), (1, 2, [0, 2, 4])],
)
def test_it_is_logged_of_the_first_generation_in_so_many_steps(
    every: int, steps_per_generation: int, due: list[int], tmp_path: Path
) -> None:
    args = settings(tmp_path, gradient_accumulation_steps=1, steps_per_generation=steps_per_generation)
    plan = GenerationPlan(args, num_processes=1)
    begins = [step for step in range(6) if plan.begins(step)]
    assert [step for step in begins if plan.is_due(step, every)] == due
