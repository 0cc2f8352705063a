"""Trains tiny vision-language models on pictures of boards, and measures whether they look at them.

    python benchmarks/image_training.py                         # a planner and its blind twin, seeds 0, 1, 2
    python benchmarks/image_training.py --task describer        # the describer of describer_solver, and its twin
    python benchmarks/image_training.py --split validation --seeds 100 --alone --rate 1e-3    # to choose settings
    python benchmarks/image_training.py --seeds 0 --steps 2 --imitated 640   # whether it runs
    python benchmarks/image_training.py --seeds 0 --output teams   # to play them: pettingllms bench --team, see below

The board is Plan-Path's of 4 x 4 cells, two of them blocked, and one reply is an episode. (Of 3 x 3 cells there are
156 instances in the test split.) A Qwen2.5-VL of 0.3M parameters imitates careless replies, some of which belong to
other instances: descriptions and then, if it is to plan, moves. Then AT-GRPO trains it. Its blind twin has the same
initial weights, demonstrations, seeds, steps and rates, but each picture that it is shown, in imitation, in training
and after, is another instance's.

Both play the same 300 instances of the test split, greedily, none of which is a rotation or reflection of one that was
trained on. What is reported: the paired difference of seeing and blind; and that of the seeing model with its own
pictures and with those of other instances, as `pettingllms blind` has it. Of the planner it is of success, of
the describer of the share of tiles that it has right, beside the best constant answer. The solver of the describer's
team is a function that plays the board that it reads. The image gain is the mean of the last 25 steps, in nats.

`--output` keeps the teams. The planner is played by `pettingllms blind plan_path --workflow single --set size=4
--set blocked=0.125 --set num_turns=1 --set view=image --team teams/planner_0_seeing --temperature 0 --role planner`,
whose 330 first seeds of the test split (`--limit 330`) are the same 300 instances. It needs torchvision, as the
processor of any Qwen2.5-VL.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "examples/quickstart"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/trl"))

import torch
from datasets import Dataset
from tiny import make_tokenizer
from torch.nn.functional import cross_entropy
from training import FIRST_SEED, REINFORCEMENT, quiet
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    TrainerCallback,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.environments.plan_path.text import read_board
from pettingllms_envs.evaluation.statistics import studentized_bootstrap
from pettingllms_envs.observations import Image
from pettingllms_envs.pictures import opened
from pettingllms_envs.prompts import text_of
from pettingllms_envs.teams.describer_solver import DescriberSolver, best_constant, read_rows, share_right
from pettingllms_envs.teams.single import PLANNER, Single
from pettingllms_envs.views import apply_view, board_picture
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from tiny_vlms import QWEN_TOKENS, StillProcessor


GAME = PlanPath(size=4, blocked=0.125)
PATCH = 4
"""Pixels of a patch's side; a cell is two by two of them, and one place of a prompt."""
NUM_PLAYED = 300
INSTANCES = 4000  # of demonstrations
GROUP, ROWS = 8, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of both trainings, to be chosen on the validation split.

    Args:
        imitated: Demonstrations that are imitated.
        careless: Share of them that belong to another instance.
        imitation_rate: Learning rate of the imitation.
        steps: Optimizer steps of AT-GRPO.
        rate: Their learning rate.
    """

    imitated: int = 6_400
    careless: float = 0.1
    imitation_rate: float = 3e-3
    steps: int = 100
    rate: float = 5e-4


@cache
def pool() -> tuple[Image, ...]:
    """Pictures of 1,000 instances of the training split, which the blind are shown."""
    return tuple(board_picture(GAME, GAME.generate(FIRST_SEED * 5 + seed)) for seed in range(1000))


def other_picture(state: Any) -> Image:
    """A picture of another instance, always the same one for a state."""
    own, number = board_picture(GAME, state).digest, int(hashlib.sha256(repr(state).encode()).hexdigest(), 16)
    return next(each for each in (*pool()[number % 1000 :], *pool()) if each.digest != own)


@dataclass(frozen=True, slots=True)
class Planner(Single):
    """Workflow `single` with view="image", and perhaps other pictures."""

    is_blind: bool = False

    roles: ClassVar[tuple[Role, ...]] = (replace(PLANNER, observes="parts"),)

    def observe(self, state: Any, role: str) -> Any:
        picture, words = apply_view(Single.observe(self, state, role), "image", self, state.task)
        return other_picture(state.task) if self.is_blind else picture, words


@dataclass(frozen=True, slots=True)
class Describer(DescriberSolver):
    """Workflow `describer_solver`, whose describer is perhaps shown other pictures."""

    is_blind: bool = False

    def observe(self, state: Any, role: str) -> Any:
        seen = DescriberSolver.observe(self, state, role)
        return (other_picture(state.task), *seen[1:]) if self.is_blind and role == "describer" else seen


WORKFLOWS = {"planner": Planner, "describer": Describer}
STAGES = {"planner": ("describer", "planner"), "describer": ("describer",)}
"""What is imitated: a model that has learned to tell cells apart learns moves in fewer steps."""
MAX_TOKENS = {"planner": 8, "describer": 40}
SCORE = {"planner": "success", "describer": "share of tiles"}


def env_of(task: str, is_blind: bool) -> TextEnv:
    """The environment of a task, whose first agent sees or is blind."""
    return TextEnv(WORKFLOWS[task](GAME, num_turns=1, is_blind=is_blind))


def solves(messages: Sequence[Mapping[str, Any]], **_: Any) -> str:
    """The solver: the best moves on the board that its prompt has, if it is one."""
    rows = read_rows(text_of(messages[-1]["content"]).replace("> ", ""), GAME)
    try:
        return GAME.write(GAME.oracle(read_board("\n".join(rows), GAME.size)))
    except ValueError:
        return "Moves: U"


TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_processor(texts: Sequence[str]) -> StillProcessor:
    """A tokenizer fitted to the texts, and pictures with one place for each cell."""
    tokenizer = make_tokenizer(texts)
    tokenizer.add_tokens(list(QWEN_TOKENS[3:]), special_tokens=True)
    pixels = (2 * PATCH * GAME.size) ** 2
    part = Qwen2VLImageProcessorPil(size={"shortest_edge": pixels, "longest_edge": pixels}, patch_size=PATCH)
    tokenizer.chat_template = TEMPLATE
    return StillProcessor(part, tokenizer, chat_template=TEMPLATE)


def make_model(processor: StillProcessor, seed: int) -> Qwen2_5_VLForConditionalGeneration:
    """A Qwen2.5-VL with random weights; see `tiny.make_model` on their deviation."""
    tokenizer = processor.tokenizer
    places = tokenizer.convert_tokens_to_ids
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    spread = {"initializer_range": 0.1}
    torch.manual_seed(seed)
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config={
                "vocab_size": len(tokenizer),
                "hidden_size": 64,
                "intermediate_size": 192,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "max_position_embeddings": 1024,
                # Rows and columns of a small board differ by few positions, so the rotations must not be slow.
                "rope_parameters": {"rope_type": "default", "rope_theta": 2.0, "mrope_section": [4, 6, 6]},
                "bos_token_id": None,
                **spread,
                **ends,
            },
            vision_config={
                "depth": 1,
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_heads": 4,
                "out_hidden_size": 64,
                "patch_size": PATCH,
                "fullatt_block_indexes": [0],
                "window_size": 2 * PATCH * GAME.size,
                **spread,
            },
            image_token_id=places("<|image_pad|>"),
            video_token_id=places("<|video_pad|>"),
            vision_start_token_id=places("<|vision_start|>"),
            vision_end_token_id=places("<|vision_end|>"),
            **spread,
            **ends,
        )
    )


class Player:
    """A model with its processor, which imitates and plays one task's first agent.

    All prompts of a task differ in their picture alone, so the ids are made once, and the pixels of each picture.
    """

    def __init__(self, model: Any, processor: StillProcessor, task: str) -> None:
        torch.set_num_threads(1)
        self.model, self.processor = model, processor
        env = env_of(task, False)
        env.reset(seed=0)
        seen = env.observe(env.possible_agents[0])
        content = [{"type": "image"}, {"type": "text", "text": seen["parts"][1]}]
        messages = [{"role": "system", "content": seen["system"]}, {"role": "user", "content": content}]
        text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        text = text.replace(processor.image_token, processor.image_token * GAME.size**2)
        self._prompt = self.ids(text)
        self._pixels: dict[str, Mapping[str, torch.Tensor]] = {}

    def ids(self, text: str) -> list[int]:
        found: list[int] = self.processor.tokenizer.encode(text, add_special_tokens=False)
        return found

    def inputs(self, pictures: Sequence[Image], replies: Sequence[str] = ()) -> dict[str, torch.Tensor]:
        """The model's inputs for prompts with these pictures, and perhaps replies, padded on the right."""
        for picture in pictures:
            if picture.digest not in self._pixels:
                made = self.processor.image_processor(images=[opened(picture)], return_tensors="pt")
                self._pixels[picture.digest] = made
        rows = [self._prompt + self.ids(f"{reply}<|end|>") for reply in replies] or [self._prompt] * len(pictures)
        length, pad = max(map(len, rows)), self.processor.tokenizer.pad_token_id
        ids = torch.tensor([row + [pad] * (length - len(row)) for row in rows])
        parts = [self._pixels[picture.digest] for picture in pictures]
        return {
            "input_ids": ids,
            "attention_mask": (ids != pad).long(),
            "mm_token_type_ids": (ids == self.processor.image_token_id).long(),
            **{name: torch.cat([part[name] for part in parts]) for name in ("pixel_values", "image_grid_thw")},
        }

    def imitate(self, demonstrations: Sequence[tuple[Image, str]], rate: float, batch: int = 32) -> None:
        """One pass: cross-entropy of the replies' tokens."""
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
        num_steps = len(demonstrations) // batch
        falling = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, num_steps + 1, pct_start=0.1)
        for first in range(0, num_steps * batch, batch):
            pictures, replies = zip(*demonstrations[first : first + batch], strict=True)
            inputs = self.inputs(pictures, replies)
            labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)[:, len(self._prompt) :]
            logits = self.model(**inputs).logits[:, len(self._prompt) - 1 : -1]
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            falling.step()
            if first // batch % 200 == 0:
                print(f"  imitation {first:,}: loss {loss.item():.3f}, {time.process_time():.0f} CPU s", flush=True)

    @torch.no_grad()
    def replies(self, pictures: Sequence[Image], length: int) -> list[str]:
        """The most likely replies."""
        self.model.eval()
        found: list[str] = []
        for first in range(0, len(pictures), 100):
            inputs = self.inputs(pictures[first : first + 100])
            ids = self.model.generate(**inputs, max_new_tokens=length, do_sample=False)[:, len(self._prompt) :]
            found += self.processor.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return found


