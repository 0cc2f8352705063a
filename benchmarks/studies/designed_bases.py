"""Makes what the runs of `designed.yaml` start from: a model for all methods and seeds.

    python benchmarks/studies/designed_bases.py archives --work FOLDER

writes `benchmarks/studies/bases/designed_archives`, which is committed, so that a run can be repeated from the same
weights. On the processor that they were made on, an AMD EPYC, it gives both committed models again, byte for byte, in
130 CPU seconds for archives and 70 for Plan-Path.

A model of `bases.py`, which knows the task's replies and gives careless ones, gets a token for each line that its
prompts repeat and for each part of a design. Then it is warmed up by `pettingllms sft`: the designer's replies are
random readable designs, to its prompt with `disguised` and without, and the members' those of the oracle, where they
can know them. In archives members are also those of the fixed teams and of one agent, alone and checking itself.
"""

from __future__ import annotations

import argparse
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import yaml
from designed_envs import ALONE, TEAMS
from transformers import AddedToken, AutoModelForCausalLM, AutoTokenizer

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.registry import make
from pettingllms_trl.cli.sft import prepare as prepare_sft
from pettingllms_trl.sft.demonstrations import FIRST_SEED, Demonstration, by_oracle, write


HERE = Path(__file__).parent
PARTS = re.compile(
    r'\{"members": \[|\{"job": "[^"]*", |"reads": \[[0-9, ]*\], |"tools": \[[^\]]*\]\}|\], "rounds": 1\}'
)
VARYING = re.compile(
    r"[ptrg][0-9]|^[.#@G] |^You are at row|^Free moves|^Question|^(> )?\w*$|^Answer: \w+$|Moves: [UDLR]"
)
"""Lines that say what a question is about: they are read word by word."""
NAME = re.compile(r"\b[ptrg][0-9]\b")
FACT = re.compile(r"^(?:[ptrg][0-9]|> Say:) (\w+) ([ptrg][0-9])$", re.M)
"""What a tool printed, or a member told."""
EPISODES: dict[str, list[tuple[int, dict[str, Any]]]] = {
    "archives": [
        (6000, {"workflow": "designed"}),
        (6000, {"workflow": "designed", "disguised": True}),
        *((400, {"workflow": "fixed", "team": each}) for each in TEAMS["archives"] if each not in ALONE),
        *((400, {"workflow": "fixed", "team": each, "member_tools": 2}) for each in ALONE),
    ],
    "plan_path": [(2000, {"workflow": "designed"}), (2000, {"workflow": "designed", "disguised": True})],
}
"""Of the warm-up: how many, and of which form. Random teams are seldom right, so fixed ones are shown, too."""
EASY = 0.25
"""Share that is kept of what is learned first in archives: designs, and replies of members without a fact."""


def texts_of(name: str, settings: dict[str, Any], episodes: int) -> Iterator[str]:
    """What agents are shown, and what they reply, in episodes of random designs."""
    env = make(f"{HERE / 'designed_envs.py'}:{name}", workflow="designed", **settings)
    for seed in range(episodes):
        env.reset(seed=FIRST_SEED + seed)
        while env.agents and not env.terminations[env.agent_selection] and not env.truncations[env.agent_selection]:
            shown, agent = env.observe(env.agent_selection), env.agent_selection
            reply = env.unwrapped.bot("random_design") if agent == "designer_0" else env.oracle()
            yield from (shown["system"], shown["text"], reply)
            env.step(reply)


def spelled(env: TextEnv, oracle: Callable[[], str]) -> str:
    """The oracle's reply with the fact that it is taken from, as a tool printed it, in front: that is learned sooner.

    `t3` becomes `Say: mouth t3`, and before `Answer: t3`, or a call with `t3`, comes that line.
    """
    text, reply = env.observe(env.agent_selection)["text"], oracle()
    asked, name = text.partition("\n")[0].split(), NAME.search(reply)
    for relation, found in FACT.findall(text):
        if name is not None and found == name[0] and relation in asked:
            fact = f"Say: {relation} {found}"
            return fact if reply == found else f"{fact}\n{reply}"
    return reply


