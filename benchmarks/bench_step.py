"""What a training step spends outside the model and the environment, at 64 decisions of 8 candidates, beside TRL.

    PYTHONPATH=. python benchmarks/bench_step.py [--size 0.4M] [--layout lora] [--json step.json]

Ours plays Plan-Path with a drafter and a planner, 32 instances of two decisions; TRL's `GRPOTrainer` answers 64
prompts of those same decisions. Both sample 512 completions and train on them, in one process, one after the other.
What is spent outside does not grow with the model, so the smallest model gives the largest share.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from figures import Figure, parser_of, write
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen3Config, Qwen3ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import pettingllms_envs
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


DECISIONS, CANDIDATES = 64, 8
GOAL = 0.05
FLAT = 0.05
"""Most groups of a step without an advantage, of which there is no update to measure."""
INSIDE = ("generation", "forward", "backward", "environment")
SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SIZES: Mapping[str, dict[str, int]] = {
    "0.4M": {"hidden_size": 96, "intermediate_size": 288, "num_hidden_layers": 3, "num_attention_heads": 6},
    "25M": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 7, "num_attention_heads": 8},
    "0.6B": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
}


class Clock:
    """Seconds by what they were spent on: of nested calls, the innermost but for what belongs to a generation."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[list[Any]] = []

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Time spent inside is spent on this; inside generation, forward passes are part of it."""
        if self._open and self._open[-1][0] == "generation" and what == "forward":
            yield
            return
        frame = [what, 0.0]
        self._open.append(frame)
        began = self.now()
        try:
            yield
        finally:
            took = self.now() - began
            self._open.pop()
            self.seconds[what] += took - frame[1]
            if self._open:
                self._open[-1][1] += took

    def wrap(self, owner: Any, name: str, what: str) -> None:
        """Time every call of a method of an object, or of a class."""
        inner: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.on(what):
                return inner(*args, **kwargs)

        setattr(owner, name, timed)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one optimizer step, whole and by what they were spent on."""

    whole: float
    parts: Mapping[str, float]

    @property
    def outside(self) -> float:
        """Outside generation, forward, backward and the environment; the optimizer's arithmetic is part of it."""
        return self.whole - sum(self.parts.get(name, 0.0) for name in INSIDE)


