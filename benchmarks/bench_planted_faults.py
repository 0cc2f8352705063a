"""Whether `pettingllms blame`, its substitutes, `--ablate` and cross-play name the member that has a planted fault.

    PYTHONPATH=. python benchmarks/bench_planted_faults.py --json benchmarks/results/planted_faults.json

A fault is planted in one member of a team whose members act on their prompts alone; all of them, the faulty one as
well, slip in one reply of twenty. A fault that costs the team fewer than ten points of success is listed and not
scored. Any other is sought in several runs of 20 new problems. A method names one member; where it cannot tell, one of
the equals is drawn. Its cost are the calls that it asks for beyond those of the run.

* `blame`: the member in the first row of `blame --replies 4`; `added up`: whose calls' effects add up to the most.
* `substitutes`: who gains most success from its first call on, of `blame --substitute MEMBER=SOUND --replies 2` for
  each member.
* `ablation`: the role that is missed least, of `crossplay --ablate --partners null`; the role whose replacement by
  sound members or the oracle gains most. A member of it is drawn.
* `cross-play`: whose replacement by a sound member gains most, and what the member takes from a sound team added, of
  `crossplay --role MEMBER` for each.

Sound members in another's place have random numbers of their own; the oracle knows the answer. What needs no call: who
speaks last, writes most, has most unreadable replies, has the lowest return; and, with hindsight, is at fault most
often.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import table
from machine import machine
from scripted_teams import TREES, Policy, chooser, drafter, hidden_profile, librarian, note_taker, planner

import pettingllms_envs
from pettingllms_envs.agents.base import Agent, Null, Oracle, Request, Scripted
from pettingllms_envs.environments.note_taking.rules import NoteTaking
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.episodes.observing import roles_of
from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.prompts import text_of
from pettingllms_envs.replies.reading import UNREADABLE
from pettingllms_envs.replies.reading_counts import form_of
from pettingllms_envs.research.blame import CallsAnew, CallsSubstituted


PROBLEMS, ANSWERS, SUBSTITUTES = 20, 4, 2
SLIP = 0.05
LEAST_COST = 0.10

Member = Callable[[str, random.Random], str]
"""A reply to a prompt, with random numbers of its own."""
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A team of scripted members.

    Args:
        members: Who is sound, by agent.
        said: What of a reply is its content, which a wrong reply has another of.
        other: A wrong content instead of a right one.
        heard: Where a prompt has what a member said last, by member; its group is the content.
        kind: What the prompts of one kind of instances have.
        options: The reset options of a seed.
    """

    env: str
    members: Mapping[str, Policy]
    said: str
    other: Callable[[str, random.Random], str]
    heard: Mapping[str, str]
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Callable[[int], Mapping[str, Any]] = lambda seed: {"split": "test"}

    def wrong(self, reply: str, rng: random.Random) -> str:
        """The reply with another content."""
        return re.sub(self.said, lambda found: self.other(found[0], rng), reply)

    def partner(self, member: str) -> str:
        """The member before it who is heard."""
        names = [name for name in self.members if name in self.heard or name == member]
        return names[names.index(member) - 1]


def _digit(digit: str, rng: random.Random) -> str:
    return rng.choice([each for each in "0123456789" if each != digit])


def _name(name: str, rng: random.Random) -> str:
    return rng.choice([f"{name[0]}{number}" for number in range(8) if f"{name[0]}{number}" != name])


def _walk(walk: str, rng: random.Random) -> str:
    return " ".join(rng.choice([each for each in "UDLR" if each != letter]) for letter in walk.split())


def _tree(tree: str, rng: random.Random) -> str:
    return rng.choice([each for each in TREES if each != tree])


def _wrote(members: Sequence[str], content: str) -> dict[str, str]:
    return {member: rf"The {member} wrote:\n> {content}.*\n" for member in members}


