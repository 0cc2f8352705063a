"""Causal graphs: find by interventions which quantities cause which.

Rules: four or five quantities are 0 or 1. Each follows from its causes: it is 1 if one of them is (`|`), or if all are
(`&`); without causes it is 0. The causes have no circle. An experiment sets some quantities, whatever their causes
say, and reads one other. Everything else is as in `rules`, but for what is paid: graphs differ in many places that do
not depend on each other, so experiments that are all chosen at the start leave less than a quarter of the bits. Paid
are therefore only the bits beyond those that the best known such plan finds in expectation (`Shape.planned`). The plan
is greedy, with exchanges, and so a lower bound on the best one.
Levels: see `SHAPES`. The splits never share a graph, whatever its quantities are called.
Source: our own; interventions as in J. Pearl, "Causality", 2000.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pettingllms_envs.core import SPLITS, Unreadable
from pettingllms_envs.environments.laws.rules import LAW, SAY, TRY, Discovery, Kind, read_message
from pettingllms_envs.environments.laws.space import Space, space_of


NAMES, NOTHING = "vwxyz", "nothing"

Graph = tuple[tuple[int, bool], ...]
"""Of each of the five names its causes, a bit each, and whether all are needed; False if it has fewer than two."""

_CAUSES = re.compile(rf"([{NAMES}])=([{NAMES}](?:\|[{NAMES}])*|[{NAMES}](?:&[{NAMES}])*)", re.I | re.A)
_NAME = re.compile(rf"[{NAMES}]")
_SET = re.compile(rf"([{NAMES}])=([01])", re.I | re.A)
_TRY = re.compile(rf"((?:[{NAMES}]=[01] ){{1,{len(NAMES)}}})see ([{NAMES}])", re.I | re.A)


class Shape(NamedTuple):
    """A class of graphs.

    Args:
        nodes: Quantities.
        most_causes: Most causes of one.
        has_and: Whether all causes of one may be needed; else one is always enough.
        most_set: Most quantities that an experiment sets.
        budget: Experiments of an episode, as many as the greedy tree needs at most.
        planned: Bits that as many experiments find in expectation, if all are chosen at the start.
    """

    nodes: int
    most_causes: int
    has_and: bool
    most_set: int
    budget: int
    planned: float


SHAPES = (Shape(4, 3, False, 2, 10, 7.4779), Shape(4, 3, True, 3, 11, 8.5016), Shape(5, 2, False, 2, 16, 11.1855))
"""The class of each level."""


def graphs(shape: Shape) -> list[Graph]:
    """All graphs of a class."""
    masks_of = [
        [mask for mask in range(1 << shape.nodes) if not mask >> node & 1 and mask.bit_count() <= shape.most_causes]
        for node in range(shape.nodes)
    ]
    masks_of += [[0]] * (len(NAMES) - shape.nodes)
    found = []
    for masks in itertools.product(*masks_of):
        if len(order(masks)) == len(NAMES):
            kinds = [(False, True) if shape.has_and and mask.bit_count() > 1 else (False,) for mask in masks]
            found += [tuple(zip(masks, each, strict=True)) for each in itertools.product(*kinds)]
    return found


def order(causes: tuple[int, ...]) -> list[int]:
    """The quantities, each after its causes; without those that are on circles or follow from them."""
    found, known = list[int](), 0
    for _ in causes:
        for node, mask in enumerate(causes):
            if not known >> node & 1 and not mask & ~known:
                found.append(node)
                known |= 1 << node
    return found


def readings(graph: Graph, settings: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """The value of each quantity in each experiment; shape (experiments, quantities).

    Args:
        settings: 0 or 1 where an experiment sets a quantity, else -1; the same shape.
    """
    values = settings > 0
    for node in order(tuple([mask for mask, _ in graph])):
        mask, needs_all = graph[node]
        if mask:
            causes = values[:, [other for other in range(len(graph)) if mask >> other & 1]]
            follows = causes.all(1) if needs_all else causes.any(1)
            values[:, node] = np.where(settings[:, node] < 0, follows, values[:, node])
    return values


@cache
def graphs_of(level: int) -> Space:
    """The graphs of a level, from 1."""
    shape = SHAPES[level - 1]
    settings = [
        (*each, *[-1] * (len(NAMES) - shape.nodes))
        for each in itertools.product((-1, 0, 1), repeat=shape.nodes)
        if 1 <= sum(value >= 0 for value in each) <= shape.most_set
    ]
    experiments = [(each, seen) for each in settings for seen in range(shape.nodes) if each[seen] < 0]
    of, seen = np.array([(settings.index(each), seen) for each, seen in experiments]).T
    array, made = np.array(settings, np.int8), graphs(shape)
    return space_of(
        [readings(graph, array)[of, seen] for graph in made], made, experiments, shape.budget, shape.planned
    )


@lru_cache(maxsize=4096)
def form_of(graph: Graph) -> bytes:
    """What a graph has in common with those that only rename the quantities."""
    nodes = range(len(graph))

    def renamed(names: tuple[int, ...]) -> Graph:
        found = list(graph)
        for node, (mask, needs_all) in enumerate(graph):
            found[names[node]] = sum(1 << names[other] for other in nodes if mask >> other & 1), needs_all
        return tuple(found)

    return repr(min(map(renamed, itertools.permutations(nodes)))).encode()


def read_graph(words: str) -> Graph | Unreadable:
    """The graph in the words after `Law:`, of the class or not."""
    lines = words.lower().split() if words.lower() != NOTHING else []
    found = [_CAUSES.fullmatch(each) for each in lines[: len(NAMES) + 1]]
    if len(lines) > len(NAMES) or None in found or not words:
        return Unreadable("its law is not of the form x=v|w y=x")
    causes = {each[1]: each[2] for each in found if each is not None}
    if len(causes) < len(found):
        return Unreadable("its law names a quantity twice")
    masks = [{NAMES.index(name) for name in _NAME.findall(causes.get(each, ""))} for each in NAMES]
    return tuple(
        (sum(1 << other for other in mask), "&" in causes.get(each, "") and len(mask) > 1)
        for each, mask in zip(NAMES, masks, strict=True)
    )


def write_graph(graph: Graph) -> str:
    """Such as `x=v|w y=x`."""
    words = (
        f"{name}={('&' if needs_all else '|').join(each for bit, each in enumerate(NAMES) if mask >> bit & 1)}"
        for name, (mask, needs_all) in zip(NAMES, graph, strict=True)
        if mask
    )
    return " ".join(words) or NOTHING


def read_experiment(words: str) -> tuple[tuple[int, ...], int] | Unreadable:
    """What is set, -1 for what is not, and the one that is read, in the words after `Try:`."""
    found = _TRY.fullmatch(words)
    if found is None:
        return Unreadable("its experiment is not of the form v=1 w=0 see x")
    pairs = _SET.findall(found[1].lower())
    values = dict(pairs)
    if len(values) < len(pairs):
        return Unreadable("its experiment sets a quantity twice")
    return tuple(int(values.get(name, -1)) for name in NAMES), NAMES.index(found[2].lower())


def write_experiment(experiment: tuple[tuple[int, ...], int]) -> str:
    """Such as `v=1 w=0 see x`."""
    settings, seen = experiment
    given = " ".join(f"{NAMES[node]}={value}" for node, value in enumerate(settings) if value >= 0)
    return f"{given} see {NAMES[seen]}"


def describe(level: int) -> str:
    """The class of a level, its experiments and its size, in a line."""
    shape = SHAPES[level - 1]
    kinds = "| or &" if shape.has_and else "|"
    return (
        f"Quantities: {' '.join(NAMES[: shape.nodes])}. Each has at most {shape.most_causes} causes, joined by"
        f" {kinds}; {len(graphs_of(level))} laws. An experiment sets 1 to {shape.most_set} of them."
    )


@dataclass(frozen=True, slots=True)
class CausalGraphs(Discovery):
    """The task. Its state is a `DiscoveryState`, its move a `DiscoveryMove`."""

    name: ClassVar[str] = "causal_graphs"
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {"split": SPLITS, "level": (1, 2, 3)}
    blind_replies: ClassVar[tuple[str, ...]] = (
        "Try: v=1 see w",
        "Try: v=1 w=0 see x",
        "Law: w=v",
        "Law: v=w x=w y=x",
        f"Law: {NOTHING}",
    )

    kind: ClassVar[Kind] = Kind(
        graphs_of,
        form_of,
        describe,
        {TRY: read_experiment, LAW: read_graph, SAY: read_message},
        {TRY: write_experiment, LAW: write_graph, SAY: str},
        reading="{}",
    )

    def rules(self) -> str:
        """The game in about 110 words."""
        return (
            "Some quantities are 0 or 1, and some cause others. Find out which by experiments. A quantity without"
            " causes is 0. x=v|w says that v and w cause x, and that x is 1 if one of them is; x=v&w that it is 1 if"
            " both are; x=v that it is as v. There is no circle of causes. An experiment sets some quantities to 0 or"
            " 1, whatever causes them, and shows one other. Its result never changes, so making it again tells"
            " nothing. The law says for each quantity with causes what they are. You have a number of experiments. One"
            " that tells nothing costs a little, and a wrong law more. The law can be named once."
        )

    def reply_format(self) -> str:
        return (
            "End your reply with one line: Try: v=1 w=0 see x to make an experiment, or Law: x=v|w y=x (nothing for"
            " none)."
        )
