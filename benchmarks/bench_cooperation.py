"""What a team is worth where one is provably needed: scripted agents in all forms, and what messages must carry.

    PYTHONPATH=. python benchmarks/bench_cooperation.py [--episodes 1000] [--trials 20000]

In each table agents reply to their prompts alone. Where nothing else is said, `archives` has one fact of a kind, and
the question decides who begins.

* Forms: the success of `full` (one agent that is shown everything), `team`, `cut` (messages do not arrive) and the
  best member `alone`, with 95% intervals, beside the bound of a lone agent, recomputed by the conformance suite.
* Differences: what cooperation gains, what it costs that information is distributed, and what messages are worth; with
  paired intervals over the same episodes.
* Best guessers: agents alone that reach the bound. The intervals of all rows hold together with 95%.
* Best guessers with several facts: the same, and agents that read no relation and know the order, which reach the
  blind bound.
* Relations unread: the best guesser of each workflow, on twice as many episodes, in the form of the quickstart and in
  one that has to be read.
* Messages: the success of `archives` teams whose messages are cut after 0, 20, 60 and 120 characters, by how a
  librarian words what it found.
* The bare question: in how many worlds a search for the whole question shows the passage with the answer among its
  first three results. It should be at most 10%, and is not a bound.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from figures import table
from scripted_teams import MESSAGES, Policy, best_lone_note_taker, librarian, note_taker, of_prompts, success

import pettingllms_envs
from pettingllms_envs.environments.archives import librarians
from pettingllms_envs.environments.archives.rules import Archives
from pettingllms_envs.environments.archives.world import ARCHIVES, World
from pettingllms_envs.environments.note_taking import note_takers
from pettingllms_envs.environments.note_taking.rules import NoteTaking
from pettingllms_envs.episodes.episode import Instance
from pettingllms_envs.evaluation.guessers import best_guesser
from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.evaluation.team_forms import CUT, FULL, TEAM, is_alone
from pettingllms_envs.research.cooperation import Difference, differences
from pettingllms_envs.testing.cooperation import lone_bound, play_forms


CAPACITIES = (0, 20, 60, 120)
HOPS = (2, 3, 4)
NOTE_TAKING = (
    {"readings": 16, "values": 10_000, "digits": 32},
    {"readings": 8, "values": 1000, "digits": 12},
    {"readings": 4, "values": 10, "digits": 2},
)
ORDER = "question"
ONE_FACT: dict[str, Any] = {"wording": "symbols", "facts": 1}
GUESSED: dict[str, Any] = {"size": 8, **ONE_FACT}
"""The archives of the best guessers: small, so that their interval is far from 0."""
SEVERAL_FACTS = ({"facts": 2, "size": 8}, {"facts": 3, "size": 9})
"""Further archives of the best guessers, of sizes at which a random choice of facts reaches the blind bound."""
TO_BE_READ = {"wording": "symbols", "facts": 2, "hops": 3, "size": 8, "results": 2, "order": "seed"}
UNREAD: dict[str, dict[str, Any]] = {
    "1 fact, 2 hops, 10 of each kind": {**ONE_FACT, "size": 10, "results": 1, "order": ORDER},
    "2 facts, 3 hops, 8 of each kind": TO_BE_READ,
}
WORKFLOWS = ("team", "pair", "routed", "full", "cut", "cut_pair", "alone")

Shares = dict[str, list[Fraction]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000, help="of each cell, and worlds of the last table (1000)")
    parser.add_argument("--trials", type=int, default=20_000, help="of each best guesser (20000)")
    options = parser.parse_args(arguments)
    for name in ("episodes", "trials"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; expected at least 1")
    played = list(play_all(options.episodes))
    for title, rows in (
        ("Forms", forms(played)),
        ("Differences", worth(played)),
        ("Best guessers", guessers(options.trials)),
        ("Best guessers with several facts", guessers_of_facts(options.trials)),
        ("Relations unread", unread(2 * options.episodes)),
        ("Messages", messages(options.episodes)),
        ("The bare question", bare_question(options.episodes)),
    ):
        print(f"{title}\n\n{table(rows)}\n")
    return 0


def play_all(episodes: int) -> Iterator[tuple[str, Fraction, Shares]]:
    """Each environment's name, recomputed bound, and success in all forms."""
    for settings in NOTE_TAKING:
        name = "note_taking, {readings} readings of {values:,} values, {digits} digits".format(**settings)
        yield name, *_played("note_taking", settings, note_taker(NoteTaking(**settings)), episodes)
    for hops in HOPS:
        settings = {"hops": hops, "size": 40, **ONE_FACT, "order": ORDER}
        yield f"archives, {hops} hops, 40 of each kind", *_played("archives", settings, librarian(), episodes)
    yield "archives, 2 facts, 3 hops, 8 of each kind", *_played("archives", TO_BE_READ, librarian(), episodes)


