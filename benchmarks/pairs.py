"""What bench_envs.py compares with what, on which settings, and the goals.

Seconds are the processor's, as nobody waits for anything here: what else a machine does disturbs them less.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from contenders import Gem, Ours, ReasoningGymMiniSudoku, Reference, Starts, TextArenaSokoban, Walks, legal_walk
from pettingzoo.utils import OrderEnforcingWrapper

import pettingllms_envs


ENOUGH_TURNS = 200
ALONE: Mapping[str, Any] = {"workflow": "single", "num_turns": ENOUGH_TURNS}

Slice = Callable[[int], float]
"""Plays a number of instances on the seeds from the one given; returns seconds per operation."""


@dataclass(frozen=True, slots=True)
class Side:
    """One half of a pair.

    Args:
        label: Who.
        settings: What it was set to do.
        open: Makes it ready; `ImportError` if it is a peer that is not installed.
        needs: The distribution that has to be installed, `"reference"`, or "" for ours.
    """

    label: str
    settings: str
    open: Callable[[], Slice]
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A peer and ours doing the same.

    Args:
        what: What they do.
        ratio: Goal: how many times as long the peer must take, at least.
        limit_us: Goal: microseconds that ours may take, at most, or None.
    """

    what: str
    peer: Side
    ours: Side
    ratio: float
    limit_us: float | None = None

    @property
    def name(self) -> str:
        return f"{self.what}, {self.ours.label} / {self.peer.label}"


def steps(game: Walks, episodes: int, turns: int) -> Slice:
    """Seconds per step. Only `play` is timed: instances are made and letters chosen before, the end is checked after.

    Args:
        game: Who plays.
        episodes: Instances per slice.
        turns: Most steps of an episode.
    """

    def slice_(first_seed: int) -> float:
        seconds, num_steps = 0.0, 0
        for seed in range(first_seed, first_seed + episodes):
            game.start(seed)
            letters, end = legal_walk(game.room(), random.Random(seed), turns)
            replies = [game.replies[letter] for letter in letters]
            begin = time.process_time()
            game.play(replies)
            seconds += time.process_time() - begin
            num_steps += len(replies)
            now = game.room()
            if (now.boxes, now.player) != (end.boxes, end.player):
                raise RuntimeError(f"{type(game).__name__}, seed {seed}: {letters} was not played as it is legal.")
        return seconds / num_steps

    return slice_


def resets(game: Starts, count: int) -> Slice:
    """Seconds per reset, each to a seed of its own, its first text included."""

    def slice_(first_seed: int) -> float:
        start = game.start
        begin = time.process_time()
        for seed in range(first_seed, first_seed + count):
            start(seed)
        return (time.process_time() - begin) / count

    return slice_


def switches(env: Any, count: int) -> Slice:
    """Seconds per `snapshot` and `restore`, each time from one moment of an episode to the other of two."""

    def slice_(first_seed: int) -> float:
        env.reset(seed=first_seed)
        seen = [env.last()]
        there = env.snapshot()
        env.step("no move")
        seen.append(env.last())
        begin = time.process_time()
        for _ in range(count):
            here = env.snapshot()
            env.restore(there)
            there = here
        seconds = time.process_time() - begin
        if env.last() != seen[count % 2 - 1]:
            raise RuntimeError(f"{env.metadata['name']}, seed {first_seed}: restored to another moment.")
        return seconds / count

    return slice_


def deep_copies(env: Any, count: int) -> Slice:
    """Seconds per `copy.deepcopy` of an environment in the middle of an episode."""

    def slice_(first_seed: int) -> float:
        env.reset(seed=first_seed)
        env.step("no move")
        begin = time.process_time()
        for _ in range(count):
            copy.deepcopy(env)
        return (time.process_time() - begin) / count

    return slice_


def all_pairs(reference: Path | None) -> tuple[Pair, ...]:
    """What is compared with what, and the goals."""
    return (
        *sokoban_steps(reference),
        *sokoban_resets(reference),
        *sudoku_resets(),
        *plan_path(reference),
        *snapshots(),
    )