def demonstrated(name: str, settings: dict[str, Any], share: float) -> Iterator[Demonstration]:
    """Of random designs, and of one agent: what the designer and the oracle reply, in a random order.

    Left out are members' replies that name what their prompt does not say, for they are guesses.
    """
    rows, rng = [], random.Random(1)
    for episodes, own in EPISODES[name]:
        env = make(f"{HERE / 'designed_envs.py'}:{name}", **settings, **own)
        vars(env.unwrapped)["oracle"] = partial(spelled, env.unwrapped, env.unwrapped.oracle)  # others read it, too
        seeds = range(FIRST_SEED, FIRST_SEED + round(episodes * share))
        for each in by_oracle(env, seeds, bots={"designer": "random_design"}):
            text = each.prompt.messages[-1]["content"]
            is_easy = name == "archives" and (each.role == "designer" or not FACT.search(text))
            is_known = each.role == "designer" or set(NAME.findall(each.reply)) <= set(NAME.findall(text))
            if is_known and rng.random() < (EASY if is_easy else 1.0):
                rows.append(each)
    rng.shuffle(rows)
    yield from rows


def new_tokens(texts: list[str]) -> list[str]:
    """Parts of designs, and lines of several words that come in at least one text of a thousand."""
    parts = sorted({part for text in texts for part in PARTS.findall(text)})
    lines = Counter(line for text in texts if not text.startswith('{"members') for line in text.splitlines())
    often = [line for line, number in lines.items() if number * 1000 >= len(texts)]
    return parts + sorted(line for line in often if len(line) > 2 and not VARYING.search(line))


def start(name: str, settings: dict[str, Any], folder: Path) -> None:
    """The model of `bases.py` with further tokens, in `folder`."""
    tokenizer = AutoTokenizer.from_pretrained(HERE / "bases" / name)
    model = AutoModelForCausalLM.from_pretrained(HERE / "bases" / name, dtype=torch.float32)
    added = new_tokens([*texts_of(name, settings, 300)])
    before = len(tokenizer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added])
    torch.manual_seed(1)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[before:].normal_(0.0, 0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"{len(added)} further tokens, {model.num_parameters():,} parameters")


def keep(warm: Path, folder: Path) -> None:
    """The model at half its size; runs load it as float32."""
    AutoModelForCausalLM.from_pretrained(warm, dtype=torch.float16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(warm).save_pretrained(folder)


def main() -> None:
    """Read the options and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", choices=[*EPISODES])
    parser.add_argument("--work", type=Path, required=True, help="folder of what is made on the way")
    parser.add_argument("--output", type=Path, help="folder that it is written to (bases/designed_ENVIRONMENT)")
    parser.add_argument("--episodes", type=float, default=1.0, help="of the warm-up, as a share of the study's")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate of the warm-up")
    options = parser.parse_args()
    name = options.environment
    torch.set_num_threads(1)
    study = yaml.safe_load(HERE.joinpath("designed.yaml").read_text("utf-8"))
    settings = dict(study["environments"][name]["env_kwargs"])
    start(name, settings, options.work / "start")
    file = options.work / "demonstrations.jsonl"
    print(f"{write(file, demonstrated(name, settings, options.episodes))} replies to imitate")
    fields = {
        "model_name_or_path": str(options.work / "start"),
        "env_id": f"{HERE / 'designed_envs.py'}:{name}",
        "env_kwargs": {"workflow": "designed", **settings},
        "source": str(file),
        "policies": "shared",
        "output_dir": str(options.work / "warm"),
        "learning_rate": options.rate,
        "per_device_train_batch_size": 32,
        "num_train_epochs": 1,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 20,
        "logging_steps": 50,
        "seed": 1,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dtype": "float32",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    config = options.work / "sft.yaml"
    config.write_text(yaml.safe_dump(fields), "utf-8")
    prepare_sft(["--config", str(config)])()
    keep(options.work / "warm", options.output or HERE / "bases" / f"designed_{name}")


if __name__ == "__main__":
    main()
