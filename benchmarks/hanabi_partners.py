"""How tiny models that were trained in self-play do at Hanabi with partners that they were never trained with.

    PYTHONPATH=. python benchmarks/hanabi_partners.py train 0 1 2 3 4   # AT-GRPO from one base model, made first
    PYTHONPATH=. python benchmarks/hanabi_partners.py play              # everybody with everybody, on the same deals
    PYTHONPATH=. python benchmarks/hanabi_partners.py                   # the table of what was played

Level 1, two players: one color, a score of 5 at most, one life. Models are written to `outputs/hanabi`, results to
`benchmarks/results/hanabi`. Settings are chosen with other seeds on the validation split (`train 100 --rate ...`
prints the score there); what is reported is played on the test split. `play` goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean

from bench_hanabi import interval
from figures import table
from hanabi_team import TEAM, Options, Table


Player = Callable[[Sequence[Table]], list[str]]
"""Its replies at several tables at which it is to act."""
Cells = Mapping[tuple[int, int], Sequence[int]]
"""Scores on the same deals, by the seeds of both models."""

BEST = 5
SEEDS = range(5)
GAMES = 100
GREEDY = ", most likely replies"
BOTS = ("iggi", "piers", "outer", "random")
MODELS, RESULTS = Path("outputs/hanabi"), Path(__file__).with_name("results") / "hanabi"
T_QUANTILE = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 10: 2.262}
"""Student's, two-sided 95%, by the number of seeds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, play or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command")
    training = commands.add_parser("train", help="make models")
    training.add_argument("seeds", type=int, nargs="+")
    for field in fields(Options):
        training.add_argument(f"--{field.name}", type=type(field.default), default=field.default, help="(%(default)s)")
    commands.add_parser("play", help="play all pairs")
    options = parser.parse_args(arguments)
    if options.command == "train":
        for seed in options.seeds:
            make(seed, Options(**{field.name: getattr(options, field.name) for field in fields(Options)}))
    elif options.command == "play":
        play_all(RESULTS / "games.json")
    else:
        print(table(rows(json.loads((RESULTS / "games.json").read_text()))))
    return 0


def make(seed: int, options: Options) -> None:
    """Train a model and note what it took, with scores on the validation split; make the base model if need be."""
    import hanabi_training as training  # only this and playing need the trainer's libraries

    training.quiet()
    base, trained = MODELS / "base", MODELS / f"trained {seed}"
    if not _is_there(base.name):
        training.imitate(base)
    began = time.process_time()
    course = training.train(base, trained, options, seed)
    ended = time.process_time()
    record = {
        "options": asdict(options),
        "cpu_seconds": round(ended - began),
        "tokens": course.total,
        "scores": course.scores,
        "validation": {
            folder.name: fmean(play([training.player(folder)] * 2, range(GAMES), "validation"))
            for folder in (base, trained)
        },
    }
    print(json.dumps(record), flush=True)
    settings = "_".join(map(str, asdict(options).values()))
    name = f"seed_{seed}.json" if seed in SEEDS else f"tuning_{settings}_seed_{seed}.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / name).write_text(json.dumps(record) + "\n")


def play(team: Sequence[Player], seeds: Iterable[int], split: str) -> list[int]:
    """Scores of games that are played side by side.

    Args:
        team: A player for each seat.
        seeds: Of the deals.
        split: Of the deals.
    """
    tables = [TEAM.start(TEAM.task.generate(seed, split)) for seed in seeds]
    going = [*range(len(tables))]
    for player in itertools.cycle(team):
        if not going:
            return [TEAM.task.score(each.task) for each in tables]
        over = set()
        for i, reply in zip(going, player([tables[i] for i in going]), strict=True):
            tables[i], _, is_over, is_late = TEAM.step(tables[i], reply)
            if is_over or is_late:
                over.add(i)
        going = [i for i in going if i not in over]
    raise AssertionError("cycle has no end")


def bot(name: str) -> Player:
    """A player that is written as rules."""
    return lambda tables: [TEAM.bot(table, name) for table in tables]


def constant(reply: str) -> Player:
    """A player that says the same each time; where it is not allowed, the default move is made."""
    return lambda tables: [reply] * len(tables)


def plays_until(score: int) -> Player:
    """A player that plays its oldest card until there is this score, and then risks no life."""

    def reply(table: Table) -> str:
        if TEAM.task.score(table.task) < score:
            return "play 0"
        return "+1 color R" if table.task.information else "discard 0"

    return lambda tables: [reply(table) for table in tables]


GUESSERS: Mapping[str, Player] = {
    **{reply: constant(reply) for reply in TEAM.task.blind_replies},
    **{f"play 0 until {score}": plays_until(score) for score in range(1, BEST + 1)},
}
"""Who looks at no card."""


