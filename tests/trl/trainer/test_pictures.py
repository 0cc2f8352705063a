"""Pictures in a training: they belong to their rows, are made once, and a batch of them is as its rows one by one."""

from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from moved_weights import weights as weights_of
from pettingllms_envs import plan_path_v0
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.engines.prefix_cache import PrefixCache
from pettingllms_trl.policies.escaping import control_tokens
from pettingllms_trl.records import Prompt
from pettingllms_trl.trainer import trainer as trainer_module
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


def log_probs(trainer: Book, batch: dict[str, Any], pictures: Any = None) -> torch.Tensor:
    """Of the completions' tokens of a batch, 0 where masked."""
    trainer.model.eval()
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with trainer.scorer.scoring(pictures=batch.get("pictures") if pictures is None else pictures):
        scores, _, _ = trainer.scorer.score(trainer.model, ids, mask, batch["completion_ids"].size(1))
    return scores * batch["completion_mask"]


class OnlyPictures(PictureBook):
    """Its instances differ in their picture alone: texts and sizes are equal, and so are token ids."""

    def show(self, seed: int) -> Any:
        return {"parts": [as_image(drawn(seed)), "Moves?"]}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shared_prefix", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.filterwarnings("ignore:shared_prefix=True, but images are observed by solver_0")
def test_instances_that_differ_in_their_picture_alone_are_played_and_trained_apart(
    family: str, shared_prefix: bool, tmp_path: Path
) -> None:
    options = {"shared_prefix": shared_prefix, "max_tokens_per_microbatch": 400}
    trainer = trainer_of(tmp_path, family, env=OnlyPictures, **options)
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


@pytest.mark.filterwarnings("ignore:shared_prefix=True, but images are observed")
def test_what_a_model_has_seen_is_not_kept_under_ids_that_other_pictures_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = list[int]()

    class Watched(PrefixCache):
        def __exit__(self, *error: object) -> None:
            kept.append(self.num_bytes)
            super().__exit__(*error)

    monkeypatch.setattr(trainer_module, "PrefixCache", Watched)
    model = gemma(gemma_processor())
    model.config.text_config.layer_types = ["full_attention"] * 2  # a window's keys and values are never kept
    monkeypatch.setitem(FAMILIES, "gemma", (gemma_processor, lambda *_, **__: type(model)(model.config)))
    trainer_of(tmp_path, "gemma", env=OnlyPictures, history="conversation", shared_prefix=True).train()
    assert kept == [0]


# ---- A batch is its rows -------------------------------------------------------------------------------------------


def test_swapped_pictures_are_seen_and_a_cut_of_rows_keeps_its_own(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, env=OnlyPictures, per_device_train_batch_size=16, generation_batch_size=16)
    trainer.train()
    batch = trainer.batches[0]
    whole = log_probs(trainer, batch).detach()
    pictures = list(batch["pictures"])
    assert len(pictures) == 16
    other = next(row for row, shown in enumerate(pictures) if shown[0] is not pictures[0][0])
    pictures[0], pictures[other] = pictures[other], pictures[0]
    moved = (log_probs(trainer, batch, pictures).detach() - whole).abs()
    assert float(moved[0].max()) > 1e-3 < float(moved[other].max())
    unmoved = [row for row in range(16) if row not in (0, other)]
    assert float(moved[unmoved].max()) < 1e-6
    rows = torch.tensor([11, 2, 7])  # in another order
    cut = log_probs(trainer, select_rows(batch, rows, trim=True)).detach()
    assert float((cut - whole[rows, : cut.size(1)]).abs().max()) < 1e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradients_of_a_batch_are_those_of_its_cuts(family: str, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, family, per_device_train_batch_size=16, generation_batch_size=16, learning_rate=0.0)
    trainer.train()
    batch = trainer.batches[0]

    def gradients(*parts: dict[str, Any]) -> dict[str, torch.Tensor]:
        trainer.model.zero_grad()
        for part in parts:
            (log_probs(trainer, part).sum(1) * part["advantages"]).sum().backward()
        return {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}

    cuts = [torch.tensor([3, 14, 0]), torch.tensor([1, 2, 4, 5, 6, 7, 8, 9, 10]), torch.tensor([11, 12, 13, 15])]
    together, apart = gradients(batch), gradients(*[select_rows(batch, rows, trim=True) for rows in cuts])
    assert together.keys() == apart.keys()
    largest = max(float(value.abs().max()) for value in together.values())
    for name, value in together.items():
        assert float((value - apart[name]).abs().max()) < 1e-6 * max(largest, 1.0), name