LIBRARIANS, CHOOSERS = ("librarian_0", "librarian_1"), ("member_0", "member_1", "member_2")
TEAMS = (
    Team(
        env="archives",
        settings={"wording": "symbols", "hops": 2, "size": 8, "results": 2},
        members=dict.fromkeys((*LIBRARIANS, "answerer_0"), librarian()),
        said=r"\b[ptrg]\d+",
        other=_name,
        heard=_wrote(LIBRARIANS, r"([ptrg]\d+)"),
        kind=r"Question: [pt]",
    ),
    Team(
        env="note_taking",
        settings={"readings": 4, "values": 10, "digits": 2},
        members=dict.fromkeys(("left_0", "right_0"), note_taker(NoteTaking(4, 10, 2))),
        said=r"\d",
        other=_digit,
        heard={"left_0": r"\nLeft tells you: (\d+)", "right_0": r"\nRight tells you: (\d+)"},
        kind=r"reading 2\.",
    ),
    Team(
        env="plan_path",
        settings={"num_turns": 2},
        members={"drafter_0": drafter, "planner_0": planner},
        said=r"(?<=: )[UDLR].*",
        other=_walk,
        heard={
            "drafter_0": r"\nThe drafter proposes: ([UDLR ]+)\..*",
            "planner_0": r"\nLast turn the planner played: ([UDLR ]+)\..*",
        },
        kind=r"\d up",
    ),
    Team(
        env="hidden_bench",
        settings={"num_turns": 2},
        members=dict.fromkeys(CHOOSERS, chooser),
        said="|".join(TREES),
        other=_tree,
        heard=_wrote(CHOOSERS, r"The (\w+) cannot"),
        kind="autumn",
        options=lambda seed: {"row": hidden_profile(seed)},
    ),
)


def _always_wrong(team: Team, name: str) -> Member:
    return lambda prompt, rng: team.wrong(team.members[name](prompt), rng)


def _wrong_in_half(team: Team, name: str) -> Member:
    wrong = _always_wrong(team, name)
    return lambda prompt, rng: wrong(prompt, rng) if rng.random() < 0.5 else team.members[name](prompt)


def _mute(team: Team, name: str) -> Member:
    return lambda prompt, rng: ""


def _copies(team: Team, name: str) -> Member:
    """Says what its partner said last, where it has heard it; a vote is its own, as those of others are not shown."""

    def reply(prompt: str, rng: random.Random) -> str:
        own, heard = team.members[name](prompt), re.search(team.heard[team.partner(name)], prompt)
        return re.sub(team.said, heard[1], own) if heard and not own.startswith("Vote") else own

    return reply


def _ignores(team: Team, name: str) -> Member:
    return lambda prompt, rng: team.members[name](re.sub(team.heard[team.partner(name)], "", prompt))


def _wrong_in_a_kind(team: Team, name: str) -> Member:
    wrong = _always_wrong(team, name)
    return lambda prompt, rng: wrong(prompt, rng) if re.search(team.kind, prompt) else team.members[name](prompt)


FAULTS: Mapping[str, Callable[[Team, str], Member]] = {
    "always wrong": _always_wrong,
    "wrong in half": _wrong_in_half,
    "mute": _mute,
    "copies its partner": _copies,
    "ignores one partner": _ignores,
    "wrong in one kind": _wrong_in_a_kind,
}


def agent(team: Team, member: Member, slip: float, name: str = "") -> Agent:
    """A member who slips now and then; of another name it has other random numbers."""

    def reply(request: Request) -> str:
        rng = random.Random(f"{name} {request.seed}")
        text = member(text_of(request.messages[-1]["content"]), rng)
        return team.wrong(text, rng) if rng.random() < slip else text

    return Scripted(reply)


class Players:
    """Plays episodes of one team."""

    def __init__(self, team: Team, slip: float) -> None:
        self.team, self._slip = team, slip
        self.env = pettingllms_envs.make(team.env, **team.settings)
        self.roles = {name: role for name, role in roles_of(self.env).items() if name in team.members}

    def sound(self, name: str = "") -> dict[str, Agent]:
        """The team without a planted fault."""
        members = self.team.members.items()
        return {
            each: agent(self.team, lambda prompt, _, own=own: own(prompt), self._slip, name) for each, own in members
        }

    def faulty(self, fault: str, member: str) -> dict[str, Agent]:
        """The team with a fault in a member."""
        return {**self.sound(), member: agent(self.team, FAULTS[fault](self.team, member), self._slip)}

    def places(self, first: int, num: int) -> list[tuple[Instance, int]]:
        """A first episode of each problem."""
        return [(Instance(at, first + at, self.team.options(first + at)), 0) for at in range(num)]

    def play(self, agents: Mapping[str, Agent], places: Sequence[tuple[Instance, int]], seed: int) -> Rows:
        rows = [episode(self.env, where, number, agents, RunLimits(seed=seed)) for where, number in places]
        errors = [row["error"] for row in rows if row["error"]]
        assert not errors, errors[0]
        return rows


