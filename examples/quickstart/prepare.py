"""Makes what the runs of benchmarks/studies/cooperation.yaml start from.

python examples/quickstart/prepare.py archives --seed 3 --output outputs/prepared/archives_3

Of archives it is a tiny base model that has imitated careless replies, of plan_path also warmed-up adapters.
"""

from __future__ import annotations

import argparse
import os
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import plan_path
from tiny import make_model, make_tokenizer
from training import FIRST_SEED, Demonstration, demonstration, imitate, quiet, say

from pettingllms_envs import archives_v0
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.environments.archives.world import RELATIONS


# The form of archives whose question need not be read, as each workflow that the study compares.
TASK: Mapping[str, Any] = {"wording": "symbols", "size": 10, "results": 1, "facts": 1, "order": "question"}
WORKFLOWS: tuple[Mapping[str, Any], ...] = (
    {"workflow": "team"},
    {"workflow": "alone", "archive": 0},
    {"workflow": "alone", "archive": 1},
    {"workflow": "cut"},
    {"workflow": "full"},
)
NAME = re.compile(r"\b[ptrg][0-9]+\b")  # people, towns, rivers and guilds of the wording in symbols
RELATION = f" (?:{'|'.join(relation.symbol for relation in RELATIONS)})"
# A line's end, a name, a relation in a passage, a relation in a question.
APART = rf"\n|(?<![A-Za-z0-9])[ptrg][0-9]+(?![A-Za-z0-9])|(?<=[0-9]){RELATION}(?= )|{RELATION}(?=(?:{RELATION})* \?)"
DEMONSTRATIONS, CARELESSNESS, RATE = 12_000, 0.8, 4e-3


def prepare(folder: Path, seed: int) -> Path:
    """The base model of archives: it knows how a reply looks, and seldom which name it needs.

    Args:
        folder: Where it is written, as `base`.
        seed: Of the model and the demonstrations.

    Returns:
        Its folder.
    """
    say("A tiny model learns what replies look like from careless demonstrations")
    base = folder / "base"
    number = DEMONSTRATIONS // len(WORKFLOWS)
    rows = [
        row for form in WORKFLOWS for row in demonstrate(archives_v0.env(**TASK, **form), number=number, seed=seed)
    ]
    random.Random(seed).shuffle(rows)
    tokenizer = make_tokenizer((m["content"] for row in rows for m in (*row["prompt"], *row["completion"])), APART)
    model = make_model(tokenizer, seed=seed)
    imitate(model, tokenizer, rows, base, rate=RATE, seed=seed)
    model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    return base


def demonstrate(env: TextEnv, *, number: int, seed: int, carelessness: float = CARELESSNESS) -> list[Demonstration]:
    """Play on instances of the train split and keep what was shown and what was replied.

    Args:
        env: An environment of archives, in symbols.
        number: How many demonstrations.
        seed: Draws instances and replies.
        carelessness: Probability that a reply names any of the names in its prompt instead of the right one, in
            [0, 1]; the right one may be among them.
    """
    rng = random.Random(f"demonstrations {seed}")
    kept: list[Demonstration] = []
    while len(kept) < number:
        env.reset(seed=FIRST_SEED + rng.randrange(FIRST_SEED))
        while not env.standing():
            shown, reply = env.observe(env.agent_selection), env.oracle()
            if rng.random() < carelessness:
                reply = NAME.sub(rng.choice(sorted(set(NAME.findall(shown["text"])))), reply)
            kept.append(demonstration(shown["system"], shown["text"], reply))
            env.step(reply)
    return kept[:number]


def main() -> None:
    """Read the options and make them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("archives", "plan_path"))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    quiet()
    {"archives": prepare, "plan_path": plan_path.prepare}[options.task](options.output, options.seed)


if __name__ == "__main__":
    main()
