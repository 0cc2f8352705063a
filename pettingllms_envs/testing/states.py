"""Checks that states are what can still matter: pairs of replies are played on with the same replies to the end.

Where two plays are in one state and then differ, the state keeps too little: what compares states would take them for
alike. Where no replies after which nothing differs lead to one state, it keeps too much: replies that mean the same
are never compared. What words do that nobody tried stays unseen.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from pettingllms_envs.episodes.difference import difference, short
from pettingllms_envs.testing import play


MOST_STARTS, MOST_EPISODES, MOST_STEPS = 4, 6, 3_000  # starts, episodes from each, steps in all
FEW, MANY = 4, 12  # pairs of a kind with equal futures, long or not, of which one at least should be in one state
THOUGHT, UNREADABLE, MESSAGES = "Hm.\n", ("blah", "other nonsense"), ("Go north.", "Go south then.")


class Moment(NamedTuple):
    """After a step: what it paid and ended, who acts and is shown what (empty at the end), the digest of the state."""

    paid: dict[str, Any]
    shown: dict[str, Any]
    state: str


class Future(NamedTuple):
    """Whether two replies led to one state at once; all was the same; a message had time to be read by everybody; the
    episode was played to its end, with another decision before it."""

    met: bool
    is_same: bool
    is_long: bool
    is_whole: bool


def check_states(case: play.Case) -> str:
    """Equal digests of states mean equal futures, and some replies with equal futures lead to equal digests."""
    make, _ = play.branched(case.make)
    envs = make(), make()
    if not hasattr(envs[0].unwrapped, "state_hash"):
        raise play.Skipped("it has no state_hash()")
    envs[0].reset(seed=case.starts[0].seed, options=dict(case.starts[0].options) or None)
    if envs[0].metadata.get("state") == "history":
        raise play.Skipped(
            "its states are histories, which nothing compares: in a function, write Ask(..., keeps=...)"
        )
    pairs = Pairs(case, envs)
    for number in range(MOST_EPISODES):
        for start in case.starts[:MOST_STARTS]:
            pairs.play(start, number)
    return pairs.concluded()


class Pairs:
    """Pairs of replies at the decisions of episodes, played on in two environments."""

    def __init__(self, case: play.Case, envs: tuple[Any, Any]) -> None:
        self._case, self._envs = case, envs
        self._steps = self._num = self._decisions = 0
        self._differ: Counter[tuple[str, str]] = Counter()  # those with other futures: who replied, how they differ
        # Those with equal futures, and those of them in one state, also by whether the futures are long.
        self._same: Counter[tuple[tuple[str, str], bool]] = Counter()
        self._met: Counter[tuple[tuple[str, str], bool]] = Counter()

    def play(self, start: play.Start, number: int) -> None:
        """Try pairs at the decisions of an episode, whose replies are drawn with its number."""
        rng = random.Random(f"states {start.seed} {number}")
        env = self._envs[0]
        env.reset(seed=start.seed, options=dict(start.options) or None)
        replies: list[str] = []
        while env.agents and self._steps < MOST_STEPS and len(replies) < self._case.max_steps:
            if play.over(env):
                env.step(None)
                continue
            agent, root, moves = env.agent_selection, play.saver(env)[0](env), self._moves(env, rng)
            self._decisions += 1
            with play.blaming(lambda: play.told(start, replies)):
                for kind, both in _pairs(moves, rng):
                    future = self._future(both, root, rng)
                    self._num += 1
                    self._differ[agent, kind] += not future.is_same
                    if future.is_same and (future.is_long or future.is_whole):
                        self._same[(agent, kind), future.is_long] += 1
                        self._met[(agent, kind), future.is_long] += future.met
            env = self._load(root)
            replies.append(rng.choice(_pool(moves)))
            env.step(replies[-1])
            self._steps += 1

    def concluded(self) -> str:
        """What was tried; raises Warned where an agent's replies never lead to one state, though they might."""
        same, met = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for (kind, is_long), count in self._same.items():
            if is_long or not self._differ[kind]:  # else it is read in other turns, and kept in the last one, too
                same[kind] += count
                met[kind] += self._met[kind, is_long]
        tried = f"{self._num} pairs of replies at {self._decisions} decisions; {same.total()} with equal futures"
        tried += f", {met.total()} of them in one state"
        tried += f"; stopped after {MOST_STEPS} steps" if self._steps >= MOST_STEPS else ""
        enough = {kind for kind, count in same.items() if self._same[kind, True] >= FEW or count >= MANY}
        never = [kind for kind in same if kind[1] and kind in enough and not met[kind]]
        if never:
            what = " and ".join(f"{kind} of {agent}" for agent, kind in never)
            raise play.Warned(
                f"{tried}. The state keeps too much: no {what} led to one state, though what followed was the same. "
                "Leave out of it what nothing reads later: in a function, what Ask(keeps=...) names; in a class, what "
                "only outcome() reports, see state_digest.Reported"
            )
        return tried

    def _moves(self, env: Any, rng: random.Random) -> list[str]:
        ask, blind = play.oracle_of(env), rng.choice(self._case.blind or self._case.pool)
        return [rng.choice(self._case.pool) if ask is None else ask(), blind]

    def _load(self, root: Any) -> Any:
        load = play.saver(self._envs[0])[1]
        self._envs = load(self._envs[0], root), load(self._envs[1], root)
        return self._envs[0]

    def _future(self, both: Sequence[str], root: Any, rng: random.Random) -> Future:
        """Play two replies in one state, and then the same ones after each: several futures, unless one differs."""
        first = self._continued(both, root, rng, rng.choice([None, None, UNREADABLE[0], *both]))
        if not first.is_same or first.met:
            return first
        return next((other for each in both if not (other := self._continued(both, root, rng, each)).is_same), first)

    def _continued(self, both: Sequence[str], root: Any, rng: random.Random, always: str | None) -> Future:
        """One future: of replies that are drawn, or always of the same one."""
        env = self._load(root)
        then, agents, is_same, met_at = list[str](), set[str](), True, None
        while True:
            replies = [then[-1]] * 2 if then else both
            one, other = (_moment(each, reply) for each, reply in zip(self._envs, replies, strict=True))
            self._steps += 2
            shown = difference(one.shown, other.shown) if one.shown and other.shown else None
            found = shown or difference(one.paid, other.paid)
            is_same = is_same and found is None
            if met_at is None and one.state == other.state:
                met_at, found = len(then), shown  # what was paid on the way to one state may differ
            if met_at is not None and found is not None:
                before, after = ([short(each) for each in part] for part in (then[:met_at], then[met_at:]))
                raise play.Failed(
                    f"the state keeps too little: after {short(both[0])} and after {short(both[1])}"
                    f"{f', each then followed by {before}' if before else ''}, state_hash() is the same, and after "
                    f"{after} in both {found}. Keep what decides it: in a function Ask(role, text, keeps=...), in a "
                    "class a field of the state"
                )
            if not (one.shown and other.shown) or len(then) == self._case.max_steps:
                is_over = bool(then) and not (one.shown or other.shown)
                return Future(met_at == 0, is_same, len(then) > 2 * len(agents), is_over)
            agents.add(env.agent_selection)
            then.append(always or rng.choice(_pool(self._moves(env, rng))))


