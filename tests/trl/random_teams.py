"""Random environments and rollouts, each determined by its number, for tests that compare whole rollouts."""

from __future__ import annotations

import copy
import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pettingllms_trl.records import Completion, Request, Sampled
from third_party import PlainEnv


def rng(*place: Any) -> random.Random:
    """A generator of random numbers that the place determines."""
    return random.Random(hashlib.sha256("/".join(map(str, place)).encode()).digest())


class Failures:
    """Which replies an environment fails at, and how often; replies differ in their tickets, so attempts do, too.

    Args:
        share: Share of the replies; half of them fail once, the others always.
        always: Whether there are such.
        seconds: How long a failing step hangs instead of raising.
    """

    def __init__(self, share: float, *, always: bool, seconds: float = 0.0) -> None:
        self.share, self.always, self.seconds = share, always, seconds
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def check(self, row: int, depth: int, reply: str) -> None:
        """Raise or hang if a step fails: by the row, the decision, and the reply, whose ticket says the attempt."""
        draw = rng("fails", row, depth, reply)
        if not reply or draw.random() >= self.share:
            return
        with self._lock:
            self._counts[f"{row}/{depth}/{reply}"] += 1
            is_first = self._counts[f"{row}/{depth}/{reply}"] == 1
        if is_first or (self.always and draw.random() < 0.5):
            time.sleep(self.seconds)
            raise draw.choice([OSError, RuntimeError])(f"step {depth} failed")


class Team(PlainEnv):
    """Agents join and leave, pay each other, and end by termination or truncation; all is determined by its number."""

    metadata: ClassVar[dict[str, Any]] = {"name": "team", "render_modes": []}

    def __init__(self, number: int, failures: Failures) -> None:
        self.number, self.failures = number, failures
        self.possible_agents = [f"{name}_{i}" for name in "ab" for i in range(rng(number).randint(1, 2))]

    def observe(self, agent: str) -> Any:
        shown = f"{agent} of {self.number}, row {self.row}: {'|'.join(self.said)}"
        system = {"system": "Be brief."} if self.number % 3 == 0 else {}
        return {"text": shown, "followup": self.said[-1] if self.said else "", **system} if self.number % 2 else shown

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        draw = rng(self.number, seed)
        self.row, self.said = seed, list[str]()
        self.agents = self.possible_agents[: draw.randint(1, len(self.possible_agents))]
        self.agent_selection = draw.choice(self.agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"outcome": {"said": 0}} for agent in self.agents}

    def step(self, action: str | None) -> None:
        if action is None:
            self.agents = [name for name in self.agents if name != self.agent_selection]
            self.agent_selection = min(self.agents, key=self._turn_of, default=self.agent_selection)
            return
        self.failures.check(self.row, len(self.said), action)
        draw, actor = rng(self.number, self.row, self.said, action), self.agent_selection
        self.said = [*self.said, action]
        for name in self.possible_agents:
            if name not in self.agents and draw.random() < 0.2:
                self.agents = [*self.agents, name]
                self.terminations[name] = self.truncations[name] = False
                self._cumulative_rewards[name] = 0.0
        self.rewards = {name: float(draw.randint(-2, 2)) / 4 for name in self.agents}
        talk, team = self.rewards[actor] - 0.5, 0.5
        self.infos = {name: {"outcome": {"said": len(self.said)}} for name in self.agents}
        self.infos[actor] |= {"rewards": {"talk": talk, "team": team}, "team_rewards": ["team"]}
        if len(self.said) == 2 + self.number % 4 or draw.random() < 0.08:
            ends = self.truncations if draw.random() < 0.5 else self.terminations
            ends.update(dict.fromkeys(self.agents, True))
        elif len(self.agents) > 1 and draw.random() < 0.15:
            self.terminations[draw.choice(self.agents)] = True
        self.agent_selection = draw.choice(self.agents)

    def _turn_of(self, agent: str) -> float:
        return rng(self.number, self.said, agent).random()


class Restorable(Team):
    """With `snapshot` and `restore`; it is not copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("copied, though it can be restored")

    def snapshot(self) -> dict[str, Any]:
        return copy.deepcopy({name: value for name, value in vars(self).items() if name != "failures"})

    def restore(self, snapshot: dict[str, Any]) -> None:
        vars(self).update(copy.deepcopy(snapshot))

    def state_hash(self) -> str:
        return hashlib.sha256(repr((self.row, self.said)).encode()).hexdigest()[:8]


class Copied(Team):
    """Without snapshots."""

    def __deepcopy__(self, memo: Any) -> Any:
        twin = type(self)(self.number, self.failures)
        vars(twin).update(copy.deepcopy({name: value for name, value in vars(self).items() if name != "failures"}))
        return twin


class Replayed(Copied):
    """Played again from its reset."""

    metadata: ClassVar[dict[str, Any]] = {**Team.metadata, "branching": "replay"}


KINDS = (Restorable, Copied, Replayed)


class Seeded:
    """Answers by the ticket, the rollout's seed, the agent, the prompt and the candidate, in batches or in any order.

    With `shared` it draws from one generator, as a model in this process does: then the order of requests counts, too.
    """

    is_remote = False

    def __init__(self, seed: int, *, is_batched: bool, shared: bool = False) -> None:
        self.is_batched, self._seed = is_batched, seed
        self._order, self._shared = rng("order", seed), rng("shared", seed) if shared else None
        self._open: dict[int, Request] = {}

    def submit(self, ticket: int, request: Request) -> None:
        assert ticket not in self._open, f"ticket {ticket} asks while it waits"
        self._open[ticket] = request

    def step(self, timeout: float = 0.0) -> Sequence[tuple[int, Sampled]]:
        number = len(self._open) if self.is_batched else self._order.randint(0, len(self._open))
        tickets = list(self._open) if self.is_batched else self._order.sample(sorted(self._open), number)
        return [(ticket, self._answer(ticket, self._open.pop(ticket))) for ticket in tickets]

    def _answer(self, ticket: int, request: Request) -> Sampled:
        completions = []
        for k in range(request.num_candidates):
            place = (self._seed, ticket, request.agent, request.prompt.messages, request.seed, request.prompt.tools, k)
            draw = self._shared or rng(*place)
            text = "".join(draw.choices("AZ", k=2)) + f"{ticket}.{k}"
            logprobs = tuple(-draw.random() for _ in text)
            completions.append(Completion(ids=tuple(text.encode()), text=text, logprobs=logprobs, finish="stop"))
        ids = request.prompt.ids or tuple(repr(request.prompt.messages).encode())
        return Sampled(replace(request.prompt, ids=ids), tuple(completions), policy_version=ticket)
