"""Beside `bench_update.py`: the update of a whole conversation, each turn of which goes on from the one before it.

Compared in one process, in turns: TRL's rows in micro-batches of 8; each prompt once for its candidates; and the whole
conversation once. All three compute the loss and gradients of the same rows, in TRL's `_compute_loss`.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pettingllms_trl.update import packed_logprobs
from pettingllms_trl.update.assignment import assign_by_tokens
from pettingllms_trl.update.packed_attention import attending
from pettingllms_trl.update.packing.conversations import Size, arrange, num_tokens, sizes_of
from pettingllms_trl.update.packing.cost import WAYS, Way, Work, cheapest, token_price_of, work
from pettingllms_trl.update.packing.pack import pack


ROWS = 8
"""Of a micro-batch of TRL's."""
SIDES: Mapping[str, Way | None] = {"trl": None, "prompts": "prompts", "conversations": "conversations"}
"""Who is compared, and how their rows are packed."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A conversation: its number of turns; tokens of the first prompt, of what is observed between two turns, and of a
    reply; candidates of each turn; and whether a prompt holds the turns before it, or stands for itself."""

    turns: int
    prompt: int
    observation: int
    reply: int
    candidates: int
    has_history: bool = True

    @classmethod
    def parse(cls, text: str) -> Tree:
        """`"6x512x200x64x8"`."""
        return cls(*map(int, text.split("x")))

    @property
    def text(self) -> str:
        return f"{self.turns}x{self.prompt}x{self.observation}x{self.reply}x{self.candidates}"

    def __str__(self) -> str:
        history = "" if self.has_history else " without history"
        return f"T={self.turns} P={self.prompt} O={self.observation} C={self.reply} K={self.candidates}{history}"

    def rows(self, vocabulary: int, seed: int = 1) -> list[tuple[list[int], list[int]]]:
        """Prompt and completion of each row. The first candidate of a turn is played on."""
        draw = random.Random(seed)

        def tokens(number: int) -> list[int]:
            return [draw.randrange(2, vocabulary) for _ in range(number)]

        rows, prompt = [], tokens(self.prompt)
        for _ in range(self.turns):
            replies = [tokens(self.reply) for _ in range(self.candidates)]
            rows += [(prompt, reply) for reply in replies]
            longer = [*prompt, *replies[0], *tokens(self.observation)]
            prompt = longer if self.has_history else tokens(self.prompt)
        return rows


def batch_of(rows: Sequence[tuple[list[int], list[int]]], num_items: int, device: str) -> dict[str, Any]:
    """TRL's batch of these rows, prompts padded on the left, with all that either trainer reads."""
    prompt, width = (max(len(row[side]) for row in rows) for side in (0, 1))
    filled = torch.zeros(2, len(rows), prompt + width, dtype=torch.long)
    for row, (before, after) in enumerate(rows):
        place = slice(prompt - len(before), prompt + len(after))
        filled[0, row, place] = torch.tensor(before + after)
        filled[1, row, place] = 1
    ids, mask = filled.to(device)
    return {
        "prompt_ids": ids[:, :prompt],
        "prompt_mask": mask[:, :prompt],
        "completion_ids": ids[:, prompt:],
        "completion_mask": mask[:, prompt:],
        "advantages": torch.linspace(-1, 1, len(rows), device=device),
        "num_items_in_batch": torch.tensor(num_items, device=device),
        "policy": "base",
        "loss_scale": 1.0,
        "entropy_scale": 1.0,
        "num_tokens": int(mask[:, prompt:].sum()),
    }


def batches_of(tree: Tree, vocabulary: int, device: str, rows_each: int) -> list[dict[str, Any]]:
    """All rows in batches of so many, with the advantages that they have in one batch."""
    rows = tree.rows(vocabulary)
    num_items, advantages = sum(len(reply) for _, reply in rows), torch.linspace(-1, 1, len(rows), device=device)
    batches = []
    for first in range(0, len(rows), rows_each):
        batch = batch_of(rows[first : first + rows_each], num_items, device)
        batches.append({**batch, "advantages": advantages[first : first + rows_each]})
    return batches


@contextmanager
def packed_as(way: Way | None) -> Iterator[None]:
    """Pack every pass in this way inside the block. `None`: in the cheapest."""
    with patch.object(packed_logprobs, "pack", partial(pack, way=way)):
        yield


@dataclass(frozen=True, slots=True)
class Amount:
    """What is computed: tokens, padding included; pairs of query and key, without; and tokens that are scored."""

    tokens: int
    pairs: float
    scored: int


def amounts_of(tree: Tree) -> dict[str, Amount]:
    """Of TRL's rows, and of both ways to pack."""
    rows = tree.rows(1000)
    sizes = sizes_of(*zip(*rows, strict=True))
    batches = [sizes[first : first + ROWS] for first in range(0, len(sizes), ROWS)]
    widths = [max(size.prompt for size in batch) + tree.reply for batch in batches]
    scored = len(sizes) * tree.reply
    of_trl = sum(len(batch) * width for batch, width in zip(batches, widths, strict=True))
    pairs = sum(len(batch) * width**2 / 2 for batch, width in zip(batches, widths, strict=True))
    return {"trl": Amount(of_trl, pairs, scored)} | {
        way: Amount(num_tokens(sizes, trunks), _pairs(sizes, trunks), scored)
        for way, trunks in (
            ("prompts", arrange(sizes, by_conversation=False)),
            ("conversations", arrange(sizes, by_conversation=True)),
        )
    }


def _pairs(sizes: Sequence[Size], trunks: Sequence[Any]) -> float:
    branches = [sizes[row] for trunk in trunks for row in trunk.branches]
    own = sum((size.prompt - 1) * size.branch + size.branch**2 / 2 for size in branches)
    return own + sum((sizes[trunk.row].prompt - 1) ** 2 / 2 for trunk in trunks)


