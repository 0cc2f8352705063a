"""How well rule-based players play Hanabi, alone and together; tiny trained models are in hanabi_partners.py.

    PYTHONPATH=. python benchmarks/bench_hanabi.py [--games 1000]

Mean scores with a 95% interval, on the test split.

* Self-play: each bot in all seats of the full deck, beside what is published.
* Cross-play: two bots in both seats, on the same deals. Many pairs lose the last life, so that their score is 0; the
  second table has the cards that were on the fireworks then.
* Mini decks: each bot in all seats of levels 1 and 2.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

from figures import table

from pettingllms_envs.environments.hanabi.rules import Hanabi


Rows = Iterator[tuple[str, ...]]

BOTS = Hanabi.bots
FULL = 3
PUBLISHED = {("piers", 2): "16.99", ("iggi", 2): "15.99", ("flawed", 2): "about 0"}
"""R. Canaan et al., "Behavioral evaluation of Hanabi Rainbow DQN agents and rule-based agents", AIIDE 2020."""
Z = NormalDist().inv_cdf(0.975)


class Game(NamedTuple):
    """How a game ended: its score, and the cards on the fireworks, which also count if the last life was lost."""

    score: int
    cards: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=1000, help="of each cell, at least 2 (1000)")
    options = parser.parse_args(arguments)
    if options.games < 2:
        parser.error(f"--games is {options.games}; expected at least 2")
    for title, rows in bots(options.games):
        print(f"{title}\n\n{table(rows)}\n", flush=True)
    return 0


def bots(games: int) -> Iterator[tuple[str, Rows]]:
    """The tables of bots."""
    yield "Self-play, full deck", self_play(games)
    yield from cross_play(games)
    yield "Mini decks, self-play", mini_decks(games)


def self_play(games: int) -> Rows:
    """Rows: each bot in all seats, by the number of players."""
    yield "bot", "players", "score", "published"
    for bot, players in itertools.product(BOTS, (2, 3, 4, 5)):
        yield bot, str(players), score(play((bot,) * players, FULL, games)), PUBLISHED.get((bot, players), "")


def cross_play(games: int) -> Iterator[tuple[str, Rows]]:
    """Tables of scores, and of cards on the fireworks: the bot of the row with that of the column, in both seats."""
    played: dict[frozenset[str], list[tuple[Game, ...]]] = {}
    for pair in itertools.combinations_with_replacement(BOTS, 2):
        seatings = sorted({pair, pair[::-1]})
        played[frozenset(pair)] = list(zip(*(play(seats, FULL, games) for seats in seatings), strict=True))
    for figure, words in (("score", "score"), ("cards", "cards on the fireworks")):
        cells = {
            pair: interval([fmean(getattr(game, figure) for game in deal) for deal in deals])
            for pair, deals in played.items()
        }
        rows = [(row, *(cells[frozenset((row, column))] for column in BOTS)) for row in BOTS]
        yield f"Cross-play, full deck, two players: {words}", iter([("", *BOTS), *rows])


def mini_decks(games: int) -> Rows:
    """Rows: each bot in all seats, by level and the number of players."""
    sizes = list(itertools.product((1, 2), (2, 3)))
    yield "bot", *(f"level {level}, {players} players" for level, players in sizes)
    for bot in BOTS:
        yield bot, *(score(play((bot,) * players, level, games)) for level, players in sizes)


def play(seats: Sequence[str], level: int, games: int) -> list[Game]:
    """Games of the test split, with a bot in each seat."""
    task = Hanabi(players=len(seats))
    found = []
    for seed in range(games):
        state = task.generate(seed, "test", level)
        while not task.is_terminal(state):
            state = task.apply(state, task.bot(state, seats[state.player]))
        found.append(Game(task.score(state), sum(state.fireworks)))
    return found


def score(games: Sequence[Game]) -> str:
    """The mean score with its interval."""
    return interval([game.score for game in games])


def interval(values: Sequence[float]) -> str:
    """The mean with its 95% interval."""
    mean, error = fmean(values), Z * stdev(values) / len(values) ** 0.5
    return f"{mean:.2f} ({mean - error:.2f} to {mean + error:.2f})"


if __name__ == "__main__":
    sys.exit(main())
