"""Our own designs: seven families in four levels, drawn by a seed, divided into splits by their structure.

No structure is in two splits. Truth tables that differ by negated or permuted inputs, or a negated output, have one;
so have multiplexers of permuted inputs, and state machines that differ by the names of their states.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

from pettingllms_envs.core import SPLITS
from pettingllms_envs.environments.verilog.combinational import adder, mux, table, unit
from pettingllms_envs.environments.verilog.designs import Design
from pettingllms_envs.environments.verilog.sequential import counter, machine, shifter
from pettingllms_envs.instances import seeded


LEVELS = (1, 2, 3, 4)
FAMILIES: dict[str, Callable[[random.Random, int], Design]] = {
    each.__name__: each for each in (table, adder, mux, unit, machine, counter, shifter)
}


def split_of(design: Design) -> str:
    """The split of a design's structure: six of ten train, two validate, two test."""
    place = int(hashlib.sha256(design.structure.encode()).hexdigest(), 16) % 10
    return SPLITS[0] if place < 6 else SPLITS[1] if place < 8 else SPLITS[2]


def draw(seed: int, split: str, level: int | None = None, family: str | None = None) -> Design:
    """A design of a split, the same in every process."""
    rng = seeded("verilog", "v0", split, level, family, seed)
    while True:
        drawn = FAMILIES[family or rng.choice([*FAMILIES])](rng, level or rng.choice(LEVELS))
        if split_of(drawn) == split:
            return drawn
