"""The classes of laws: y of two quantities a and b and a switch k, where another formula holds above a threshold.

A law is c x + d up to k = t and c z + d above; x and z are products or quotients of a and b. The meter shows whole
numbers from 0 to 9: y rounded down, and 9 if it is more. So a reading tells little, and which one tells most depends
on those before: a threshold of S positions takes log2(S) experiments one after the other, and S - 1 if all are chosen
at once.
"""

from __future__ import annotations

import itertools
import math
import re
from functools import cache
from typing import NamedTuple

import numpy as np

from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.laws.space import Space, space_of


TERMS = {"a": (1, 0), "b": (0, 1), "ab": (1, 1), "a/b": (1, -1), "b/a": (-1, 1)}
"""What laws are made of: the exponents of a and b."""
MOST_SHOWN = 9
"""The greatest number that the meter shows."""

_LAW = re.compile(r"c=(\d) d=(\d) t=(\d{1,3}) x=(a|b|ab|a/b|b/a) z=(a|b|ab|a/b|b/a)", re.I | re.A)
_TRY = re.compile(r"a=(\d) b=(\d) k=(\d{1,3})", re.I | re.A)


class Law(NamedTuple):
    """The law y = c x + d up to k = t, and c z + d above."""

    c: int
    d: int
    t: int
    x: str
    z: str


class Class(NamedTuple):
    """A class of laws, and the experiments with them.

    Args:
        factors: Values of c.
        offsets: Values of d.
        terms: What x and z can be.
        scale: k goes from 1 to it, and t to one less.
        values: Values of a and of b.
        budget: Experiments of an episode, as many as the greedy tree needs at most.
    """

    factors: tuple[int, ...]
    offsets: tuple[int, ...]
    terms: tuple[str, ...]
    scale: int
    values: tuple[int, ...]
    budget: int

    @property
    def unplanned(self) -> float:
        """The least share of the bits that experiments leave in expectation, if all are chosen at the start.

        Let everything but t be known. n experiments have n values of k, which divide the T thresholds into n + 1 parts
        at most; where x and z differ, as in a share p of the laws, log2(T / (n + 1)) bits or more are left of t.
        """
        plain, pairs = len(self.terms), len(self.terms) * (len(self.terms) - 1)
        thresholds, others = self.scale - 1, len(self.factors) * len(self.offsets)
        laws = others * (pairs * thresholds + plain)
        return others * pairs * thresholds / laws * math.log2(thresholds / (self.budget + 1)) / math.log2(laws)


_THREE = ("a", "b", "ab")
CLASSES = (
    Class((1,), (0,), _THREE, 16, (1, 2), 7),
    Class((1,), (0,), _THREE, 32, (1, 2, 3), 7),
    Class((1, 2), (0,), _THREE, 48, (1, 2, 3), 8),
    Class((1, 2), (0, 1), _THREE, 64, (1, 2, 3), 8),
    Class((1, 2, 3), (0, 1), (*_THREE, "a/b"), 128, (1, 2, 3), 10),
)
"""The class of each level."""


@cache
def laws_of(level: int) -> Space:
    """The laws of a level, from 1."""
    factors, offsets, terms, scale, values, budget = CLASSES[level - 1]
    experiments = tuple(itertools.product(values, values, range(1, scale + 1)))
    a, b, k = np.array(experiments, float).T
    plain = {
        (c, d, term): np.minimum(np.floor(c * a**i * b**j + d + 1e-9), MOST_SHOWN).astype(np.uint8)
        for c, d, term in itertools.product(factors, offsets, terms)
        for i, j in [TERMS[term]]
    }
    laws = [Law(*each) for each in itertools.product(factors, offsets, range(1, scale), terms, terms)]
    rows = [np.where(k > law.t, plain[law.c, law.d, law.z], plain[law.c, law.d, law.x]) for law in laws]
    return space_of(rows, laws, experiments, budget)


def form_of(law: Law) -> bytes:
    """What a law has in common with those that only rename a and b, or scale a quantity or y."""
    x, z = TERMS[law.x], TERMS[law.z]
    forms = sorted([(x, z), (x[::-1], z[::-1])])
    return repr((forms[0], law.t if x != z else 0)).encode()


def describe(level: int) -> str:
    """The class of a level, its experiments and its size, in a few lines."""
    made = CLASSES[level - 1]
    values = " ".join(map(str, made.values))
    return (
        f"a and b: {values}; k: 1 to {made.scale}.\n"
        f"The law: c: {' '.join(map(str, made.factors))}; d: {' '.join(map(str, made.offsets))}; "
        f"x and z: {' '.join(made.terms)}; t: 1 to {made.scale - 1}; {len(laws_of(level))} laws."
    )


def read_law(words: str) -> Law | Unreadable:
    """The law in the words after `Law:`, of the class or not."""
    found = _LAW.fullmatch(words)
    if found is None:
        return Unreadable("its law is not of the form c=1 d=0 t=1 x=a z=b")
    c, d, t, x, z = found.groups()
    return Law(int(c), int(d), int(t), x.lower(), z.lower())


def write_law(law: Law) -> str:
    """Such as `c=1 d=0 t=8 x=a z=ab`."""
    return " ".join(f"{name}={value}" for name, value in law._asdict().items())


def read_experiment(words: str) -> tuple[int, ...] | Unreadable:
    """The values of a, b and k in the words after `Try:`, on their scales or not."""
    found = _TRY.fullmatch(words)
    return (
        Unreadable("its experiment is not of the form a=1 b=1 k=1")
        if found is None
        else tuple(map(int, found.groups()))
    )


def write_experiment(values: tuple[int, ...]) -> str:
    """Such as `a=2 b=1 k=8`."""
    return " ".join(f"{name}={value}" for name, value in zip("abk", values, strict=True))
