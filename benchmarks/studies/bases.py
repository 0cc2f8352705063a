"""Makes what the runs of `teams.yaml` start from: one base model for each table, the same for all methods and seeds.

    python benchmarks/studies/bases.py archives

writes `benchmarks/studies/bases/archives`, which is committed, so that a run can be repeated from the same weights.
A model has imitated equally many careless replies of every form that a table compares: it knows how replies look and,
of `archives`, has seen often enough which passage a question means to find it above chance, but seldom a whole episode
without a mistake. `--careful` imitates right replies instead, and prints how many of the held-out ones it then gives:
whether the model *can* learn the task at all.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples/quickstart"))

import plan_path
import torch
from tiny import make_tokenizer
from torch.nn.functional import cross_entropy
from training import FIRST_SEED, quiet
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from pettingllms_envs import archives_v0, note_taking_v0, plan_path_v0
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.environments.archives.world import RELATIONS


ARCHIVES: Mapping[str, Mapping[str, Any]] = {
    "archives": {"facts": 1, "hops": 2, "size": 10, "results": 1, "order": "question"},
    "reading": {"facts": 2, "hops": 3, "size": 8, "results": 2, "order": "seed"},
}
"""The forms of archives that the study has, in symbols: the one that need not be read, and the one that must be."""
NOTES = {"readings": 4, "values": 10, "digits": 2}

NAME = re.compile(r"\b[ptrg][0-9]+\b")  # people, towns, rivers and guilds of the wording in symbols
RELATION = f" (?:{'|'.join(relation.symbol for relation in RELATIONS)})"
# A line's end, a name with the space before it, a relation in a passage, in a question and in a message. So a passage
# is three tokens, and what stands before a name is what it is a fact about.
ARCHIVES_APART = (
    rf"\n| ?(?<![A-Za-z0-9])[ptrg][0-9]+(?![A-Za-z0-9])|(?<=[0-9]){RELATION}(?= )|{RELATION}(?=(?:{RELATION})* \?)"
    rf"|(?<=Say:){RELATION}"
)
Row = tuple[str, str, str]  # system prompt, user prompt, reply
Imitated = Callable[[random.Random, str, str, bool], str]
"""From a prompt, the right reply, and whether to be careless: the reply that is imitated."""
HELD_OUT = 2
"""Seed of demonstrations that no model has imitated."""
EPISODES = 200
WORKFLOWS = ("team", "routed", "full")


@dataclass(frozen=True)
class Table:
    """What the base model of a table imitates.

    Args:
        forms: What is played to see what it can do.
        rows: Makes demonstrations from their number, their carelessness and a seed.
        carelessness: Probability of a careless reply, in [0, 1].
        demonstrations: How many.
        apart: What stands alone in the tokenizer, see `make_tokenizer`; None for its default.
    """

    forms: Mapping[str, Callable[[], TextEnv]]
    rows: Callable[[int, float, int], Iterator[Row]]
    carelessness: float
    demonstrations: int
    apart: str | None = None


def of_archives(rng: random.Random, prompt: str, reply: str, is_careless: bool) -> str:
    """A message says the relation with the name, as the passage has it, if there is one; a careless reply is about any
    name of the prompt, the right one perhaps."""
    kind, name = reply.split(": ")
    if is_careless:
        name = rng.choice(sorted(set(NAME.findall(prompt))))
    asked = re.search(r"Question: \S+(.*) \?", prompt)
    assert asked is not None, "every prompt has the question"
    for line in prompt.splitlines():
        words = line.split()
        if kind == "Say" and len(words) == 3 and words[2] == name and (is_careless or words[1] in asked[1].split()):
            return f"Say: {words[1]} {name}"
    return f"{kind}: {name}"


def of_digits(rng: random.Random, prompt: str, reply: str, is_careless: bool) -> str:
    """A careless reply has as many digits, any of the prompt's."""
    digits = re.findall("[0-9]", prompt) if is_careless else ()
    return re.sub("[0-9]", lambda found: rng.choice(digits) if digits else found[0], reply)