def success(rows: Rows) -> float:
    """The share of the episodes that succeed."""
    return sum(bool(row["success"]) for row in rows) / len(rows)


def calls(rows: Rows) -> int:
    """How many replies were asked for."""
    return sum(len(row["steps"]) for row in rows)


Scores = Mapping[str, float]
"""How much speaks against each member."""
Said = Iterator[tuple[str, Scores, int]]
"""A method, what it says, and how many calls it asks for."""


def sought(players: Players, faulty: Mapping[str, Agent], first: int, seed: int) -> Said:
    """What each method says of a faulty team in a run on the problems from `first` on."""
    places = players.places(first, PROBLEMS)
    rows = players.play(faulty, places, seed)
    sound, oracle = players.sound("reference"), dict.fromkeys(faulty, Oracle())
    yield from by_run(rows, tuple(faulty))
    yield from by_blame(players, faulty, rows, seed)
    for name, others in (("", sound), (", oracle", oracle)):
        yield f"substitutes{name}", *by_substitutes(players, faulty, others, rows, seed)
    for name, others in (("", dict.fromkeys(faulty, Null())), (", sound", sound), (", oracle", oracle)):
        yield f"ablation{name}", *by_ablation(players, faulty, others, places, seed)
    reference = players.play(sound, places, seed)
    scores, num = {}, calls(reference)
    for member in faulty:
        repaired = players.play({**faulty, member: sound[member]}, places, seed)
        spoilt = players.play({**sound, member: faulty[member]}, places, seed)
        scores[member] = success(repaired) - success(rows) + success(reference) - success(spoilt)
        num += calls(repaired) + calls(spoilt)
    yield "cross-play", scores, num


def by_run(rows: Rows, members: Sequence[str]) -> Said:
    """What the run says by itself."""
    written, unreadable = Counter[str](), Counter[str]()
    for step in (step for row in rows for step in row["steps"]):
        written[step["agent"]] += len(step["reply"])
        unreadable[step["agent"]] += form_of(step.get("reading") or "") == UNREADABLE
    yield "speaks last", Counter(row["steps"][-1]["agent"] for row in rows), 0
    yield "writes most", written, 0
    yield "most unreadable", unreadable, 0
    yield "lowest return", {member: -sum(row["returns"][member] for row in rows) for member in members}, 0


def by_blame(players: Players, faulty: Mapping[str, Agent], rows: Rows, seed: int) -> Said:
    """The member of the call with the greatest effect, and the one whose calls have most together."""
    again = CallsAnew(rows, 1, ANSWERS)
    effects, num = _anew(players, again, faulty, seed)
    scores, first = Counter[str](), Counter[str]()
    if effects["varied"]:
        first[effects["calls"][0]["agent"]] = 1
        for call in effects["calls"]:
            scores[call["agent"]] += call["mean"]
    yield "blame", first, num
    yield "blame, added up", scores, num


def by_substitutes(
    players: Players, faulty: Mapping[str, Agent], others: Mapping[str, Agent], rows: Rows, seed: int
) -> tuple[Scores, int]:
    """What success gains where another member takes a member's place from its first call on."""
    scores, total = {}, 0
    for member in faulty:
        again = CallsSubstituted(rows, 1, SUBSTITUTES, member)
        found, num = _anew(players, again, {**faulty, member: others[member]}, seed)
        total += num
        if found["calls"]:  # else it is never asked
            scores[member] = found["calls"][0]["gains"]["success"]["mean"]
    return scores, total


def _anew(players: Players, again: CallsAnew, agents: Mapping[str, Agent], seed: int) -> tuple[Any, int]:
    rows = players.play(again.agents(agents), again.places, seed)
    return again.effects(rows), sum(len(row["steps"]) - again.call_of(row["sample"])[0] for row in rows)


def by_ablation(
    players: Players, faulty: Mapping[str, Agent], others: Mapping[str, Agent], places: Any, seed: int
) -> tuple[Scores, int]:
    """Success with all members of a role replaced."""
    cells = {}
    for role in players.roles.values():
        if role not in cells:
            own = {name: (others if players.roles[name] == role else faulty)[name] for name in faulty}
            cells[role] = players.play(own, places, seed)
    scores = {member: success(cells[role]) for member, role in players.roles.items()}
    return scores, sum(map(calls, cells.values()))


