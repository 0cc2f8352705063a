"""Whether `pettingllms blame`, its substitutes, `--ablate` and cross-play name the member that has a planted fault.

    PYTHONPATH=. python benchmarks/bench_planted_faults.py --json benchmarks/results/planted_faults.json

A fault is planted in one member of a team whose members act on their prompts alone. A fault that costs the team fewer
than ten points of success is listed and not scored. Any other is sought in several runs of 20 and of 5 new problems. A
method names one member; where it cannot tell, one of the equals is drawn. Its cost are the calls that it asks for
beyond those of the run.

The members are programs, all of which, the faulty one as well, slip in one reply of twenty; or models, with no slips
but their own, on the task and with the settings of their training, such as those of a study:

    mkdir -p WORK/results && cp -r benchmarks/results/study/teams/tuning WORK/results
    pettingllms study benchmarks/studies/teams.yaml --only 'evaluation/[anp]*/team/1' --work WORK
    PYTHONPATH=. python benchmarks/bench_planted_faults.py --trained WORK/runs/evaluation/*/team/1/team \
      --json benchmarks/results/planted_faults_trained.json

* `blame`: the member in the first row of `blame --replies 4`; `added up`: whose calls' effects add up to the most.
* `substitutes`: who gains most success from its first call on, of `blame --substitute MEMBER=SOUND --replies 2` for
  each member.
* `ablation`: the role that is missed least, of `crossplay --ablate --partners null`; the role whose replacement by
  sound members or the oracle gains most. A member of it is drawn.
* `cross-play`: whose replacement by a sound member gains most, and what the member takes from a sound team added, of
  `crossplay --role MEMBER` for each.

Members in another's place have random numbers of their own; weak ones slip in a quarter of their replies; the oracle
knows the answer. What needs no call: who speaks last, writes most, has most unreadable replies, has the lowest return,
and with hindsight is at fault most often.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from machine import machine
from scripted_teams import FAULTS, SOUND, TEAMS, Fault, Team

import pettingllms_envs
from pettingllms_envs.agents.base import Agent, Null, Oracle, Request, Scripted
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.episodes.episode import Instance, derived_seed, request_to
from pettingllms_envs.episodes.files import place
from pettingllms_envs.episodes.observing import roles_of
from pettingllms_envs.evaluation.agent_pools import open_all
from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.evaluation.teams import read_team, spec_of
from pettingllms_envs.prompts import text_of
from pettingllms_envs.replies.reading import UNREADABLE
from pettingllms_envs.replies.reading_counts import form_of
from pettingllms_envs.research.blame import CallsAnew, CallsSubstituted


PROBLEMS, ANSWERS, SUBSTITUTES = (20, 5), 4, 2
SLIP, OFTEN = 0.05, 0.25
LEAST_COST = 0.10
CONCURRENCY = 32  # episodes of a trained team at once

Rows = Sequence[Mapping[str, Any]]


def agent(team: Team, name: str, own: Agent, slip: float, *, fault: Fault = SOUND, other: str = "") -> Agent:
    """A member who has a fault and slips now and then; as another one it has other random numbers."""

    def reply(request: Request) -> str:
        rng = random.Random(f"{other} {request.seed}")
        *before, last = request.messages
        prompt = text_of(last["content"])
        heard = [*before, {**last, "content": fault.heard(team, name, prompt)}]
        seed = derived_seed(request.seed, other, 0, name, 0) if other else request.seed
        text = fault.said(team, name, prompt, own.reply(replace(request, messages=heard, seed=seed)).text, rng)
        return team.wrong(text, rng) if rng.random() < slip else text

    return Scripted(reply)


class Players:
    """Plays episodes of one team, a few at once.

    Args:
        members: Who play instead of the team's programs.
    """

    def __init__(
        self, team: Team, slip: float, members: Mapping[str, Agent] | None = None, concurrency: int = 1
    ) -> None:
        self.team, self._slip = team, slip
        self._members = members or {
            name: Scripted(lambda request, own=own: own(text_of(request.messages[-1]["content"])))
            for name, own in team.members.items()
        }
        self.env = pettingllms_envs.make(team.env, **team.settings)
        self.roles = {name: role for name, role in roles_of(self.env).items() if name in team.members}
        self._free: SimpleQueue[Any] = SimpleQueue()
        self._free.put(self.env)
        for _ in range(concurrency - 1):
            self._free.put(pettingllms_envs.make(team.env, **team.settings))
        self._threads = ThreadPoolExecutor(concurrency)

    def sound(self, other: str = "", slip: float | None = None) -> dict[str, Agent]:
        """The team without a planted fault."""
        slip = self._slip if slip is None else slip
        return {name: agent(self.team, name, own, slip, other=other) for name, own in self._members.items()}

    def faulty(self, fault: str, member: str) -> dict[str, Agent]:
        """The team with a fault in a member."""
        own = agent(self.team, member, self._members[member], self._slip, fault=FAULTS[fault])
        return {**self.sound(), member: own}

    def places(self, first: int, num: int) -> list[tuple[Instance, int]]:
        """A first episode of each problem."""
        return [(Instance(at, first + at, self.team.options(first + at)), 0) for at in range(num)]

    def play(self, agents: Mapping[str, Agent], places: Sequence[tuple[Instance, int]], seed: int) -> Rows:
        """Play whole episodes. Steps also have the state before them, and what was paid before."""
        return list(self._threads.map(lambda which: self._played(agents, which, seed), places))

    def play_on(self, agents: Mapping[str, Agent], again: CallsAnew, seed: int) -> Rows:
        """Play from calls on: what `again.agents` would play, without playing the replies before once more."""
        runs = {place(row): row for row in again.rows}

        def played(which: tuple[Instance, int]) -> Mapping[str, Any]:
            call, sample = again.call_of(which[1])
            *before, first = runs[which[0].index, sample]["steps"][: call + 1]
            return self._played(agents, which, seed, before, first)

        return list(self._threads.map(played, again.places))

    def _played(
        self,
        agents: Mapping[str, Agent],
        which: tuple[Instance, int],
        seed: int,
        steps: Sequence[Mapping[str, Any]] = (),
        at: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """Play an episode from its beginning, or from the step `at` on, which follows on others."""
        where, number = which
        with self._env() as env:
            if at is None:
                env.reset(seed=where.seed, options=dict(where.options))
                paid = dict.fromkeys(env.agents, 0.0)
            else:
                env.restore(at["before"])
                paid = dict(at["paid"])
            steps = [*steps, *self._steps(env, agents, which, seed, len(steps), paid)]
            won = env.standing() == "solved"
        instance = {
            "index": where.index,
            "env": self.team.env,
            "seed": where.seed,
            "options": where.options,
            "problem": None,
        }
        return {"instance": instance, "sample": number, "steps": steps, "returns": paid, "success": won, "error": None}

    @contextmanager
    def _env(self) -> Iterator[Any]:
        env = self._free.get()
        try:
            yield env
        finally:
            self._free.put(env)

    @staticmethod
    def _steps(
        env: Any,
        agents: Mapping[str, Agent],
        which: tuple[Instance, int],
        seed: int,
        step: int,
        paid: dict[str, float],
    ) -> Iterator[dict[str, Any]]:
        """Play to the end, and add to what was paid."""
        where, number = which
        while not env.standing():
            name = env.agent_selection
            own = derived_seed(seed, where.key, number, name, step)
            before = {"agent": name, "before": env.snapshot(), "paid": dict(paid)}
            request = request_to(env, seed=own, step=step, instance=where.index, sample=number)
            reply = agents[name].reply(request).text
            env.step(reply)
            yield {**before, "reply": reply, "reading": env.reading}
            step += 1
            for agent, reward in env.rewards.items():
                paid[agent] += reward


def trained(folder: Path) -> Players:
    """Players of a team that was trained, on the task and with the settings of its training."""
    saved, known = read_team(folder), {f"{team.env}_v0": team for team in TEAMS}
    if saved.environment not in known:
        raise ValueError(f"{saved}; expected one of {', '.join(known)}. Name another team.")
    (settings,) = saved.settings[saved.environment]
    team = replace(known[saved.environment], settings=settings)
    own = AgentSpec("team", str(folder), {})
    roles = roles_of(pettingllms_envs.make(team.env, **settings))
    specs = {name: spec_of(own, name, roles[name], {}) for name in team.members}
    return Players(team, 0.0, open_all(specs, CONCURRENCY).agents, CONCURRENCY)


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


def sought(players: Players, faulty: Mapping[str, Agent], first: int, num: int, seed: int) -> Said:
    """What each method says of a faulty team in a run on the problems from `first` on."""
    places = players.places(first, num)
    rows = players.play(faulty, places, seed)
    sound, oracle = players.sound("reference"), dict.fromkeys(faulty, Oracle())
    yield from by_run(rows, tuple(faulty))
    yield from by_blame(players, faulty, rows, seed)
    for name, others in (("", sound), (", weak", players.sound("weak", OFTEN)), (", oracle", oracle)):
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
    rows = players.play_on(agents, again, seed)
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


def planted_in(players: Players, episodes: int) -> Iterator[dict[str, Any]]:
    """The faults of a team, and what success each takes."""
    places = players.places(1_000_000, episodes)
    sound = success(players.play(players.sound(), places, 0))
    for fault, member in itertools.product(FAULTS, players.team.members):
        cost = sound - success(players.play(players.faulty(fault, member), places, 0))
        found: dict[str, Any] = {}
        yield {
            "env": players.team.env,
            "fault": fault,
            "member": member,
            "sound": sound,
            "cost": cost,
            "methods": found,
        }


def seek(players: Players, planted: Mapping[str, Any], number: int) -> None:
    """Add whom each method names in a run, whether it was drawn, and for how many calls it asks."""
    faulty = players.faulty(planted["fault"], planted["member"])
    for problems in PROBLEMS:
        rng = random.Random(f"{planted['env']} {planted['fault']} {planted['member']} {number} {problems}")
        methods = planted["methods"].setdefault(str(problems), {})
        for method, scores, num in sought(players, faulty, 1000 * (1 + number), problems, number):
            own = methods.setdefault(method, {"named": [], "drawn": [], "calls": []})
            for key, value in zip(own, (*named(list(faulty), scores, rng), num), strict=True):
                own[key].append(value)


def shares(planted: Sequence[Mapping[str, Any]], key: str, problems: int) -> dict[str, dict[str, tuple[int, int]]]:
    """How often the member was named, and of how many: by method, and by the planted faults' values of a key."""
    scored = [each for each in planted if each["methods"]]
    found: dict[str, dict[str, tuple[int, int]]] = {}
    culprits = Counter((each["env"], each["member"]) for each in scored)
    for each in scored:
        methods = each["methods"][str(problems)]
        team = {member: num for (env, member), num in culprits.items() if env == each["env"]}
        runs = len(methods["blame"]["named"])
        always = {"named": [max(team, key=lambda member: team[member])] * runs}
        for method, own in {**methods, "most often at fault": always}.items():
            row = found.setdefault(method, {})
            for column in (each[key], "all"):
                right, num = row.get(column, (0, 0))
                row[column] = right + own["named"].count(each["member"]), num + runs
    return found