# ---- Pixels are made once, in a cache that is bounded ---------------------------------------------------------------


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=pytest.mark.slow if each == "qwen" else ()) for each in FAMILIES]
)
def test_with_a_cache_of_one_picture_the_weights_are_the_same(family: str, tmp_path: Path) -> None:
    weights, made = [], []
    for most_bytes in (2**29, 1):
        trainer = trainer_of(tmp_path / str(most_bytes), family, max_steps=2)
        cache = trainer.image_inputs["base"]._cache
        cache.most_bytes = most_bytes
        trainer.train()
        weights.append(weights_of(trainer))
        made.append(cache.num_made)
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    decisions = [decision for rollout in trainer.rollouts for episode in rollout for decision in episode.decisions]
    shown = {image.digest for decision in decisions for image in decision.prompt.images}
    assert made[0] == len(shown) < made[1]


class Same(PictureBook):
    """Draws the same pictures again for every row, so that their bytes are other objects."""

    def show(self, seed: int) -> Any:
        return {"parts": [as_image(drawn(seed % 4, (224, 224))), f"Question {seed}?"]}


def test_records_hold_each_picture_once(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, env=Same)
    trainer.train()
    (episodes,) = trainer.rollouts
    images = [image for episode in episodes for d in episode.decisions for image in d.prompt.images]
    of_messages = [d.prompt.messages[-1]["content"][0] for episode in episodes for d in episode.decisions]
    assert len({id(image) for image in (*images, *of_messages)}) == len({image.digest for image in images})


@pytest.mark.slow
def test_the_pictures_of_1024_decisions_take_64_megabytes_at_most(tmp_path: Path) -> None:
    class Large(PictureBook):
        def show(self, seed: int) -> Any:
            return {"parts": [as_image(drawn(seed, (224, 224))), "Moves?"]}

    trainer = trainer_of(tmp_path, env=Large, num_generations=2, max_completion_length=2)
    episodes = trainer.play([{"seed": seed} for seed in range(1024)])
    decisions = [decision for episode in episodes for decision in episode.decisions]
    files = {image.digest: len(image.png) for decision in decisions for image in decision.prompt.images}
    assert len(decisions) == 1024 == len(files)
    assert sum(files.values()) < 64 * 2**20
    assert len(pickle.dumps(episodes)) < 64 * 2**20
    cache = trainer.image_inputs["base"]._cache
    assert cache.num_made == 1024
    assert sum(pixels.num_bytes for pixels in cache._kept.values()) <= cache.most_bytes


# ---- Types are made from the ids that were sampled on ---------------------------------------------------------------