def cost_of_updates(tree: Tree, token_price: float, number: int = 16) -> dict[int, float]:
    """How many times the tokens of one update a generation of `number` conversations reads in several."""
    rows = [row for seed in range(number) for row in tree.rows(1000, seed)]
    sizes = sizes_of(*zip(*rows, strict=True))
    order = random.Random(0).sample(range(len(rows)), len(rows))
    read = {
        updates: assign_by_tokens(
            sizes,
            order,
            budget=ROWS * max(size.prompt + size.completion for size in sizes),
            token_price=token_price,
            num_steps=updates,
            num_updates=updates,
        ).num_tokens_read
        for updates in (1, 2, 4)
    }
    return {updates: tokens / read[1] for updates, tokens in read.items()}


# ---- The price of a token -------------------------------------------------------------------------------------------


def shapes(number: int, seed: int, most: int) -> list[list[Tree]]:
    """Passes of one to three conversations or sequences of self-contained prompts, of any lengths, and of at most so
    many tokens with each prompt once."""
    draw, found = random.Random(seed), list[list[Tree]]()

    def between(least: int, most: int) -> int:
        return round(least * (most / least) ** draw.random())

    while len(found) < number:
        trees = [
            Tree(
                draw.randint(1, 6),
                between(8, 600),
                between(4, 250),
                between(8, 600),
                draw.choice([2, 4, 8]),
                has_history=draw.random() < 0.5,
            )
            for _ in range(draw.randint(1, 3))
        ]
        if most / 10 < sum(amounts_of(tree)["prompts"].tokens for tree in trees) < most:
            found.append(trees)
    return found


def seconds_of_ways(
    model: nn.Module, vocabulary: int, trees: Sequence[Tree], rounds: int, now: Callable[[], float]
) -> dict[Way, float]:
    """Least seconds of a forward and backward pass in each way that there is."""
    rows = [row for seed, tree in enumerate(trees) for row in tree.rows(vocabulary, seed)]
    batch = batch_of(rows, 1, str(next(model.parameters()).device))
    ids, mask = (torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], dim=1) for name in ("ids", "mask"))
    seconds: dict[Way, list[float]] = {way: [] for way in works_of(trees)}
    for _ in range(rounds):
        for way in seconds:
            began = now()
            packed = pack(ids, mask, batch["completion_ids"].size(1), way=way)
            with attending(model):
                found = model(**packed.inputs)
                packed.of_completions(found.log_probs).sum().backward()
            seconds[way].append(now() - began)
    return {way: min(each) for way, each in seconds.items()}


def works_of(trees: Sequence[Tree]) -> dict[Way, Work]:
    """What each way computes; only where prompts go on from others there are conversations."""
    rows = [row for seed, tree in enumerate(trees) for row in tree.rows(1000, seed)]
    sizes = sizes_of(*zip(*rows, strict=True))
    ways = WAYS if any(size.later for size in sizes) else WAYS[:2]
    return {way: work(sizes, arrange(sizes, by_conversation=way == "conversations"), way) for way in ways}


def fitted(measured: Sequence[tuple[int, Mapping[Way, Work], Mapping[Way, float]]]) -> float:
    """The price of a token, in pairs for each unit of the hidden size, that explains the differences between the ways.

    Args:
        measured: Of each pass the model's hidden size, and each way's work and seconds.
    """
    lines: list[NDArray[np.float64]] = []
    for hidden_size, works, seconds in measured:
        own = np.array(
            [[works[way].tokens * hidden_size**2, works[way].pairs * hidden_size, seconds[way]] for way in seconds]
        )
        lines += [*((own - own.mean(axis=0)) / statistics.fmean(seconds.values()))]
    table = np.array(lines)
    (token, pair), *_ = np.linalg.lstsq(table[:, :2], table[:, 2], rcond=None)
    return float(token / pair)


def fit(
    model: Any, of_model: Mapping[str, int], number: int, rounds: int, now: Callable[[], float], *, seed: int = 1
) -> None:
    """Print how much slower than the fastest each way is, and which the trainer takes; and the price that fits."""
    hidden_size, device = of_model["hidden_size"], next(model.parameters()).device.type
    measured, slower, fastest = [], [], Counter[Way]()
    seconds_of_ways(model, of_model["vocab_size"], [Tree(2, 20, 5, 5, 2)], 1, now)  # what is done once
    for trees in shapes(number, seed=seed, most=1500 if hidden_size > 96 else 3500):
        seconds = seconds_of_ways(model, of_model["vocab_size"], trees, rounds, now)
        measured.append((hidden_size, works_of(trees), seconds))
        own, best = chosen(trees, hidden_size, device), min(seconds.values())
        slower.append(seconds[own] / best)
        fastest[min(seconds, key=seconds.__getitem__)] += 1
        times = ", ".join(f"{way} {each / best:.2f}" for way, each in seconds.items())
        print(f"{times}; taken: {own}, {slower[-1]:.2f}   {'; '.join(map(str, trees))}", flush=True)
    print("fastest: " + ", ".join(f"{way} {number}" for way, number in fastest.items()))
    print(f"taken: at most {max(slower):.2f} times the seconds of the fastest; a token costs {fitted(measured):.1f}")


def chosen(trees: Sequence[Tree], hidden_size: int, device: str) -> Way:
    """The way that the trainer takes."""
    rows = [row for seed, tree in enumerate(trees) for row in tree.rows(1000, seed)]
    return cheapest(sizes_of(*zip(*rows, strict=True)), token_price_of(device, hidden_size))[0]
