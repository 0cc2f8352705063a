"""A program for one or several processes: trains teams whose replies follow from the prompt (and weights) alone.

    python ranks.py specs.json out                                     # one process
    torchrun --nproc_per_node 2 ranks.py specs.json out                # two

For each specification, a dict of a name and options, the main process leaves `out/<name>.pt`: the final weights, what
was logged, the completions table, and how many sequences each pass took.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType, gather_object
from datasets import Dataset, IterableDataset
from torch.distributed.fsdp import FSDPModule
from transformers import TrainerCallback

from pettingllms_trl import Curriculum, Decision, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.credit import Kept
from pettingllms_trl.engines import synced_engines
from pettingllms_trl.processes.distributed import gathered
from pettingllms_trl.processes.row_sharing import row_sharing
from pettingllms_trl.trainer.collector import Generation
from picture_books import PictureBook
from short_runs import adapter, settings
from third_party import Relay
from tiny_vlms import FAMILIES
from twin_teams import WAIT, as_program


class Uneven(Relay):
    """A relay of as many turns as the seed says; in every fifth the closer never acts, in every seventh nobody."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        assert seed is not None
        self.num_turns = 1 + seed % 3  # each
        self.alone = seed % 5 == 0
        super().reset(seed, options)
        self.infos = {agent: {"outcome": {"success": False}} for agent in self.agents}
        if seed % 7 == 6:
            self.agents = []

    def step(self, action: str | None) -> None:
        super().step(action)
        if action is not None:
            self.infos = {agent: {"outcome": {"success": len(self.written) > 2}} for agent in self.possible_agents}
            if self.alone:
                self.agent_selection = "opener_0"


class Fails(Uneven):
    """Breaks down in one of its instances."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if seed == 2:
            raise RuntimeError("no board today")
        super().reset(seed, options)


class Flat(Uneven):
    """Pays in three of its instances only."""

    def step(self, action: str | None) -> None:
        super().step(action)
        if self.task not in (1, 2, 7):
            self.rewards = dict.fromkeys(self.possible_agents, 0.0)


class FewPictures(PictureBook):
    """Shows pictures in every sixth of its instances, so that there may be some on one process alone."""

    def show(self, seed: int) -> Any:
        shown = [] if seed % 6 else super().show(seed)["parts"]
        return {"parts": [*shown, f"Question {seed}?"]}  # by which replies are told apart


class Lewd(Uneven):
    """Gives, in one of its instances, a reward that is none."""

    def step(self, action: str | None) -> None:
        super().step(action)
        if self.task == 2:
            self.rewards = dict.fromkeys(self.possible_agents, float("nan"))


def odd_ones(decisions: Sequence[Decision]) -> Kept:
    """A filter that goes by what was sampled."""
    kept = [i for i, d in enumerate(decisions) if sum(len(c.completion.ids) for c in d.candidates) % 2]
    return Kept.of(decisions, kept)


def of_length(completion_ids: list[list[int]], log_extra: Any, **_: Any) -> list[float]:
    """A reward function that writes a column of the completions table."""
    log_extra("length", [len(ids) for ids in completion_ids])
    return [len(ids) / 10 for ids in completion_ids]


ENVIRONMENTS = {
    "flat": Flat,
    "few pictures": FewPictures,
    "uneven": Uneven,
    "fails": Fails,
    "not a number": Lewd,
    "relay": Relay,
    "program": as_program("sequence"),
    "fan-out program": as_program("fan-out"),
}
if find_spec("langgraph") is not None:
    from langgraph_teams import TARGETS

    ENVIRONMENTS |= {f"{name} of LangGraph": as_program(name, TARGETS, WAIT) for name in TARGETS}


class Signals(TrainerCallback):
    """One process sends itself SIGTERM, as a scheduler might, at the end of a step."""

    def __init__(self, process: int, step: int) -> None:
        self.process, self.step = process, step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.process_index == self.process and state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def reply(messages: Sequence[Any]) -> str:
    """A partner behind an API, whose letters depend on what it is shown."""
    return "AB" * (len(str(messages)) % 3) + "C"


def sampled_of(generation: Generation) -> dict[Any, Any]:
    """By the place of each decision: its prompt, and each candidate's token ids and log-probabilities."""
    return {
        (d.instance, d.episode, d.agent, d.turn): (
            d.prompt.ids,
            [(c.completion.ids, c.completion.logprobs) for c in d.candidates],
        )
        for episode in generation.played.episodes
        for d in episode.decisions
    }


