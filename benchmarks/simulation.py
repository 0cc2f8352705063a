"""A rollout on a clock that runs as fast as it is computed: an engine's decoding steps, and environments that wait.

Rollouts of one seed differ in nothing but time: how long each candidate is, how long the environment takes for it and
what it is worth are drawn for its place (instance, agent, turn, k) alone.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from gymnasium import spaces
from pettingzoo import AECEnv

from pettingllms_trl.records import Completion, Prompt, Request, Sampled
from pettingllms_trl.rollout.workers import Done, Job, ThreadPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast an engine is: a decoding step of B sequences takes `step_s + row_s * B` seconds.

    Args:
        name: What it is modelled on.
        step_s: Of a step with nothing in it.
        row_s: More for each sequence.
        prefill_s: For a prompt, once for all its candidates, which share the prefix.
        max_num_seqs: Sequences decoded at a time; others wait in the order in which they came.
    """

    name: str
    step_s: float
    row_s: float
    prefill_s: float
    max_num_seqs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is played.

    Args:
        instances: Environments in play.
        turns: Of each of the two agents.
        is_uneven: Draw each instance's turns, from 1 to `2 * turns - 1`, all as likely.
        candidates: K, sampled for each decision.
        tokens: Mean length of a completion; lognormal, its deviation as large as its mean.
        longest: Most tokens of a completion.
        env_s: Least and greatest time of an environment's step; lognormal, these two deviations from the median.
        seed: Names all draws.
    """

    instances: int = 64
    turns: int = 4
    is_uneven: bool = False
    candidates: int = 8
    tokens: int = 300
    longest: int = 2048
    env_s: tuple[float, float] = (0.03, 2.0)
    seed: int = 0

    def num_tokens(self, place: str, k: int) -> int:
        """Length of the k-th candidate at a place."""
        sigma = math.sqrt(math.log(2))  # coefficient of variation 1
        draw = random.Random(f"tokens/{self.seed}/{place}/{k}").lognormvariate(
            math.log(self.tokens) - sigma**2 / 2, sigma
        )
        return min(max(round(draw), 1), self.longest)

    def step_seconds(self, place: str, k: int) -> float:
        """How long the environment takes for it."""
        least, most = self.env_s
        sigma = math.log(most / least) / 4
        draw = random.Random(f"env/{self.seed}/{place}/{k}").lognormvariate(math.log(least * most) / 2, sigma)
        return min(max(draw, least), most)

    def reward(self, place: str, k: int) -> float:
        """What it is worth."""
        return random.Random(f"reward/{self.seed}/{place}/{k}").random()

    def places(self, instance: int) -> list[str]:
        """The decisions of an instance, as its prompts name them, in their order."""
        turns = self.turns
        if self.is_uneven:
            turns = random.Random(f"turns/{self.seed}/{instance}").randint(1, 2 * self.turns - 1)
        return [f"{instance} {agent} {turn}" for turn in range(turns) for agent in Game.possible_agents]


class Clock(Protocol):
    """Whose seconds count."""

    def now(self) -> float: ...

    def spend(self, seconds: float) -> None: ...

    def work(self, seconds: float) -> None:
        """An environment works, on whatever thread it is."""
        ...


class WallClock:
    """The real one: both sleep."""

    def now(self) -> float:
        return time.perf_counter()

    def spend(self, seconds: float) -> None:
        time.sleep(seconds)

    work = spend


class SimulatedClock:
    """Goes on when the engine works; what environments work is added up for the workers to place."""

    def __init__(self) -> None:
        self.time = 0.0
        self.worked = 0.0

    def now(self) -> float:
        return self.time

    def spend(self, seconds: float) -> None:
        self.time += seconds

    def work(self, seconds: float) -> None:
        self.worked += seconds


class SimulatedThreads:
    """A pool of so many workers on a simulated clock; see `pettingllms_trl.rollout.workers.WorkerPool`.

    A job is done as it comes, and said to be done when a worker would have been free for it and finished it.

    Args:
        clock: What environments work is added to.
        number: Of workers.
        in_turn: Have the candidates of a decision played one after the other, whatever the number.
    """

    def __init__(self, clock: SimulatedClock, number: int, *, in_turn: bool = False) -> None:
        self.num_workers = 1 if in_turn else number
        self._clock = clock
        self._free_at = [0.0] * number
        self._ends: list[tuple[float, int]] = []

    def now(self) -> float:
        """Goes on in a job, too, by what its environment works."""
        return self._clock.time + self._clock.worked

    def submit(self, ticket: int, job: Job, handle: object) -> None:
        """Take a job. What it raises ends the benchmark."""
        before = self._clock.worked
        job()
        begin = max(self._clock.time, self._free_at[0])
        end = begin + self._clock.worked - before
        heapq.heapreplace(self._free_at, end)
        heapq.heappush(self._ends, (end, ticket))

    def done(self, *, block: bool) -> Sequence[Done]:
        if block:
            self._clock.time = max(self._clock.time, self._ends[0][0])
        done: list[Done] = []
        while self._ends and self._ends[0][0] <= self._clock.time:
            done.append((heapq.heappop(self._ends)[1], None))
        return done

    def close(self) -> None:
        """See `WorkerPool`."""


class InTurn(ThreadPool):
    """Real threads on which the candidates of a decision are played one after the other."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.num_workers = 1