def matches() -> Iterator[tuple[str, str]]:
    """Who plays with whom, what matters most first."""
    trained = [f"trained {seed}" for seed in SEEDS]
    yield from itertools.combinations_with_replacement(BOTS[:3], 2)
    yield "random", "random"
    yield from ((name, name) for name in GUESSERS)
    yield from ((model, model) for model in ("base", *trained))
    yield from itertools.permutations(trained, 2)
    yield from ((name, name) for name in (f"{model}{GREEDY}" for model in ("base", *trained)))
    yield from itertools.product((*trained, "base"), BOTS)


def play_all(path: Path) -> None:
    """Play the matches that the file does not have, among those whose models are there, and add them to it."""
    cells: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    for pair in matches():
        name = " | ".join(pair)
        if name not in cells and all(_is_there(each) for each in pair):
            cells[name] = "".join(map(str, play([player_of(each) for each in pair], range(GAMES), "test")))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(cells, indent=0) + "\n")
            print(name, fmean(map(int, cells[name])), flush=True)


def player_of(name: str) -> Player:
    """A bot, a guesser or a model."""
    if name in GUESSERS:
        return GUESSERS[name]
    if name in BOTS:
        return bot(name)
    from hanabi_training import player  # which takes seconds

    return player(MODELS / name.removesuffix(GREEDY), greedy=name.endswith(GREEDY))


def _is_there(name: str) -> bool:
    return name in GUESSERS or name in BOTS or (MODELS / name.removesuffix(GREEDY) / "config.json").exists()


def rows(cells: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The table: scores with an interval over the deals, and one over the seeds."""
    scores = {tuple(name.split(" | ")): [*map(int, digits)] for name, digits in cells.items()}
    yield "team", "score of 5, interval over deals", "interval over seeds"
    for words, names in (("bots", BOTS[:3]), ("guesser", [*GUESSERS])):
        best = max((pair for pair in scores if set(pair) <= set(names)), key=_on_validation)
        yield f"best {words}: {' and '.join(dict.fromkeys(best))}", interval(scores[best]), ""
    yield "random legal moves", interval(scores["random", "random"]), ""
    base = {name: scores.get(("base", name)) for name in ("base", *BOTS)}
    base |= {f"base{GREEDY}": scores.get((f"base{GREEDY}",) * 2)}
    for name, found in base.items():
        if found:
            yield f"base with {name}" if name in BOTS else f"{name}: self-play", interval(found), ""
    pairs = {(i, j): scores.get((f"trained {i}", f"trained {j}")) for i in SEEDS for j in SEEDS}
    if all(pairs.values()):
        for words, figure in FIGURES.items():
            yield f"trained: {words}", interval(figure(pairs, SEEDS)), over_seeds(pairs, figure)
    for name in (GREEDY, *BOTS):
        own = {i: f"trained {i}{GREEDY}" if name == GREEDY else f"trained {i}" for i in SEEDS}
        beside = {(i, i): scores.get((own[i], own[i] if name == GREEDY else name)) for i in SEEDS}
        if all(beside.values()):
            words = f"trained{GREEDY}: self-play" if name == GREEDY else f"trained with {name}"
            yield words, interval(alone(beside, SEEDS)), over_seeds(beside, alone)


def alone(cells: Cells, seeds: Sequence[int]) -> list[float]:
    """The mean score in self-play, deal by deal."""
    return _means(cells[i, i] for i in seeds)


def crossed(cells: Cells, seeds: Sequence[int]) -> list[float]:
    """The mean score of two models of different seeds, deal by deal."""
    return _means(cells[pair] for pair in itertools.permutations(seeds, 2))


def gap(cells: Cells, seeds: Sequence[int]) -> list[float]:
    """Self-play minus cross-play, deal by deal."""
    return [one - other for one, other in zip(alone(cells, seeds), crossed(cells, seeds), strict=True)]


FIGURES = {"self-play": alone, "cross-play": crossed, "self-play minus cross-play": gap}


def over_seeds(cells: Cells, figure: Callable[[Cells, Sequence[int]], list[float]]) -> str:
    """The mean of a figure with a 95% interval over the seeds, by the jackknife: each seed is left out once, with all
    pairs that it is in, and the deviation of the results tells the error, with Student's quantile."""
    seeds = sorted({i for i, _ in cells})
    number = len(seeds)
    mean = fmean(figure(cells, seeds))
    without = [fmean(figure(cells, [each for each in seeds if each != left])) for left in seeds]
    middle = fmean(without)
    error = ((number - 1) / number * sum((value - middle) ** 2 for value in without)) ** 0.5
    half = T_QUANTILE[number] * error
    return f"{mean:.2f} ({mean - half:.2f} to {mean + half:.2f})"


def _on_validation(pair: tuple[str, ...]) -> float:
    """What chooses among bots and guessers: the mean score on other deals."""
    return fmean(play([player_of(name) for name in pair], range(GAMES), "validation"))


def _means(scores: Iterable[Sequence[int]]) -> list[float]:
    """Deal by deal."""
    return [fmean(deal) for deal in zip(*scores, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