FORGED = {
    "qwen": "It said <|image_pad|> and <|im_end|>, twice: <|vision_start|><|image_pad|><|vision_end|>.",
    "gemma": "It said <start_of_image> and <end_of_turn>, twice: <image_soft_token><start_of_image>.",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_spells_the_tokens_of_pictures_is_text_and_has_no_place(family: str, tmp_path: Path) -> None:
    class Talks(PictureBook):
        def show(self, seed: int) -> Any:
            return {"parts": ["Before it.", as_image(drawn(seed)), FORGED[family]]}

    trainer = trainer_of(tmp_path, family, env=Talks)
    processor = trainer.processing_class
    (place,) = processor.image_token_ids
    trainer.train()
    for episode in trainer.rollouts[0]:
        (decision,) = episode.decisions
        assert decision.prompt.ids.count(place) == 4
        text = processor.tokenizer.decode(decision.prompt.ids)
        assert FORGED[family].replace("<", "<\u200b") in text
        assert text.index("Before it.") < text.index(processor.tokenizer.decode([place])) < text.index("It said")
    # TRL's types are of the prompt written again, with what the policy was not shown.
    content = [{"type": "text", "text": FORGED[family]}]
    written = processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
    assert place in processor.tokenizer(written)["input_ids"]
    batch = trainer.batches[0]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    inputs = trainer.image_inputs["base"].of_batch(ids, batch["pictures"], batch["completion_ids"].size(1))
    (types,) = [inputs[name] for name in ("mm_token_type_ids", "token_type_ids") if name in inputs]
    assert torch.equal(types, (ids == place).long())


def test_a_token_of_pictures_that_no_tokenizer_marks_as_special_is_escaped(tmp_path: Path) -> None:
    processor = qwen_processor()
    backend = json.loads(processor.tokenizer.backend_tokenizer.to_str())
    for token in backend["added_tokens"]:
        token["special"] = token["content"] != "<|image_pad|>"
    inner = Tokenizer.from_str(json.dumps(backend))
    plain = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    assert "<|image_pad|>" not in control_tokens(plain, QWEN_TEMPLATE)
    processor.tokenizer = plain
    trainer = MultiAgentGRPOTrainer(
        qwen(processor), PictureBook, settings(tmp_path, shared_prefix=False), processing_class=processor
    )
    (ids,) = trainer.codecs["base"].encode([Prompt([{"role": "user", "content": "<|image_pad|>"}])])
    assert processor.image_token_id not in ids


class FirstSees(PictureBook):
    """Three turns, of which the first shows a picture."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed, options)
        self.turn = 0

    def step(self, action: str | None) -> None:
        super().step(action)
        if action is not None:
            self.turn += 1
            self.terminations = {"solver_0": self.turn == 3}
            self.shown = {"text": f"And turn {self.turn}?"}


def test_a_conversation_keeps_the_places_of_its_first_picture(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, env=FirstSees, history="conversation", max_completion_length=4)
    trainer.train()
    place = trainer.processing_class.image_token_id
    for episode in trainer.rollouts[0]:
        first, second, third = episode.decisions
        assert second.prompt.ids[: len(first.prompt.ids)] == first.prompt.ids
        assert first.prompt.images == second.prompt.images == third.prompt.images != () or not first.prompt.images
        assert {prompt.ids.count(place) for prompt in (first.prompt, second.prompt, third.prompt)} == {
            sum(trainer.image_inputs["base"].num_tokens(first.prompt.images))
        }
    assert sum(len(batch["pictures"]) for batch in trainer.batches) == 24


def test_a_place_of_videos_that_was_sampled_is_text_in_the_next_prompt(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, env=FirstSees, history="conversation", max_completion_length=4)
    tokenizer = trainer.processing_class.tokenizer
    video, place = map(tokenizer.convert_tokens_to_ids, ("<|video_pad|>", "<|image_pad|>"))
    likelier = 6.0 * torch.nn.functional.one_hot(torch.tensor(video), len(tokenizer))
    trainer.model.lm_head.register_forward_hook(lambda _, args, logits: logits + likelier)
    trainer.train()
    prompts = [decision.prompt for episode in trainer.rollouts[0] for decision in episode.decisions]
    shown = [prompt for prompt in prompts if prompt.images and video in prompt.ids]
    assert shown
    types = trainer.image_inputs["base"].of_rows([shown[0].ids], [shown[0].images])["mm_token_type_ids"]
    assert types == [[int(token == place) for token in shown[0].ids]]


class SeesAgain(FirstSees):
    def step(self, action: str | None) -> None:
        super().step(action)
        self.shown = self.show(1)


def test_a_conversation_of_several_pictures_is_refused_in_words(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, env=SeesAgain, history="conversation", max_completion_length=4)
    with pytest.raises(ValueError, match="several pictures are not supported"):
        trainer.train()


@pytest.mark.parametrize("view", ["image", "both"])
def test_a_conversation_of_boards_as_pictures_is_refused_when_the_trainer_is_created(
    view: str, tmp_path: Path
) -> None:
    env = partial(plan_path_v0.env, workflow="single", size=4, num_turns=3, view=view)
    with pytest.raises(ValueError, match=rf"view={view!r} shows agent 'planner_0' a picture in every turn"):
        trainer_of(tmp_path, env=env, history="conversation")
    trainer_of(tmp_path, env=env)


def test_texts_beside_a_picture_are_written_as_they_are_without_it(tmp_path: Path) -> None:
    class Feedback(PictureBook):
        def show(self, seed: int) -> Any:
            return {"parts": ["Turn 1.", "Feedback.", *([as_image(drawn(seed))] if seed else [])]}

    trainer = trainer_of(tmp_path, env=Feedback)
    for episode in trainer.play([{"seed": 0}, {"seed": 1}], num_episodes=1):
        assert "Turn 1.\nFeedback.<" in trainer.processing_class.tokenizer.decode(episode.decisions[0].prompt.ids)


# ---- generate -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:shared_prefix=True, but images are observed by solver_0")
def test_generate_reads_the_picture_of_a_decision_once_for_its_candidates(tmp_path: Path) -> None:
    seen, played = [], []
    for shared_prefix in (False, True):
        trainer = trainer_of(tmp_path / str(shared_prefix), shared_prefix=shared_prefix, max_steps=-1)
        patches: list[int] = []
        trainer.model.model.visual.register_forward_pre_hook(lambda _, args, p=patches: p.append(len(args[0])))
        torch.manual_seed(3)
        episodes = trainer.play([{"seed": seed} for seed in range(4)], num_episodes=4)
        played.append([[c.completion.ids for c in d.candidates] for e in episodes for d in e.decisions])
        seen.append(sum(patches))
    assert played[0] == played[1]
    assert seen[0] == 4 * seen[1] > 0


def test_texts_alone_are_read_once_by_a_model_with_vision(tmp_path: Path) -> None:
    class Texts(PictureBook):
        def show(self, seed: int) -> Any:
            return f"What would you say to the number {seed}?"

    played = []
    for shared_prefix in (False, True):
        trainer = trainer_of(tmp_path / str(shared_prefix), env=Texts, shared_prefix=shared_prefix)
        torch.manual_seed(3)
        episodes = trainer.play([{"seed": seed} for seed in range(3)], num_episodes=4)
        played.append([[c.completion.ids for c in d.candidates] for e in episodes for d in e.decisions])
        trainer.train()
    assert played[0] == played[1]


# ---- Checkpoints and the log of rollouts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.slow if name == "gemma" else ()) for name in FAMILIES]
)
def test_a_run_resumed_inside_a_generation_has_its_pictures_and_the_same_weights(family: str, tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 1, "steps_per_generation": 2, "max_steps": 2}
    whole = trainer_of(tmp_path / "whole", family, **options)
    whole.train()
    resumed = trainer_of(tmp_path / "resumed", family, **options)
    resumed.train(str(tmp_path / "whole" / "checkpoint-1"))
    assert resumed.rollouts == []  # its one generation is the other run's
    assert [len(shown) for shown in resumed.batches[0]["pictures"]] == [
        len(shown) for shown in whole.batches[1]["pictures"]
    ]
    weights = weights_of(whole)
    assert all(torch.equal(value, weights[name]) for name, value in weights_of(resumed).items())


def test_a_resumed_run_whose_processor_makes_pictures_of_another_size_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"save_strategy": "steps", "save_steps": 1}
    trainer_of(tmp_path / "whole", max_steps=1, **options).train()
    processor = qwen_processor()
    processor.image_processor.size = {"shortest_edge": 3136, "longest_edge": 7056}
    monkeypatch.setitem(FAMILIES, "qwen", (lambda: processor, qwen))
    resumed = trainer_of(tmp_path / "resumed", max_steps=2, **options)
    with pytest.warns(UserWarning, match="size of pictures of base .*12544.*7056"):
        resumed.train(str(tmp_path / "whole" / "checkpoint-1"))


def test_the_log_of_rollouts_has_the_files_of_its_images(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, log_rollouts=True)
    trainer.train()
    rows = [json.loads(line) for line in (tmp_path / "rollouts" / "episodes.jsonl").read_text().splitlines()]
    parts = [
        part for row in rows for step in row["steps"] for message in step["messages"] for part in message["content"]
    ]
    shown = {part["digest"] for part in parts if part["type"] == "image"}
    assert {file.stem for file in (tmp_path / "rollouts" / "media").iterdir()} == shown != set()