def demonstrations(task: str, options: Options, seed: int, is_blind: bool) -> list[tuple[Image, str]]:
    """Pictures with replies, `careless` of which are the right ones of other instances."""
    rng, env = random.Random(f"demonstrations {seed}"), env_of(task, is_blind)
    right = []
    for _ in range(INSTANCES):
        env.reset(seed=FIRST_SEED + rng.randrange(10 * FIRST_SEED))
        right.append((env.observe(env.possible_agents[0])["parts"][0], env.oracle()))
    found = []
    for _ in range(options.imitated):
        picture, own = rng.choice(right)
        found.append((picture, rng.choice(right)[1] if rng.random() < options.careless else own))
    return found


def instances(split: str) -> list[Any]:
    """The distinct instances of a split that are played."""
    states = {repr(state): state for seed in range(4 * NUM_PLAYED) for state in [GAME.generate(seed, split=split)]}
    assert len(states) >= NUM_PLAYED
    return list(states.values())[:NUM_PLAYED]


def best_moves(split: str) -> tuple[str, float]:
    """Of all replies of at most five moves the one that solves most training instances, and its success in a split."""

    def success(moves: str, states: Sequence[Any]) -> float:
        return fmean(GAME.solved(GAME.apply(state, moves)) for state in states)

    known = [GAME.generate(FIRST_SEED + seed) for seed in range(500)]
    replies = ["".join(moves) for length in range(1, 6) for moves in product("UDLR", repeat=length)]
    best = max(replies, key=lambda moves: success(moves, known))
    return best, success(best, instances(split))