def go_wrong(trainer: MultiAgentGRPOTrainer, how: str) -> None:
    """Break, on purpose, what makes two processes with an engine each train as one."""
    process = trainer.accelerator.process_index
    for served in trainer.engines.engine_set._served:
        if how == "the process in the seed" and process == 1:  # as in seed + process, which leaves process 0's alone
            begin = served.engine._params.begin
            served.engine._params.begin = lambda name, begin=begin: begin(f"{name}/{process}")
        elif how == "an adapter stays behind" and process == 1:
            served.engine.load = partial(_late, served.engine.load, {})


def _late(load: Any, kept: dict[str, Any], policy: str, state: Any, version: int) -> None:
    """Load the weights that the policy was given before."""
    given = {name: tensor.clone() for name, tensor in state}
    load(policy, kept.get(policy, given).items(), version)
    kept[policy] = given


def take_little_memory() -> None:
    """Let engines of vLLM keep few keys and values, because all trainers of a launch stay."""
    from pettingllms_trl.engines.vllm import colocated

    arguments = colocated.engine_arguments

    def with_less(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**arguments(*args, **kwargs), "kv_cache_memory_bytes": 2**25}

    colocated.engine_arguments = with_less
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # it has precedence


TRAINERS: list[MultiAgentGRPOTrainer] = []
"""All of this process: when an engine of vLLM is collected, it destroys the process groups of all others."""