def named(members: Sequence[str], scores: Scores, rng: random.Random) -> tuple[str, bool]:
    """The member that most speaks against, and whether it was drawn from several."""
    most = max(scores.get(member, 0.0) for member in members)
    equals = [member for member in members if scores.get(member, 0.0) == most]
    return rng.choice(equals), len(equals) > 1


def measure(teams: Sequence[Team], episodes: int, runs: int, slip: float) -> Iterator[dict[str, Any]]:
    """Each planted fault: what it costs and, where it is scored, whom each method names in each run."""
    for team in teams:
        players = Players(team, slip)
        places = players.places(1_000_000, episodes)
        sound = success(players.play(players.sound(), places, 0))
        for fault, member in itertools.product(FAULTS, team.members):
            faulty = players.faulty(fault, member)
            cost = sound - success(players.play(faulty, places, 0))
            found: dict[str, dict[str, list[Any]]] = {}
            for number in range(runs if cost >= LEAST_COST else 0):
                rng = random.Random(f"{team.env} {fault} {member} {number}")
                for method, scores, num in sought(players, faulty, 1000 * (1 + number), number):
                    own = found.setdefault(method, {"named": [], "drawn": [], "calls": []})
                    for key, value in zip(own, (*named(list(faulty), scores, rng), num), strict=True):
                        own[key].append(value)
            yield {"env": team.env, "fault": fault, "member": member, "sound": sound, "cost": cost, "methods": found}


def shares(planted: Sequence[Mapping[str, Any]], key: str) -> dict[str, dict[str, tuple[int, int]]]:
    """How often the member was named, and of how many: by method, and by the planted faults' values of a key."""
    scored = [each for each in planted if each["methods"]]
    found: dict[str, dict[str, tuple[int, int]]] = {}
    culprits = Counter((each["env"], each["member"]) for each in scored)
    for each in scored:
        team = {member: num for (env, member), num in culprits.items() if env == each["env"]}
        runs = len(each["methods"]["blame"]["named"])
        always = {"named": [max(team, key=lambda member: team[member])] * runs}
        for method, own in {**each["methods"], "most often at fault": always}.items():
            row = found.setdefault(method, {})
            for column in (each[key], "all"):
                right, num = row.get(column, (0, 0))
                row[column] = right + own["named"].count(each["member"]), num + runs
    return found


def tables(planted: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Shares by environment and by fault in percent, with Wilson's 95% intervals; and what was planted."""

    def cell(own: Mapping[str, tuple[int, int]], column: str) -> str:
        if column not in own:
            return "-"
        low, high = wilson(*own[column])
        return f"{100 * own[column][0] / own[column][1]:.0f} [{100 * low:.0f}, {100 * high:.0f}]"

    for key in ("env", "fault"):
        columns = ["all", *dict.fromkeys(each[key] for each in planted)]
        rows = [("", "calls", *columns)]
        for method, own in shares(planted, key).items():
            asked = [num for each in planted for num in each["methods"].get(method, {}).get("calls", ())]
            rows.append(
                (method, f"{sum(asked) / max(1, len(asked)):,.0f}", *(cell(own, column) for column in columns))
            )
        yield f"Named rightly, by {key}, %", rows
    rows = [("", "fault", "member", "success without", "points that it costs")]
    for each in planted:
        points = f"{100 * each['cost']:.1f}" + ("" if each["methods"] else ", not scored")
        rows.append((each["env"], each["fault"], each["member"], f"{100 * each['sound']:.1f}%", points))
    yield "Planted", rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="in which each fault is sought (3)")
    parser.add_argument("--episodes", type=int, default=200, help="that say what a fault costs (200)")
    parser.add_argument("--slip", type=float, default=SLIP, help="share of replies that are wrong anyway (0.05)")
    parser.add_argument("--only", choices=[team.env for team in TEAMS], help="one team")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save what was found")
    given = parser.parse_args(arguments)
    teams = [team for team in TEAMS if given.only in (None, team.env)]
    settings = {"runs": given.runs, "episodes": given.episodes, "slip": given.slip, "problems": PROBLEMS}
    saved: dict[str, Any] = {"machine": machine(), "settings": settings, "planted": []}
    for each in measure(teams, given.episodes, given.runs, given.slip):
        saved["planted"].append(each)
        if given.json is not None:
            given.json.write_text(json.dumps(saved, separators=(",", ":")) + "\n", "ascii")
    for title, rows in tables(saved["planted"]):
        print(f"{title}\n\n{table(rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