class SimulatedEngine:
    """Continuous batching; see `pettingllms_trl.records.Engine`.

    Args:
        clock: On which it works.
        speed: How fast.
        workload: Says how long each completion is.
        is_batched: Answer all requests together, when the last is done.
    """

    def __init__(self, clock: Clock, speed: Speed, workload: Workload, *, is_batched: bool) -> None:
        self.is_batched = is_batched
        self.busy = 0.0
        self.tokens = 0
        self._clock, self._speed, self._workload = clock, speed, workload
        self._steps = 0
        self._waiting: deque[tuple[int, int, int]] = deque()  # ticket, k, tokens
        self._running: list[tuple[int, int]] = []  # the step after which it ends, ticket
        self._width: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def submit(self, ticket: int, request: Request) -> None:
        self._width[ticket] = self._left[ticket] = request.num_candidates
        for k in range(request.num_candidates):
            self._waiting.append((ticket, k, self._workload.num_tokens(request.prompt.messages[0]["content"], k)))

    def step(self) -> Sequence[tuple[int, Sampled]]:
        """One decoding step, or, in waves, as many as it takes."""
        answered = self._decode()
        while self.is_batched and self._left:
            answered += self._decode()
        return [(ticket, Sampled(Prompt((), (0,)), CANDIDATES[: self._width.pop(ticket)])) for ticket in answered]

    def _decode(self) -> list[int]:
        seconds = self._speed.step_s
        while self._waiting and len(self._running) < self._speed.max_num_seqs:
            ticket, k, tokens = self._waiting.popleft()
            heapq.heappush(self._running, (self._steps + tokens, ticket))
            self.tokens += tokens
            seconds += self._speed.prefill_s * (k == 0)
        seconds += self._speed.row_s * len(self._running)
        before = self._clock.now()
        self._clock.spend(seconds)
        self.busy += self._clock.now() - before
        self._steps += 1
        answered = []
        while self._running and self._running[0][0] <= self._steps:
            _, ticket = heapq.heappop(self._running)
            self._left[ticket] -= 1
            if not self._left[ticket]:
                del self._left[ticket]
                answered.append(ticket)
        return answered


CANDIDATES = tuple(Completion(ids=(k,), text=str(k)) for k in range(64))


class Game(AECEnv):
    """Two agents in turn; each step takes the time and gives the reward that the workload says."""

    metadata: ClassVar = {"name": "simulated", "render_modes": []}
    possible_agents = ("drafter", "judge")

    def __init__(self, workload: Workload, clock: Clock) -> None:
        self._workload, self._clock = workload, clock
        self._places: list[str] = []
        self._taken = 0
        self.infos = {agent: {} for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """The seed is the instance."""
        assert seed is not None
        self._places = self._workload.places(seed)
        self._take(0, 0.0)

    def observe(self, agent: str) -> str:
        return self._places[self._taken]

    def step(self, action: str | None) -> None:
        """An action is the candidate's number; `None` an agent's farewell."""
        if action is None:
            self.agents = []
            return
        place, k = self._places[self._taken], int(action)
        self._clock.work(self._workload.step_seconds(place, k))
        self._take(self._taken + 1, self._workload.reward(place, k))

    def snapshot(self) -> int:
        """How many decisions were taken."""
        return self._taken

    def restore(self, snapshot: int) -> None:
        self._take(snapshot, 0.0)

    def _take(self, taken: int, reward: float) -> None:
        self._taken = taken
        over = taken == len(self._places)
        self.agents = list(self.possible_agents)
        self.agent_selection = self.possible_agents[taken % 2]
        self.rewards = dict.fromkeys(self.agents, reward)
        self.terminations = dict.fromkeys(self.agents, over)
        self.truncations = dict.fromkeys(self.agents, False)
