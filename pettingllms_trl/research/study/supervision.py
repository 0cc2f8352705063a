"""A run of supervision: the team imitates demonstrations, each `num_iterations` times, and is evaluated. By `sft`.

    supervised: {supervised: {demonstrations: "demonstrations.py:of_oracle", tokens: 60000}}

plays instances of `train_seeds`, drawn by the run's seed, until their replies have that many tokens, or `instances`
are played: by the environment's `"oracle"`, or a function `(env, seeds)` that yields `Demonstration`s of each episode.
"""

from __future__ import annotations

import dataclasses
import math
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from transformers import AutoTokenizer, PreTrainedTokenizerBase, set_seed
from trl import SFTConfig

from pettingllms_envs.research.studies.results import CellResult
from pettingllms_trl.cli import arguments, fields, sft
from pettingllms_trl.cli.datasets import agents_of, makers
from pettingllms_trl.policies.routing import Routing, route
from pettingllms_trl.research.study import cells
from pettingllms_trl.research.study.machine import cpu_time, machine_facts
from pettingllms_trl.research.study.plans.plan import PlannedRun
from pettingllms_trl.sft.demonstrations import Demonstration, by_oracle
from pettingllms_trl.sft.warm_up import rows_of, warm_up


OTHERS = ("loss_type", "max_steps", "save_steps", "save_total_limit", "report_to")
"""Fields of both trainers that mean something else there, or nothing."""


def check(run: PlannedRun, folder: Path) -> None:
    """Raise where the demonstrations cannot be made, or what is trained cannot be evaluated. No model is loaded."""
    given, _, _, make_env, routing, seeds = _prepared(run, folder, None)
    if routing.base is None and not routing.adapters:
        raise ValueError(
            f"policies is {given.policies!r}; expected adapters or one shared policy in a run of supervision. Set "
            "policies: lora."
        )
    next(_episodes(_source(run), make_env(), seeds))


def run_supervised(run: PlannedRun, folder: Path, prepared: Path | None) -> CellResult:
    """Imitate and evaluate; one that is stopped begins again, as it takes a minute where training takes many."""
    made, began = machine_facts(), cpu_time()
    given, args, config, make_env, routing, seeds = _prepared(run, folder, prepared)
    shutil.rmtree(args.output_dir, ignore_errors=True)
    tokenizer = AutoTokenizer.from_pretrained(config.model_name_or_path)
    episodes = _episodes(_source(run), make_env(), seeds)
    demonstrations, tokens, num_rows = taken(episodes, tokenizer, **run.config["supervised"])
    args.model_init_kwargs = arguments.model_init_kwargs(config, args)
    peft_config = arguments.peft_config(config, given.policies or "shared")
    warm_up(config.model_name_or_path, demonstrations, routing, args, peft_config=peft_config, adapters=given.adapters)
    size = args.per_device_train_batch_size * args.gradient_accumulation_steps
    passes, rows = int(args.num_train_epochs), rows_of(demonstrations, routing)
    own = {"adapters" if routing.adapters else "model_name_or_path": args.output_dir}
    with cells.open_trainer(run, folder, prepared, **own) as trainer:
        set_seed(run.cell.seed)
        success = cells.played(trainer, list(trainer.eval_dataset), "evaluation")
        trainer.save_model(str(folder / "team"))
    shutil.rmtree(args.output_dir)
    return CellResult(
        cell=run.cell,
        config=run.config,
        digest=run.digest,
        success=success,
        tokens=tokens,
        steps=max(passes * math.ceil(len(each) / size) for each in rows.values()),
        seconds=0.0,
        cpu_seconds=round(cpu_time() - began, 1),
        rows=num_rows,
        uses=float(passes),
        **made,
    )


def taken(
    episodes: Iterator[Sequence[Demonstration]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    demonstrations: str,
    tokens: float = math.inf,
    instances: float = math.inf,
) -> tuple[list[Demonstration], int, int]:
    """The demonstrations of as many episodes as have this number of tokens, or as there are instances; the number of
    tokens of their replies, each with the one that ends it; and that of the episodes."""
    found: list[Demonstration] = []
    number = total = 0
    while number < instances and total < tokens:
        own = next(episodes, None)
        if own is None:
            raise ValueError(
                f"{demonstrations} has {number} episodes with {total:,} tokens; expected more. Widen train_seeds."
            )
        found += own
        number += 1
        total += sum(len(tokenizer(each.reply, add_special_tokens=False)["input_ids"]) + 1 for each in own)
    return found, total, number


def _prepared(
    run: PlannedRun, folder: Path, prepared: Path | None
) -> tuple[sft.SFTArguments, SFTConfig, Any, Callable[[], Any], Routing, Sequence[int]]:
    """What `pettingllms sft` takes, of the run's fields: those that it knows."""
    given = cells.fields_of(run, prepared)
    known = {field.name for kind in sft.KINDS for field in dataclasses.fields(kind)} - {*OTHERS}
    own = {name: value for name, value in given.items() if name in known} | {
        "output_dir": str(folder / "supervised"),
        "num_train_epochs": given.get("num_iterations", 1),
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "supervised.yaml"
    file.write_text(yaml.safe_dump(own, sort_keys=False), "utf-8")
    parsed, args, config = arguments.parse(["--config", str(file)], sft.KINDS, prog="pettingllms study")
    arguments.import_packages(parsed.imports)
    make_env = makers(parsed)
    if isinstance(make_env, dict):
        raise ValueError(
            f"{run.cell.environment} is several environments; expected one with supervised. Name them apart."
        )
    routing = route(parsed.policies or "shared", agents_of(make_env), model=config.model_name_or_path)
    seeds = list(range(*given["train_seeds"]))
    random.Random(run.cell.seed).shuffle(seeds)
    return parsed, args, config, make_env, routing, seeds


def _source(run: PlannedRun) -> Callable[..., Iterator[Demonstration]]:
    source = run.config["supervised"]["demonstrations"]
    return (
        by_oracle
        if source == "oracle"
        else fields.function_of_file("supervised.demonstrations", source, "(env, seeds)")
    )


def _episodes(
    source: Callable[..., Iterator[Demonstration]], env: Any, seeds: Sequence[int]
) -> Iterator[list[Demonstration]]:
    for seed in seeds:
        yield list(source(env, iter([seed])))