class Steps(TrainerCallback):
    """Takes the clock's reading after every optimizer step, logging included."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.steps = clock, list[Step]()

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._began, self._before = self.clock.now(), dict(self.clock.seconds)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **kwargs: Any) -> None:
        if logs.get("rollout/decisions", 2) != 2:
            raise ValueError(f"an episode of {logs['rollout/decisions']} decisions, expected 2")
        if logs.get("frac_reward_zero_std", 0.0) > FLAT:
            raise ValueError(
                f"{logs['frac_reward_zero_std']:.0%} of the groups have no advantage, expected {FLAT:.0%} at most: "
                "they are not trained on"
            )
        now, seconds = self.clock.now(), dict(self.clock.seconds)
        parts = {name: value - self._before.get(name, 0.0) for name, value in seconds.items()}
        self.steps.append(Step(now - self._began, parts))
        self._began, self._before = now, seconds


def letters(completions: list[Any], **_: Any) -> list[float]:
    """Share of characters below "P": what replies of random weights differ in, so that every group has an update."""
    texts = [completion[0]["content"] for completion in completions]
    return [sum(character < "P" for character in text) / max(len(text), 1) for text in texts]


def now() -> float:
    """Seconds, all that was given to the accelerator done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def make_base(folder: Path, texts: list[str], size: str) -> None:
    """A random Qwen3 and a tokenizer fitted to the prompts."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=2000,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token=SPECIAL[0], eos_token=SPECIAL[1], padding_side="left"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    shape = SIZES[size]
    config = Qwen3Config(
        vocab_size=len(tokenizer) if size == "0.4M" else 2048 if size == "25M" else 151936,
        num_key_value_heads=shape["num_attention_heads"] if size == "0.4M" else shape["num_attention_heads"] // 2,
        head_dim=16 if size == "0.4M" else 64 if size == "25M" else 128,
        max_position_embeddings=4096,
        initializer_range=0.1 if size == "0.4M" else 0.02,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        **shape,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def prompts(num_rows: int) -> list[list[dict[str, str]]]:
    """What the drafter and the planner are shown at the beginning of each instance."""
    env = pettingllms_envs.make("plan_path")
    shown = []
    for seed in range(num_rows):
        env.reset(seed=seed)
        for _ in range(2):
            observation = env.observe(env.agent_selection)
            lead = [{"role": "system", "content": observation["system"]}] if observation.get("system") else []
            shown.append([*lead, {"role": "user", "content": observation["text"]}])
            env.step("Moves: U")
    return shown


def arguments(folder: Path, *, num_steps: int, length: int, passes: int) -> dict[str, Any]:
    """Of both trainers."""
    return {
        "output_dir": str(folder / "out"),
        "num_generations": CANDIDATES,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": passes,
        "max_completion_length": length,
        "max_steps": num_steps,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "bf16": torch.cuda.is_available(),
        "use_cpu": not torch.cuda.is_available(),
    }


def measure(trainer: GRPOTrainer, clock: Clock, seen: Steps) -> list[Step]:
    """The steps of a training, without the first, which warms everything up."""
    trainer.remove_callback(PrinterCallback)
    clock.wrap(trainer.model, "generate", "generation")
    clock.wrap(trainer.model, "forward", "forward")
    clock.wrap(trainer.accelerator, "backward", "backward")
    trainer.train()
    return seen.steps[1 : trainer.args.max_steps]


def ours(base: Path, layout: str, *, num_steps: int, length: int) -> list[Step]:
    """`MultiAgentGRPOTrainer` on `DECISIONS` decisions a step."""
    clock = Clock(now)
    seen = Steps(clock)

    def make_env() -> Any:
        env = pettingllms_envs.make("plan_path")
        for owner, names in (
            (env, ("reset", "step", "observe")),
            (env.unwrapped, ("snapshot", "restore", "state_hash")),
        ):
            for name in names:
                clock.wrap(owner, name, "environment")
        return env

    num_rows = DECISIONS // 2
    trainer = MultiAgentGRPOTrainer(
        str(base),
        make_env,
        MultiAgentGRPOConfig(
            max_turns=1, **arguments(base, num_steps=num_steps, length=length, passes=num_rows * CANDIDATES // 8)
        ),
        Dataset.from_dict({"seed": list(range(num_rows * num_steps))}),
        reward_funcs=letters,
        policies=layout,
        peft_config=LoraConfig(r=8, target_modules="all-linear") if layout == "lora" else None,
        callbacks=[seen],
    )
    return measure(trainer, clock, seen)


def trls(base: Path, *, num_steps: int, length: int, lora: bool) -> list[Step]:
    """TRL's `GRPOTrainer` on as many prompts."""
    clock = Clock(now)
    seen = Steps(clock)
    shown = prompts(DECISIONS // 2 * num_steps)
    trainer = GRPOTrainer(
        str(base),
        reward_funcs=letters,
        args=GRPOConfig(**arguments(base, num_steps=num_steps, length=length, passes=DECISIONS * CANDIDATES // 8)),
        train_dataset=Dataset.from_dict({"prompt": shown}),
        peft_config=LoraConfig(r=8, target_modules="all-linear") if lora else None,
        callbacks=[seen],
    )
    return measure(trainer, clock, seen)


def report(name: str, steps: list[Step]) -> float:
    """Print the medians of one trainer's steps, and return the share that is spent outside."""
    whole = statistics.median(step.whole for step in steps)
    parts = {part: statistics.median(s.parts.get(part, 0.0) for s in steps) for part in INSIDE}
    outside = statistics.median(step.outside for step in steps)
    share = statistics.median(step.outside / step.whole for step in steps)
    columns = "".join(f"{parts[part]:12.3f}" for part in INSIDE)
    print(f"{name:28s}{whole:9.2f}{columns}{outside:10.3f}{share:9.1%}")
    return share


def main() -> None:
    """Run both and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--size", choices=SIZES, default="0.4M")
    parser.add_argument("--layout", choices=("shared", "lora", "full"), default="lora")
    parser.add_argument("--length", type=int, default=64, help="tokens of a completion, at most")
    parser.add_argument("--steps", type=int, default=3, help="steps that are counted")
    given = parser.parse_args()
    options = {"num_steps": given.steps + 1, "length": given.length}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        texts = [message["content"] for prompt in prompts(64) for message in prompt]
        make_base(base, texts, given.size)
        print(f"{given.size}, {given.layout}, {DECISIONS} decisions x {CANDIDATES}, {given.length} tokens; s a step")
        print(f"{'':28s}{'whole':>9s}{''.join(f'{part:>12s}' for part in INSIDE)}{'outside':>10s}{'share':>9s}")
        steps = ours(base, given.layout, **options), trls(base, lora=given.layout == "lora", **options)
        share = report("MultiAgentGRPOTrainer", steps[0])
        report("GRPOTrainer", steps[1])
    print(f"outside: {share:.1%} of a step; the goal, {GOAL:.0%} at most, is {'met' if share <= GOAL else 'MISSED'}")
    write(given.json, figures(f"{given.size}, {given.layout}", *steps))


def figures(setting: str, ours: list[Step], theirs: list[Step]) -> list[Figure]:
    """What is saved of both, step by step."""
    shares = tuple(step.outside / step.whole for step in ours)
    met = statistics.median(shares) <= GOAL
    common = {"unit": "s", "peer_name": "TRL GRPOTrainer"}
    return [
        Figure(name=f"a step's share outside, {setting}", unit="", ours=shares, goal=f"<= {GOAL:.0%}", met=met),
        Figure(
            name=f"a step, outside, {setting}",
            ours=tuple(step.outside for step in ours),
            peer=tuple(step.outside for step in theirs),
            **common,
        ),
        Figure(
            name=f"a step, whole, {setting}",
            ours=tuple(step.whole for step in ours),
            peer=tuple(step.whole for step in theirs),
            **common,
        ),
    ]


if __name__ == "__main__":
    main()