def asked(planted: Sequence[Mapping[str, Any]], method: str, problems: int) -> str:
    """The calls of a method, the mean of all runs."""
    found = [
        each["methods"][str(problems)].get(method, {"calls": [0]})["calls"] for each in planted if each["methods"]
    ]
    return f"{sum(map(sum, found)) / sum(map(len, found)):,.0f}"


def percent(own: Mapping[str, tuple[int, int]], column: str) -> str:
    """A share with Wilson's 95% interval."""
    if column not in own:
        return "-"
    low, high = wilson(*own[column])
    return f"{100 * own[column][0] / own[column][1]:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def tables(planted: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Shares by environment and by fault in percent; and what was planted."""
    many, few = PROBLEMS
    for key in ("env", "fault"):
        columns = ["all", *dict.fromkeys(each[key] for each in planted)]
        rows = [("", "calls", *columns, f"calls, {few} problems", "all")]
        fewer = shares(planted, key, few)
        for method, own in shares(planted, key, many).items():
            of_few = asked(planted, method, few), percent(fewer[method], "all")
            rows.append((method, asked(planted, method, many), *(percent(own, each) for each in columns), *of_few))
        yield f"Named rightly in %, by {key}", rows
    rows = [("", "fault", "points of success that it costs, by member; in brackets: not scored")]
    for (env, fault), own in itertools.groupby(planted, key=lambda each: (each["env"], each["fault"])):
        costs = ((each["member"], f"{100 * each['cost']:.1f}", each["methods"]) for each in own)
        cells = (f"{member} {cost}" if methods else f"({member} {cost})" for member, cost, methods in costs)
        rows.append((env, fault, ", ".join(cells)))
    yield "Planted", rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and save, or read what was saved, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2, help="in which each fault is sought (2)")
    parser.add_argument("--episodes", type=int, default=200, help="that say what a fault costs (200)")
    parser.add_argument("--slip", type=float, default=SLIP, help="share of replies that are wrong anyway (0.05)")
    teams = parser.add_mutually_exclusive_group()
    teams.add_argument("--only", choices=[team.env for team in TEAMS], help="one team")
    teams.add_argument("--trained", nargs="+", type=Path, metavar="FOLDER", help="teams that were trained and saved")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save what was found after each run")
    parser.add_argument("--saved", type=Path, metavar="FILE", help="print this file's tables instead")
    given = parser.parse_args(arguments)
    saved = measure(given) if given.saved is None else json.loads(given.saved.read_text("ascii"))
    for title, (head, *rows) in tables(saved["planted"]):
        lines = (" | ".join(row) for row in (head, ["---"] * len(head), *rows))
        print(f"## {title}\n", *(f"| {line} |" for line in lines), "", sep="\n")
    return 0


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Plant and seek as the options say."""
    if given.trained is None:
        players = {team.env: Players(team, given.slip) for team in TEAMS if given.only in (None, team.env)}
    else:
        players = {(own := trained(folder)).team.env: own for folder in given.trained}
    slip = given.slip if given.trained is None else 0.0
    settings = {"episodes": given.episodes, "slip": slip, "problems": PROBLEMS}
    saved: dict[str, Any] = {"machine": machine(), "settings": settings, "planted": []}
    for own in players.values():
        saved["planted"] += planted_in(own, given.episodes)
    for number in range(given.runs):
        for each in saved["planted"]:
            if each["cost"] >= LEAST_COST:
                seek(players[each["env"]], each, number)
        if given.json is not None:
            given.json.write_text(json.dumps(saved, separators=(",", ":")) + "\n", "ascii")
        print(f"{number + 1} of {given.runs} runs", file=sys.stderr, flush=True)
    return saved


if __name__ == "__main__":
    sys.exit(main())