def forms(played: Sequence[tuple[str, Fraction, Shares]]) -> Iterator[tuple[str, ...]]:
    """Rows: each environment in its forms, and the bound."""
    yield "", "full", "team", "cut", "alone", "bound"
    for name, bound, shares in played:
        alone = max((own for arm, own in shares.items() if is_alone(arm)), key=sum)
        cells = (_interval(int(sum(own)), len(own)) for own in (shares[FULL], shares[TEAM], shares[CUT], alone))
        yield name, *cells, _percent(bound)


def worth(played: Sequence[tuple[str, Fraction, Shares]]) -> Iterator[tuple[str, ...]]:
    """Rows: each environment with its differences, in points."""
    found = {name: {each.name: each for each in differences(shares)} for name, _, shares in played}
    columns = list(dict.fromkeys(column for own in found.values() for column in own))
    yield "", *columns
    for name, own in found.items():
        yield name, *(_points(own[column]) if column in own else "" for column in columns)


def _points(found: Difference) -> str:
    return f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def guessers(trials: int) -> Iterator[tuple[str, ...]]:
    """Rows: an agent alone, how often it is right, and the bound, which is to be within its interval."""
    task = NoteTaking(2, 10, 1)
    guessing: list[tuple[str, Any, Policy]] = [
        ("note_taking, 2 readings of 10 values, 1 digit", note_takers.LoneNoteTaker(task), best_lone_note_taker)
    ]
    for hops in HOPS:
        archives = Archives(hops=hops, **GUESSED)
        guessing += [
            (f"archives, {hops} hops, 8 of each kind, archive {archive}", alone, librarian())
            for archive in ARCHIVES
            for alone in [librarians.LoneLibrarian(archives, archive=archive, order=ORDER)]
        ]
        guessing.append(
            (
                f"archives, {hops} hops, 8 of each kind, cut",
                librarians.SilentLibrarians(archives, order=ORDER),
                librarian(),
            )
        )
    yield from _beside_bounds([(*each, float(each[1].task.lone_bound())) for each in guessing], trials)


def guessers_of_facts(trials: int) -> Iterator[tuple[str, ...]]:
    """Rows: agents alone, and those that read no relation, with the bound of each.

    A message of the latter is any of the names to which the searched one leads; that the order follows from the
    question shows them which archive each step needs.
    """
    guessing: list[tuple[str, Any, Policy, float]] = []
    for settings, hops in itertools.product(SEVERAL_FACTS, HOPS):
        task = Archives(hops=hops, wording="symbols", **settings)
        name = "{facts} facts, {hops} hops, {size} of each kind".format(hops=hops, **settings)
        lone, blind = float(task.lone_bound()), float(task.blind_bound())
        for archive in ARCHIVES:
            alone = librarians.LoneLibrarian(task, archive=archive)
            guessing.append((f"{name}, archive {archive}", alone, librarian(), lone))
        guessing.append((f"{name}, cut", librarians.SilentLibrarians(task), librarian(), lone))
        copier = partial(task.blind_policies["copier"], rng=random.Random(0))
        routed = librarians.RoutedLibrarian(task, order=ORDER)
        guessing.append((f"{name}, both archives, no relation read", routed, copier, blind))
    yield from _beside_bounds(guessing, trials)


