"""Chooses the cheapest of three ways to read sequences in one pass, from their lengths and the price of a token.

    rows            prompts once, attention sequence by sequence: least pairs of query and key where prompts are short
    prompts         prompts once, in attention too, and then every completion beside its prompt
    conversations   the same, and a prompt that goes on from another stands for both: fewest tokens

The choice is a pure function, so that it is the same in all processes that read the same rows, and in a resumed run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from pettingllms_trl.update.packing.conversations import Size, Trunk, arrange, num_tokens


Way = Literal["rows", "prompts", "conversations"]
WAYS: tuple[Way, ...] = ("rows", "prompts", "conversations")
PROMPT, LATER = attrgetter("prompt"), attrgetter("later")
"""Fields of a size. Where every `later` is empty there are no conversations."""
TOKEN_PRICES: Mapping[str, float] = {"cpu": 8.0, "cuda": 6.0}
"""What a token costs in everything but attention, by kind of device: in pairs of query and key, for each unit of the
model's hidden size. Of a CPU it was measured (2 to 10 by model, `benchmarks/bench_update.py --fit`); of a GPU it is
the ratio of operations."""
DEAR = math.inf
"""The price of a token where attention is one kernel, which computes no other pairs than there are: what reads the
fewest tokens costs least. Layers without it, as with a window, have the fewest pairs of what reads as many tokens."""
GATHERED = 64
"""What the copies of a sequence's keys and values cost where attention goes sequence by sequence: as if each of its
tokens attended to half as many more. Measured on a CPU, as the prices."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a pass computes, padding included.

    Args:
        tokens: That go through the model's layers.
        pairs: Of query and key: half of the square under a causal kernel, and what copies cost; all under a mask.
    """

    tokens: int
    pairs: float

    def cost(self, token_price: float) -> float:
        """In pairs of query and key; in tokens, if they are all that counts."""
        return self.tokens if token_price == DEAR else self.tokens * token_price + self.pairs


def token_price_of(device: str, hidden_size: int) -> float:
    """What a token costs, in pairs of query and key. A device that is not in the table is taken for a GPU."""
    return TOKEN_PRICES.get(device, TOKEN_PRICES["cuda"]) * hidden_size


def work(sizes: Sequence[Size], trunks: Sequence[Trunk], way: Way) -> Work:
    """What a pass computes that reads these sequences in this way."""
    tokens = num_tokens(sizes, trunks)
    branches = [sizes[row] for trunk in trunks for row in trunk.branches]
    longest = max(size.prompt - 1 + size.branch for size in branches)
    if way == "rows":
        return Work(tokens, len(sizes) * longest * (longest + GATHERED) / 2)
    prompt = max(sizes[trunk.row].prompt - 1 for trunk in trunks)
    own = max(size.branch for size in branches)
    return Work(tokens, len(trunks) * prompt**2 / 2 + len(branches) * own * longest)


def cheapest(sizes: Sequence[Size], token_price: float, *, among: Sequence[Way] = WAYS) -> tuple[Way, list[Trunk]]:
    """The cheapest way, the first of equals, and how it arranges the sequences.

    Args:
        token_price: Of the model and the device, in pairs of query and key.
    """
    by_prompt = arrange(sizes, by_conversation=False)
    if max(map(PROMPT, sizes)) == 1:  # there is nothing to share
        return "rows", by_prompt
    arranged: dict[Way, list[Trunk]] = {"rows": by_prompt, "prompts": by_prompt}
    if any(map(LATER, sizes)):
        arranged["conversations"] = arrange(sizes, by_conversation=True)
    ways = [way for way in arranged if way in among] or WAYS[:1]
    found = {way: work(sizes, arranged[way], way) for way in ways}
    way = min(ways, key=lambda way: (found[way].cost(token_price), found[way].pairs))
    return way, arranged[way]