def scores(player: Player, task: str, split: str, *, is_blind: bool) -> list[float]:
    """Of each instance whether it was solved, or the share of tiles that were described right."""
    played = instances(split)
    pictures = [other_picture(state) if is_blind else board_picture(GAME, state) for state in played]
    found = []
    for state, reply in zip(played, player.replies(pictures, MAX_TOKENS[task]), strict=True):
        if task == "describer":
            found.append(share_right(GAME.rows(state), read_rows(reply, GAME)))
        else:
            move = GAME.parse(reply)
            found.append(float(isinstance(move, str) and GAME.solved(GAME.apply(state, move))))
    return found


def train(task: str, folder: Path, processor: StillProcessor, options: Options, seed: int, is_blind: bool) -> Any:
    """AT-GRPO from the weights of a folder, where the team is saved. Returns the model and what pictures gained."""
    args = MultiAgentGRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=GROUP * ROWS,
        num_generations=GROUP,
        max_completion_length=MAX_TOKENS[task],
        max_steps=options.steps,
        learning_rate=options.rate,
        image_gain_steps=1,
        seed=seed,
        **{**REINFORCEMENT, "disable_tqdm": True},
    )
    trainer = MultiAgentGRPOTrainer(
        Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype="float32"),
        lambda: env_of(task, is_blind),
        args,
        Dataset.from_dict({"seed": range(1_000_000)}),
        processing_class=processor,
        policies="shared" if task == "planner" else {"describer": Policy(), "solver": Policy(api=solves)},
    )
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(course := Course(f"{task}_0"))
    trainer.train()
    trainer.save_model()
    for file in folder.rglob("processor_config.json"):  # as transformers loads it, if torchvision is installed
        file.write_text(file.read_text().replace(StillProcessor.__name__, Qwen2_5_VLProcessor.__name__))
        file.with_name("video_preprocessor_config.json").write_text(
            '{"video_processor_type": "Qwen2VLVideoProcessor"}'
        )
    return trainer.model, course.image_gains[-25:]