def played(
    forms: Sequence[Callable[[], TextEnv]],
    imitated: Imitated,
    easy: tuple[str, ...],
    number: int,
    carelessness: float,
    seed: int,
) -> Iterator[Row]:
    """Play right replies, form by form, and yield what is imitated in their place.

    Of replies that begin with a word of `easy`, which are learned first, one in four is kept.
    """
    rng = random.Random(f"demonstrations {seed}")
    envs = [make() for make in forms]
    kept = 0
    while True:
        for env in envs:
            env.reset(seed=FIRST_SEED + rng.randrange(10 * FIRST_SEED))
            while not env.standing():
                shown, right = env.observe(env.agent_selection), env.oracle()
                if rng.random() < (0.25 if right.startswith(easy) else 1.0):
                    is_careless = rng.random() < carelessness
                    yield shown["system"], shown["text"], imitated(rng, shown["text"], right, is_careless)
                    kept += 1
                    if kept == number:
                        return
                env.step(right)


class Imitation:
    """A tiny model that learns to give the replies of rows.

    Args:
        tokenizer: Fitted to the rows.
        seed: Of the model's weights.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, *, seed: int) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.tokenizer = tokenizer
        self.model = Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=96,
                intermediate_size=288,
                num_hidden_layers=2,
                num_attention_heads=6,
                num_key_value_heads=6,
                head_dim=16,
                max_position_embeddings=1024,
                initializer_range=0.1,
                tie_word_embeddings=True,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
                bos_token_id=None,
            )
        )
        self._encoded: dict[str, list[int]] = {}

    def learn(self, rows: Sequence[Row], *, rate: float = 1e-3, batch: int = 64, warm_up: int = 100) -> None:
        """One pass over the rows: cross-entropy of the replies' tokens."""
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warm_up))
        for first in range(0, len(rows), batch):
            hidden, labels = self._hidden(rows[first : first + batch])
            loss = cross_entropy(self.model.lm_head(hidden), labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if first // batch % 200 == 0:
                print(
                    f"{first:>9,} of {len(rows):,}: loss {loss.item():.3f}, {time.process_time():.0f} CPU s",
                    flush=True,
                )

    def right(self, rows: Sequence[Row]) -> list[bool]:
        """Whether the model's most likely reply to each prompt is the row's."""
        found = []
        with torch.no_grad():
            for first in range(0, len(rows), 100):
                part = rows[first : first + 100]
                hidden, labels = self._hidden(part)
                is_right = (self.model.lm_head(hidden).argmax(-1) == labels).tolist()
                for _, _, reply in part:
                    length = len(self._tokens(f"{reply}<|end|>"))
                    found.append(all(is_right[:length]))
                    del is_right[:length]
        return found

    def reply(self, system: str, prompt: str, length: int = 24) -> str:
        """The model's most likely reply."""
        ids = self._tokens(f"<|system|>{system}<|end|>")
        ids = ids + self.tokenizer.encode(f"<|user|>{prompt}<|end|><|assistant|>", add_special_tokens=False)
        first = len(ids)
        with torch.no_grad():
            while len(ids) < first + length:
                token = int(self.model(torch.tensor([ids])).logits[0, -1].argmax())
                if token == self.tokenizer.eos_token_id:
                    break
                ids = [*ids, token]
        text = self.tokenizer.decode(ids[first:])
        assert isinstance(text, str), "of one list of tokens"
        return text

    def _hidden(self, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
        """The last hidden states that predict the replies' tokens, (N, D), and these tokens, (N)."""
        encoded = []
        for system, prompt, reply in rows:
            own = self.tokenizer.encode(f"<|user|>{prompt}<|end|><|assistant|>", add_special_tokens=False)
            encoded.append((self._tokens(f"<|system|>{system}<|end|>") + own, self._tokens(f"{reply}<|end|>")))
        length = max(len(prompt) + len(reply) for prompt, reply in encoded)
        ids = torch.full((len(rows), length), self.tokenizer.pad_token_id)
        labels = torch.full((len(rows), length), -100)
        for i, (prompt, reply) in enumerate(encoded):
            ids[i, : len(prompt) + len(reply)] = torch.tensor(prompt + reply)
            labels[i, len(prompt) : len(prompt) + len(reply)] = torch.tensor(reply)
        is_reply = labels[:, 1:] != -100
        states = self.model.model(ids, attention_mask=(ids != self.tokenizer.pad_token_id).long()).last_hidden_state
        return states[:, :-1][is_reply], labels[:, 1:][is_reply]

    def _tokens(self, text: str) -> list[int]:
        """Of texts that come again and again."""
        if text not in self._encoded:
            self._encoded[text] = self.tokenizer.encode(text, add_special_tokens=False)
        return self._encoded[text]


def walked(number: int, carelessness: float, seed: int) -> Iterator[Row]:
    """Demonstrations of Plan-Path: half of the team's, half of one agent's."""
    for workflow in (plan_path.DraftPlan(plan_path.task()), plan_path.Single(plan_path.task())):
        for row in plan_path.demonstrate(workflow, number=number // 2, carelessness=carelessness, seed=seed):
            system, user = (message["content"] for message in row["prompt"])
            yield system, user, row["completion"][0]["content"]


def of_archive(form: str) -> dict[str, Callable[[], TextEnv]]:
    """The team, and one agent that sees both archives, told which one is searched or not."""
    return {
        f"{form}, {workflow}": partial(archives_v0.env, wording="symbols", workflow=workflow, **ARCHIVES[form])
        for workflow in WORKFLOWS
    }


READING, COPYING = of_archive("reading"), of_archive("archives")
NOTES_FORMS = {
    workflow: partial(note_taking_v0.env, workflow=workflow, **NOTES) for workflow in ("team", "alone", "full")
}
GRID_FORMS = {
    workflow: partial(plan_path_v0.env, workflow=workflow, **plan_path.TASK) for workflow in ("draft_plan", "single")
}
# The form that must be read takes more demonstrations.
ARCHIVES_PLAYED = [*3 * [*READING.values()], *COPYING.values()]
TABLES = {
    "archives": Table(
        READING | COPYING,
        partial(played, ARCHIVES_PLAYED, of_archives, ("Search", "Answer")),
        carelessness=0.5,
        demonstrations=450_000,
        apart=ARCHIVES_APART,
    ),
    "note_taking": Table(
        NOTES_FORMS,
        partial(played, [*NOTES_FORMS.values()], of_digits, ("Notes",)),
        carelessness=0.5,
        demonstrations=200_000,
    ),
    "plan_path": Table(GRID_FORMS, walked, carelessness=0.5, demonstrations=40_000),
}


def make(name: str, folder: Path, number: int | None, is_careful: bool, seed: int) -> None:
    """Make the base model of a table, in `folder`."""
    table = TABLES[name]
    carelessness = 0.0 if is_careful else table.carelessness
    rows = list(table.rows(number or table.demonstrations, carelessness, seed))
    random.Random(seed).shuffle(rows)
    own = {} if table.apart is None else {"apart": table.apart}
    imitation = Imitation(make_tokenizer((text for row in rows[:3000] for text in row), **own), seed=seed)
    imitation.learn(rows)
    print(f"{len(rows):,} demonstrations, {imitation.model.num_parameters():,} parameters")
    for form, make_env in table.forms.items():
        print(f"{form}: {solved(imitation, make_env(), EPISODES)} of {EPISODES} held-out episodes succeed")
    for kind, right in by_kind(imitation, list(table.rows(1200, 0.0, HELD_OUT))).items():
        print(f"{kind}: {sum(right)} of {len(right)} held-out replies are right")
    imitation.model.half().save_pretrained(folder)  # half the size; runs load it as float32
    imitation.tokenizer.save_pretrained(folder)


def solved(imitation: Imitation, env: TextEnv, number: int) -> int:
    """How many episodes of the test split succeed with the model's most likely replies."""
    found = 0
    for seed in range(number):
        env.reset(seed=seed, options={"split": "test"})
        while not env.standing():
            shown = env.observe(env.agent_selection)
            env.step(imitation.reply(shown["system"], shown["text"]))
        found += env.standing() == "solved"
    return found


def by_kind(imitation: Imitation, rows: Sequence[Row]) -> Mapping[str, list[bool]]:
    """Which replies are right, by their first word."""
    found: dict[str, list[bool]] = {}
    for (_, _, reply), right in zip(rows, imitation.right(rows), strict=True):
        found.setdefault(reply.split(":")[0], []).append(right)
    return found


def main() -> None:
    """Read the options and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("archives", "note_taking", "plan_path"))
    parser.add_argument("--output", type=Path, help="folder that it is written to (benchmarks/studies/bases/TABLE)")
    parser.add_argument("--demonstrations", type=int, help="how many (that of the study)")
    parser.add_argument("--careful", action="store_true", help="imitate right replies, and print how many are learned")
    parser.add_argument("--seed", type=int, default=1, help="of the model and the demonstrations (1)")
    options = parser.parse_args()
    quiet()
    folder = options.output or Path(__file__).with_name("bases") / options.table
    make(options.table, folder, options.demonstrations, options.careful, options.seed)


if __name__ == "__main__":
    main()