class Ranked(MultiAgentGRPOTrainer):
    """Replies depend on the prompt alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.is_real = self.is_slow = False
        self.first_word = 5
        self.num_seeing: list[int] = []
        self.passes: list[tuple[str, int]] = []
        self.num_played: list[int] = []
        self.sampled: list[dict[Any, Any]] = []
        super().__init__(*args, **kwargs)

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
        self.num_played.append(len(prompt_ids))
        if self.is_slow:
            time.sleep(0.3)
        if self.is_real:
            return super()._generate_single_turn(prompt_ids, *rest)
        seen: Counter[str] = Counter()
        completions = []
        for ids in prompt_ids:
            rng = random.Random(f"{list(ids)}/{seen[str(list(ids))]}")
            seen[str(list(ids))] += 1
            words = [rng.randrange(self.first_word, 200) for _ in range(rng.randint(1, 7))]
            completions.append([*words, *self.eos_token_ids[:1]] if rng.random() < 0.7 else words)
        return completions, None

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.passes.append((inputs["policy"], len(inputs["advantages"])))
        self.num_seeing.append(sum(map(bool, inputs.get("pictures", ()))))
        return super().compute_loss(model, inputs, *args, **kwargs)


def policies(layout: str, path: str) -> Any:
    if layout == "partner":
        return {"opener": Policy(adapter="opener"), "closer": Policy(trainable=False)}
    if layout == "api":
        return {"opener": Policy(adapter="opener"), "closer": Policy(api=reply)}
    if layout == "rates":
        return {"opener": Policy(adapter="opener", learning_rate=0.1, max_grad_norm=0.05), "closer": "closer"}
    if layout == "mixture":
        return {"opener": Policy(adapter="opener"), "closer": Policy(model=path, name="closer")}
    return layout


def trained(
    spec: dict[str, Any], out: Path, *, callbacks: Sequence[TrainerCallback] = (), keep: Path | None = None
) -> Ranked:
    """A trainer after its training.

    Args:
        spec: See the head of this file.
        out: The run's folder is made there.
        callbacks: Of the trainer, besides those of the specification.
        keep: A folder for what is sampled in each generation, if it is kept there.
    """
    options = dict(spec["options"])
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    options["per_device_train_batch_size"] = options.pop("batch_size") // num_processes
    layout, path = spec["layout"], spec["model"]
    seeds = [{"seed": seed} for seed in spec.get("seeds", range(12))]
    rows = IterableDataset.from_generator(lambda: iter(seeds)) if spec.get("stream") else Dataset.from_list(seeds)
    few = [{"seed": seed} for seed in range(5)]
    eval_rows = IterableDataset.from_generator(lambda: iter(few)) if spec.get("stream") else Dataset.from_list(few)
    usual = {
        "max_steps": 3,
        "learning_rate": 0.5,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "gradient_checkpointing": True,
        "seed": 7,
        "audit": "stop",
    }
    args = settings(out / spec["name"], **{**usual, **options})
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        # accelerate shards on GPUs alone, and makes it DDP elsewhere without a word; torch shards anywhere.
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    synced_engines.CANARY_STEPS = spec.get("compare_every", 10)
    trainer = Ranked(
        path,
        ENVIRONMENTS[spec.get("env", "uneven")],
        args,
        rows,
        eval_rows,
        processing_class=FAMILIES[spec["family"]][0]() if "family" in spec else None,
        policies=policies(layout, path),
        credit=spec.get("credit", "at_grpo") if "imitate" not in spec["options"] else None,
        filters=odd_ones if spec.get("filters") else None,
        reward_funcs=of_length if spec.get("reward_funcs") else None,
        curriculum=Curriculum(levels=(1, 2, 3), window=3) if spec.get("curriculum") else None,
        peft_config=adapter() if layout not in ("shared", "full") else None,
        callbacks=[*callbacks, *([Signals(*spec["signal"])] if "signal" in spec else [])],
    )
    TRAINERS.append(trainer)
    trainer.is_real = spec.get("real", False)
    trainer.first_word = spec.get("first_word", trainer.first_word)
    collect = trainer.collector.collect

    def recorded(rows: Any, *, name: str, **kwargs: Any) -> Generation:
        generation = collect(rows, name=name, **kwargs)
        trainer.sampled.append(sampled_of(generation))
        if keep is not None and trainer.is_world_process_zero():
            torch.save(trainer.sampled[-1], keep / f"{name}.{os.getpid()}.pt")
        return generation

    trainer.collector.collect = recorded
    if "control" in spec:
        go_wrong(trainer, spec["control"])
    if spec.get("play_first"):  # before accelerate has wrapped the model
        refused = pytest.raises(RuntimeError, match="fsdp_cpu_ram_efficient_loading")
        with refused if trainer.is_fsdp_enabled else nullcontext():
            trainer.play([{"seed": 1}, {"seed": 2}], name="first")
    trainer.is_slow = spec.get("slow") == args.process_index
    if spec.get("shares_rows"):
        trainer.collector.sharing = row_sharing(is_seeded=True)
    trainer.train(resume_from_checkpoint=spec.get("resume"))
    return trainer


def main(specs: Path, out: Path) -> None:
    teams = json.loads(specs.read_text())
    options = [spec["options"] for spec in teams]
    if any(own.get("use_vllm") and own.get("vllm_mode") != "server" for own in options):
        take_little_memory()
    for spec in teams:
        try:
            trainer = trained(spec, out)
        except (RuntimeError, ValueError) as error:
            process = os.environ.get("RANK", "0")
            (out / f"{spec['name']}.{process}.error").write_text(f"{type(error).__name__}: {error}")
            if not spec.get("fails"):
                raise
            continue
        evaluated = trainer.evaluate() if spec.get("evaluate") else {}
        played = trainer.play([{"seed": 1}, {"seed": 2}, {"seed": 3}]) if spec.get("play") else []
        with gathered(trainer.model_wrapped, trainer.accelerator):
            model = trainer.accelerator.unwrap_model(trainer.model)
            weights = {name: p.detach().clone() for name, p in model.named_parameters()}
        if spec.get("save"):
            trainer.save_model(str(out / f"{spec['name']}-saved"))
        about = (trainer.passes, sum(trainer.num_played), [e.instance for e in played], trainer.num_seeing)
        reports = gather_object([about])
        if trainer.is_world_process_zero():
            report = {
                "weights": weights,
                "log": [*trainer.state.log_history, evaluated],
                "table": {
                    "prompt": list(trainer._logs["prompt"]),
                    "completion": list(trainer._logs["completion"]),
                    "advantages": list(trainer._logs["advantages"]),
                    **{name: list(values) for name, values in trainer._logs["rewards"].items()},
                    **{name: list(values) for name, values in trainer._logs["extra"].items()},
                },
                "passes": [passes for passes, _, _, _ in reports],
                "num_played": [number for _, number, _, _ in reports],
                "episodes": [instances for _, _, instances, _ in reports],
                "num_seeing": [numbers for _, _, _, numbers in reports],
                "kind": trainer.accelerator.distributed_type.value,
                "is_sharded": isinstance(trainer.model_wrapped, FSDPModule),
                "stopped_by": trainer.stopped_by,
                "sampled": trainer.sampled,
                "tokens": trainer.state.num_input_tokens_seen,
            }
            torch.save(report, out / f"{spec['name']}.pt")


if __name__ == "__main__":
    warnings.simplefilter("default")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        sys.stdout.flush()
        # Not by way of Python's and C++'s end: there gloo's threads, now and then still at work, abort the process.
        os._exit(0)