def sokoban_steps(reference: Path | None) -> list[Pair]:
    """Steps in Sokoban, 6x6 with one box; an episode lasts as long as the peer's registered budget lets it."""

    def textarena(name: str) -> Side:
        label, settings = f"TextArena {name}", "6x6, num_boxes=1, budget of 30 as registered"
        return Side(label, settings, lambda: steps(TextArenaSokoban(name, 1), 40, 30), "textarena")

    def ours(label: str, wrap: Callable[..., Any], turns: int) -> Side:
        settings = f"sokoban, size=6, boxes=1, workflow='single', {turns} turns played of {ENOUGH_TURNS}"
        return Side(label, settings, lambda: steps(Ours(wrap(size=6, boxes=1, **ALONE)), 12_000 // turns, turns))

    train, plain = textarena("Sokoban-v0-train"), textarena("Sokoban-v0")
    gem_settings = "game:Sokoban-v0-easy, 6x6, num_boxes=1, budget of 20 as registered"
    gem = Side("GEM", gem_settings, lambda: steps(Gem("game:Sokoban-v0-easy", num_boxes=1), 60, 20), "gem-llm")
    theirs_settings = "SokobanGridEnvState, map_size=6, 1 box, its generator's settings; parser, step, prompt"
    theirs = Side("reference", theirs_settings, lambda: steps(Reference(reference, "sokoban", 6), 40, 30), "reference")
    goals = [
        ("raw_env", _raw("sokoban"), [(train, 20), (plain, 20), (gem, 10), (theirs, 5)]),
        ("OrderEnforcingWrapper(raw_env)", _order_enforced("sokoban"), [(train, 6), (plain, 6), (gem, 3.5)]),
        ("env", _env("sokoban"), [(train, 10), (plain, 10)]),
    ]
    return [
        Pair("Sokoban step", peer, ours(label, wrap, 20 if peer is gem else 30), ratio)
        for label, wrap, peers in goals
        for peer, ratio in peers
    ]


def sokoban_resets(reference: Path | None) -> list[Pair]:
    """New instances of Sokoban, 6x6; ours with a proof that it can be solved and the optimal length."""

    def pair(boxes: int, peer: Side, ratio: float) -> Pair:
        settings = f"sokoban, size=6, boxes={boxes}, workflow='single'; solvable by proof, optimal length known"
        ours = Side("env", settings, lambda: resets(Ours(_env("sokoban")(size=6, boxes=boxes, **ALONE)), 500))
        return Pair(f"Sokoban reset, {boxes} box{'es' * (boxes > 1)}", peer, ours, ratio)

    def textarena(boxes: int, count: int) -> Side:
        name = "Sokoban-v0-train"
        settings = f"6x6, num_boxes={boxes}; played backwards, no optimal length"
        return Side(f"TextArena {name}", settings, lambda: resets(TextArenaSokoban(name, boxes), count), "textarena")

    def gem(boxes: int, count: int) -> Side:
        name = "game:Sokoban-v0-easy"
        settings = f"{name}, 6x6, num_boxes={boxes}; played backwards, no optimal length"
        return Side("GEM", settings, lambda: resets(Gem(name, num_boxes=boxes), count), "gem-llm")

    settings = "SokobanGridEnvState, map_size=6, 1 box, its generator's settings; played backwards, no optimal length"
    theirs = Side("reference", settings, lambda: resets(Reference(reference, "sokoban", 6), 40), "reference")
    return [
        pair(1, textarena(1, 60), 15),
        pair(1, gem(1, 60), 15),
        pair(1, theirs, 15),
        pair(2, textarena(2, 30), 40),
        pair(2, gem(2, 30), 40),
    ]


def sudoku_resets() -> list[Pair]:
    """New puzzles of 4x4 Sudoku with exactly one solution; ours with as many empty cells as the peer's come out with.

    Over 400 seeds GEM's puzzles have 8 to 10 empty cells, on average 9.4, and reasoning-gym's 8 to 12, 10.0.
    """

    def ours(low: int, high: int) -> Side:
        settings = f"sudoku, size=4, min_empty={low}, max_empty={high}, workflow='single'; one solution by proof"
        fields = {"size": 4, "min_empty": low, "max_empty": high}
        return Side("env", settings, lambda: resets(Ours(_env("sudoku")(**fields, **ALONE)), 2000))

    name = "game:Sudoku-v0-easy"
    gem_settings = f"{name}, 4x4, at most 10 empty, 9.4 on average"
    gem = Side("GEM", gem_settings, lambda: resets(Gem(name), 200), "gem-llm")
    fields = {"min_empty": 8, "max_empty": 12}
    gym_settings = "mini_sudoku, 4x4, 8 to 12 empty (fewer where the one solution would be lost), 10.0 on average"
    gym = Side("reasoning-gym", gym_settings, lambda: resets(ReasoningGymMiniSudoku(**fields), 200), "reasoning_gym")
    return [Pair("Sudoku 4x4 reset", gem, ours(9, 10), 20), Pair("Sudoku 4x4 reset", gym, ours(9, 11), 15)]


def plan_path(reference: Path | None) -> list[Pair]:
    """Plan-Path 10x10 against the reference's class."""

    def theirs(measure: Callable[[Any], Slice]) -> Side:
        settings = "PlanPathGridEnvState, map_size=10, 22% blocked; parser, step, prompt (which shows the start only)"
        return Side("reference", settings, lambda: measure(Reference(reference, "plan_path", 10)), "reference")

    def ours(measure: Callable[[Any], Slice]) -> Side:
        settings = "plan_path, size=10, 22% blocked, workflow='single'"
        return Side("env", settings, lambda: measure(Ours(_env("plan_path")(size=10, **ALONE))))

    return [
        Pair("Plan-Path reset", theirs(lambda game: resets(game, 300)), ours(lambda game: resets(game, 1500)), 5),
        Pair(
            "Plan-Path step", theirs(lambda game: steps(game, 300, 30)), ours(lambda game: steps(game, 400, 30)), 1.5
        ),
    ]


def snapshots() -> list[Pair]:
    """`snapshot` and `restore` against `copy.deepcopy` of the same environment, as `make` returns it."""

    def pair(name: str) -> Pair:
        make = partial(pettingllms_envs.make, name)
        deep = Side("deepcopy", f"copy.deepcopy(make({name!r}))", lambda: deep_copies(make(), 100))
        ours = Side("env", f"make({name!r}): snapshot() and restore()", lambda: switches(make(), 10_000))
        return Pair(f"{name} snapshot + restore", deep, ours, 20, limit_us=15)

    return [pair(name) for name in pettingllms_envs.list_environments()]


def _env(name: str) -> Callable[..., Any]:
    return partial(pettingllms_envs.make, name)


def _raw(name: str) -> Callable[..., Any]:
    return lambda **settings: import_module(f"pettingllms_envs.{name}_v0").raw_env(**settings)


def _order_enforced(name: str) -> Callable[..., Any]:
    return lambda **settings: OrderEnforcingWrapper(_raw(name)(**settings))