class Course(TrainerCallback):
    """Prints the mean reward and the mean image gain of every 25 steps.

    Args:
        agent: The agent that is trained.
    """

    def __init__(self, agent: str) -> None:
        self._agent, self._rewards, self.image_gains = agent, list[float](), list[float]()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **kwargs: Any) -> None:
        if f"agent/{self._agent}/reward" in logs:
            self._rewards.append(logs[f"agent/{self._agent}/reward"])
            self.image_gains.append(logs[f"agent/{self._agent}/image_gain"])
            if len(self._rewards) % 25 == 0:
                reward, gain = fmean(self._rewards[-25:]), fmean(self.image_gains[-25:])
                print(f"  step {len(self._rewards)}: reward {reward:.3f}, image gain {gain:.2f},"
                      f" {time.process_time():.0f} CPU s", flush=True)  # fmt: skip


def difference(one: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """The mean of the paired differences with its 95% interval."""
    each = [a - b for a, b in zip(one, other, strict=True)]
    low, high = studentized_bootstrap(each)
    return {"first": fmean(one), "second": fmean(other), "mean": fmean(each), "low": low, "high": high}


def run(task: str, options: Options, seed: int, split: str, *, is_alone: bool, output: Path) -> dict[str, Any]:
    """Make, train, save and play a seeing model and, unless it is alone, its blind twin."""
    played: dict[str, list[float]] = {}
    gains: dict[str, dict[str, float]] = {}
    for name, is_blind in (("seeing", False), *(() if is_alone else (("blind", True),))):
        rows = {each: demonstrations(each, options, seed, is_blind) for each in STAGES[task]}
        texts = [reply for own in rows.values() for _, reply in own[:2000]]
        for each in rows:
            env = env_of(each, is_blind)
            env.reset(seed=0)
            seen = env.observe(env.possible_agents[0])
            texts += [seen["system"], seen["parts"][1]]
        processor = make_processor(texts)
        model = make_model(processor, seed)
        for each, own in rows.items():
            player = Player(model, processor, each)
            player.imitate(own, options.imitation_rate)
        played[f"{name}, imitated"] = scores(player, task, split, is_blind=is_blind)
        folder = output / f"{task}_{seed}_{name}"
        player.model.save_pretrained(folder)
        player.model, of_steps = train(task, folder, processor, options, seed, is_blind)
        low, high = studentized_bootstrap(of_steps)
        gains[name] = {"mean": fmean(of_steps), "low": low, "high": high}
        played[name] = scores(player, task, split, is_blind=is_blind)
        if not is_blind:
            played["seeing, other pictures"] = scores(player, task, split, is_blind=True)
        print(f"  {name}: {fmean(played[f'{name}, imitated']):.3f} imitated, {fmean(played[name]):.3f} trained,"
              f" {time.process_time():.0f} CPU s", flush=True)  # fmt: skip
    found = {
        **({} if is_alone else {"seeing - blind": difference(played["seeing"], played["blind"])}),
        "own - other pictures": difference(played["seeing"], played["seeing, other pictures"]),
        "trained - imitated": difference(played["seeing"], played["seeing, imitated"]),
    }
    if task == "describer":
        found["seeing - best constant"] = difference(played["seeing"], [best_constant(GAME).share] * NUM_PLAYED)
    return {"task": task, "seed": seed, "split": split, "options": asdict(options), "differences": found,
            "image gain": gains}  # fmt: skip


def main() -> None:
    """Run what the arguments say, and print and save the differences."""
    parser = argparse.ArgumentParser(description="Tiny vision-language models that learn to look.")
    parser.add_argument("--task", choices=sorted(WORKFLOWS), default="planner")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--split", choices=("validation", "test"), default="test", help="what is played (test)")
    parser.add_argument("--alone", action="store_true", help="without the blind twin, to choose settings")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where teams are saved, for pettingllms bench")
    for name, kind in (
        ("imitated", int),
        ("careless", float),
        ("imitation_rate", float),
        ("steps", int),
        ("rate", float),
    ):
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=getattr(Options(), name))
    args = parser.parse_args()
    options = Options(**{name: getattr(args, name) for name in asdict(Options())})
    results = []
    quiet()
    if args.task == "planner":
        print("best constant reply: {}, success {:.3f}".format(*best_moves(args.split)))
    for seed in args.seeds:
        print(f"{args.task}, seed {seed}, {args.split} split, {options}", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            output = args.output or Path(temporary)
            results.append(run(args.task, options, seed, args.split, is_alone=args.alone, output=output))
        for name, found in results[-1]["differences"].items():
            print(
                f"  {name:24} {SCORE[args.task]} {found['first']:.3f} - {found['second']:.3f} ="
                f" {found['mean']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]",
                flush=True,
            )
        for name, gain in results[-1]["image gain"].items():
            print(f"  image gain, {name}: {gain['mean']:.2f} [{gain['low']:.2f}, {gain['high']:.2f}] nats", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