def _pool(moves: Sequence[str]) -> list[str]:
    """Replies at a decision: moves with and without thoughts, unreadable ones, messages."""
    return [*moves, *(f"{THOUGHT}{move}" for move in moves), *UNREADABLE, *MESSAGES]


def _pairs(moves: Sequence[str], rng: random.Random) -> list[tuple[str, Sequence[str]]]:
    """Pairs of replies that differ, with what they are where they should mean the same."""
    move = rng.choice(moves)
    pairs: list[tuple[str, Sequence[str]]] = [
        ("move with and without a thought", (move, f"{THOUGHT}{move}")),
        ("two unreadable replies", UNREADABLE),
        ("two messages", MESSAGES),
        *(("", rng.sample(_pool(moves), 2)) for _ in range(4)),
    ]
    return [(kind, both) for kind, both in pairs if both[0] != both[1]]


def _moment(env: Any, reply: str) -> Moment:
    """Step an environment, past dead steps of agents that are done while others go on."""
    env.step(reply)
    paid = {"rewards": dict(env.rewards), "over": (dict(env.terminations), dict(env.truncations))}
    while (playing := any(not (env.terminations[a] or env.truncations[a]) for a in env.agents)) and play.over(env):
        env.step(None)
    shown = {"agent": env.agent_selection, "prompt": env.observe(env.agent_selection)} if playing else {}
    return Moment(paid, shown, env.unwrapped.state_hash())
