"""Chooses the cheapest of three ways to read sequences in one pass, from their lengths and a table of prices.

    rows            prompts once, attention sequence by sequence: least pairs of query and key where prompts are short
    prompts         prompts once, in attention too, and then every completion beside its prompt
    conversations   the same, and a prompt that goes on from another stands for both: fewest tokens

The choice is a pure function, so that it is the same in all processes that read the same rows, and in a resumed run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pettingllms_trl.update.conversations import Size, Trunk, arrange, num_tokens


Way = Literal["rows", "prompts", "conversations"]
WAYS: tuple[Way, ...] = ("rows", "prompts", "conversations")


@dataclass(frozen=True, slots=True)
class Work:
    """What a pass computes; or what each of it costs, in pairs under a causal kernel, forward and backward.

    Args:
        tokens: That go through the model's layers.
        causal: Pairs of query and key under a causal kernel, which skips half of the square.
        masked: Pairs under a mask, which skips none.
        keys: That are gathered.
    """

    tokens: float
    causal: float
    masked: float
    keys: float

    def cost(self, prices: Work) -> float:
        """In pairs under a causal kernel."""
        return (
            self.tokens * prices.tokens
            + self.causal * prices.causal
            + self.masked * prices.masked
            + self.keys * prices.keys
        )


PRICES: Mapping[str, Work] = {
    "cpu": Work(6.0, 1.0, 1.0, 0.0),
    "cuda": Work(6.0, 1.0, 1.0, 0.0),
}
"""By kind of device; of a token, for each unit of the model's hidden size."""


def prices_of(device: str, hidden_size: int) -> Work:
    """The prices of a model on a kind of device; of one that is not in the table, those of a GPU."""
    prices = PRICES.get(device, PRICES["cuda"])
    return replace(prices, tokens=prices.tokens * hidden_size)


def work(sizes: Sequence[Size], trunks: Sequence[Trunk], way: Way) -> Work:
    """What a pass of a way computes, padding included."""
    tokens = num_tokens(sizes, trunks)
    branches = [row for trunk in trunks for row in trunk.branches]
    longest = max(sizes[row].prompt - 1 + sizes[row].branch for row in branches)
    if way == "rows":
        return Work(tokens, len(sizes) * longest**2 / 2, 0, len(sizes) * longest)
    prompt = max(sizes[trunk.row].prompt - 1 for trunk in trunks)
    masked = len(branches) * longest * max(sizes[row].branch for row in branches)
    return Work(tokens, len(trunks) * prompt**2 / 2, masked, len(trunks) * prompt + len(branches) * longest)


def cheapest(sizes: Sequence[Size], prices: Work, *, among: Sequence[Way] = WAYS) -> tuple[Way, list[Trunk]]:
    """The cheapest way, the first of equals, and how it arranges the sequences.

    Args:
        sizes: Of the sequences of a pass.
        prices: Of the model.
        among: The ways to choose from.
    """
    by_prompt = arrange(sizes, by_conversation=False)
    ways: list[tuple[Way, list[Trunk]]] = [("rows", by_prompt)]
    if any(sizes[trunk.row].prompt > 1 for trunk in by_prompt):  # there is something to share
        ways.append(("prompts", by_prompt))
        if any(len(size.later) > 1 for size in sizes):
            ways.append(("conversations", arrange(sizes, by_conversation=True)))
    ways = [each for each in ways if each[0] in among] or ways[:1]
    return min(ways, key=lambda each: work(sizes, each[1], each[0]).cost(prices))
