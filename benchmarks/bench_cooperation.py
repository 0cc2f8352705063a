"""What a team is worth where one is provably needed: scripted agents in all forms, and what messages must carry.

    PYTHONPATH=. python benchmarks/bench_cooperation.py [--episodes 1000]

Three tables. In each, agents reply to their prompts alone.

* Forms: the success of `full` (one agent that is shown everything), `team`, `cut` (messages do not arrive) and `alone`
  with a 95% interval, beside the proven bound of a lone agent.
* Messages: the success of `archives` teams whose messages are cut after 0, 20, 60 and 120 characters, by how a
  librarian words what it found.
* The bare question: in how many worlds a search for the whole question shows the passage with the answer among its
  first three results. It should be at most 10%, and is not a bound.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from figures import table
from scripted_teams import MESSAGES, Policy, librarian, note_taker, success

from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.tasks.archives import Archives
from pettingllms_envs.tasks.archives_world import ARCHIVES, World
from pettingllms_envs.tasks.note_taking import NoteTaking
from pettingllms_envs.workflows import librarians, note_takers


CAPACITIES = (0, 20, 60, 120)
HOPS = (2, 3, 4)
NOTE_TAKING = (NoteTaking(), NoteTaking(8, 1000, 12), NoteTaking(4, 10, 2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000, help="of each cell, and worlds of the last table (1000)")
    options = parser.parse_args(arguments)
    if options.episodes < 1:
        parser.error(f"--episodes is {options.episodes}; expected at least 1")
    for title, rows in (
        ("Forms", forms(options.episodes)),
        ("Messages", messages(options.episodes)),
        ("The bare question", bare_question(options.episodes)),
    ):
        print(f"{title}\n\n{table(rows)}\n")
    return 0


def forms(episodes: int) -> Iterator[tuple[str, ...]]:
    """Rows: each environment in its forms, and the bound."""
    yield "", "full", "team", "cut", "alone", "bound"
    for notes in NOTE_TAKING:
        name = f"note_taking, {notes.readings} readings of {notes.values:,} values, {notes.digits} digits"
        workflows = (
            note_takers.FullView(notes),
            note_takers.NoteTakers(notes),
            note_takers.SilentNoteTakers(notes),
            note_takers.LoneNoteTaker(notes),
        )
        shares = _shares([(each, note_taker(notes)) for each in workflows], episodes)
        yield name, *shares, _percent(notes.lone_bound())
    for hops in HOPS:
        task = Archives(hops=hops, wording="symbols")
        played = (
            librarians.FullLibrarian(task),
            librarians.LibrarianTeam(task),
            librarians.SilentLibrarians(task),
            librarians.LoneLibrarian(task),
        )
        shares = _shares([(each, librarian()) for each in played], episodes)
        yield f"archives, {hops} hops, {task.size} of each kind", *shares, _percent(task.lone_bound())


def messages(episodes: int) -> Iterator[tuple[str, ...]]:
    """Rows: hops and wording of the messages, and the success by capacity."""
    yield "hops", "a librarian says", *(f"{capacity} characters" for capacity in CAPACITIES)
    for hops in HOPS:
        task = Archives(hops=hops, wording="symbols")
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


def _team(task: Archives, capacity: int) -> Any:
    """A team whose messages have that capacity; 0 for none."""
    return librarians.LibrarianTeam(task, capacity=capacity) if capacity else librarians.SilentLibrarians(task)


def _shares(played: Sequence[tuple[Any, Policy]], episodes: int) -> list[str]:
    """The success of each workflow with its policy, all on the same instances, each of which is made once."""
    right = [0] * len(played)
    for seed in range(episodes):
        for number, (workflow, policy) in enumerate(played):
            right[number] += success(workflow, seed, policy)
    return [_interval(number, episodes) for number in right]


def _interval(number: int, total: int) -> str:
    low, high = wilson(number, total)
    return f"{_percent(number / total)} ({100 * low:.1f} to {100 * high:.1f})"


def _percent(share: Any) -> str:
    return f"{100 * float(share):.1f}%"


if __name__ == "__main__":
    sys.exit(main())