def unread(episodes: int) -> Iterator[tuple[str, ...]]:
    """Rows: each workflow with its best guesser in two forms; then the greater one of the bounds of each form."""
    instances = [Instance(seed, seed) for seed in range(episodes)]
    yield "", *UNREAD
    for workflow in WORKFLOWS:
        made = (partial(pettingllms_envs.make, "archives", workflow=workflow, **each) for each in UNREAD.values())
        found = [best_guesser(make, instances) for make in made]
        yield workflow, *(f"{_interval(sum(each.successes), episodes)}, {each.name}" for each in found)
    tasks = [pettingllms_envs.make("archives", **settings).workflow.task for settings in UNREAD.values()]
    yield "bound", *(_percent(max(task.lone_bound(), task.blind_bound())) for task in tasks)


def messages(episodes: int) -> Iterator[tuple[str, ...]]:
    """Rows: hops and wording of the messages, and the success by capacity."""
    yield "hops", "a librarian says", *(f"{capacity} characters" for capacity in CAPACITIES)
    for hops in HOPS:
        task = Archives(hops=hops, **ONE_FACT)
        teams = [_team(task, capacity) for capacity in CAPACITIES]
        shares = _shares([(team, librarian(each)) for each in MESSAGES.values() for team in teams], episodes)
        for number, words in enumerate(MESSAGES):
            yield str(hops), words, *shares[number * len(teams) : (number + 1) * len(teams)]


def bare_question(worlds: int) -> Iterator[tuple[str, ...]]:
    """Rows: hops, and the share of worlds in which the last passage is shown, by the archives that are searched."""
    yield "hops", "its own archive", "both archives"
    for hops in HOPS:
        shown = {"own": 0, "both": 0}
        for seed in range(worlds):
            world = World(Archives().size, hops, "english", "train", seed)
            question, relations, names = world.chain
            last = (names[-2], relations[-1])
            for key, archives in (("own", (relations[-1] % 2,)), ("both", ARCHIVES)):
                found = world.search(archives, question, 3)
                shown[key] += last in {(each.subject, each.relation) for each in found}
        yield str(hops), *(_interval(number, worlds) for number in shown.values())


def _played(name: str, settings: dict[str, Any], policy: Policy, episodes: int) -> tuple[Fraction, Shares]:
    """The recomputed bound, and the success in all forms."""
    env = pettingllms_envs.make(name, **settings)

    def make(form: Any) -> Any:
        return pettingllms_envs.make(name, **form)

    bound = lone_bound(env, make)
    assert bound is not None
    return bound.recomputed, play_forms(env, make, of_prompts(policy), range(episodes))


def _team(task: Archives, capacity: int) -> Any:
    """A team whose messages have that capacity; 0 for none."""
    if not capacity:
        return librarians.SilentLibrarians(task, order=ORDER)
    return librarians.LibrarianTeam(task, order=ORDER, capacity=capacity)


def _shares(played: Sequence[tuple[Any, Policy]], episodes: int) -> list[str]:
    """The success of each workflow with its policy, all on the same instances, each of which is made once."""
    right = [0] * len(played)
    for seed in range(episodes):
        for number, (workflow, policy) in enumerate(played):
            right[number] += success(workflow, seed, policy)
    return [_interval(number, episodes) for number in right]


def _beside_bounds(guessing: Sequence[tuple[str, Any, Policy, float]], trials: int) -> Iterator[tuple[str, ...]]:
    """Rows of guessers, with intervals that hold together.

    Args:
        guessing: A name, a workflow, who plays it, the bound that is to be within the interval.
        trials: Episodes of each.
    """
    right = [0] * len(guessing)
    for seed in range(trials):  # all on one world, which takes longest to make
        for number, (_, workflow, policy, _) in enumerate(guessing):
            right[number] += success(workflow, seed, policy)
    yield "", "right", "bound", "within the interval"
    for num, (name, _, _, bound) in zip(right, guessing, strict=True):
        low, high = wilson(num, trials, 1 - 0.05 / len(guessing))
        shown = f"{num:,} of {trials:,}, {_percent(num / trials)} ({100 * low:.1f} to {100 * high:.1f})"
        yield name, shown, _percent(bound), "yes" if low <= bound <= high else "no"


def _interval(number: int, total: int) -> str:
    low, high = wilson(number, total)
    return f"{_percent(number / total)} ({100 * low:.1f} to {100 * high:.1f})"


def _percent(share: Any) -> str:
    return f"{100 * float(share):.1f}%"


if __name__ == "__main__":
    sys.exit(main())
