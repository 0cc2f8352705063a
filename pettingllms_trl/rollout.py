"""Plays many environments at once, as trees or in parallel, and returns episodes. Needs no torch.

`play` asks for tokens by one function, `sample`, and knows neither models nor policies. All environments in play put
their requests together, so the sampler sees large batches; as soon as an episode ends, the next row takes its place.
"""

from __future__ import annotations

import copy
import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pettingzoo import AECEnv

from pettingllms_trl.records import Candidate, Completion, Decision, Episode, Message


MakeEnv = Callable[[], AECEnv]
Row = Mapping[str, Any]
"""A row of the data set: `seed` and whatever the environment's `reset(options=...)` takes."""


@dataclass(frozen=True, slots=True)
class Request:
    """`num_candidates` completions are wanted of the policy of `agent`, after `prompt`."""

    agent: str
    prompt: Sequence[Message]
    num_candidates: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """The answer to a request: the prompt's ids as the model got them, and the completions."""

    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]


Sample = Callable[[Sequence[Request]], Sequence[Sampled]]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a reward function of the user's may look at: a decision whose candidates are sampled but not yet judged."""

    row: Row
    agent: str
    turn: int
    prompt: Sequence[Message]
    completions: Sequence[Completion]


Judge = Callable[[Choice], Sequence[Mapping[str, float]]]
"""For each completion of a choice, named rewards to be added to the environment's."""


def play(
    rows: Sequence[Row],
    *,
    make_env: MakeEnv,
    pool: list[AECEnv] | None = None,
    sample: Sample,
    judge: Judge | None = None,
    sampling: Literal["tree", "parallel"],
    num_candidates: int,
    seed: str,
    default_env_seed: int = 0,
    max_envs: int | None = None,
    max_turns: int | None = None,
) -> list[Episode]:
    """Play every row: one tree each, or `num_candidates` independent episodes each.

    Args:
        rows: Instances. `row["seed"]` seeds the environment, the other fields are its reset options.
        make_env: Called as many times as environments are in play at once; they are reset and used again.
        pool: Environments made before, used first; all that were in play are left in it.
        sample: Completions for a batch of requests, in their order.
        judge: Rewards beside the environment's, added before the best candidate is chosen.
        sampling: `"tree"`: K candidates for each decision, the best is played on, ties broken by chance.
            `"parallel"`: K episodes of each row, one candidate for each decision.
        num_candidates: K.
        seed: Names the rollout. Ties are broken by it and the decision's place alone, whatever else is in play.
        default_env_seed: Seeds the environment where a row has no seed.
        max_envs: Bound on the environments in play at once.
        max_turns: An episode ends when an agent would decide more often.

    Returns:
        Episodes in the order of rows, then of episodes.

    Raises:
        TypeError: An agent is shown something that is not text.
        ValueError: The environment gave a reward that is not a finite number.
    """
    num_episodes, width = (1, num_candidates) if sampling == "tree" else (num_candidates, 1)
    places = [(i, e) for i in range(len(rows)) for e in range(num_episodes)]
    limit = len(places) if max_envs is None else max_envs
    waiting: Iterator[tuple[int, int]] = iter(places)
    idle = [] if pool is None else pool
    idle += [make_env() for _ in range(min(limit, len(places)) - len(idle))]
    running: list[_Run] = []
    ended: dict[tuple[int, int], Episode] = {}
    while len(ended) < len(places):
        queue, still = deque(running), list[_Run]()
        while queue or len(still) < limit:
            if queue:
                run = queue.popleft()
            elif (place := next(waiting, None)) is not None:
                run = _Run(idle.pop(), *place, row=rows[place[0]], seed=seed)
                run.start(default_env_seed)
            else:
                break
            if run.await_agent(max_turns):
                still.append(run)
            else:
                ended[run.instance, run.episode] = run.finish()
                idle.append(run.env)
        running = still
        requests = [Request(run.agent, run.prompt, width) for run in running]
        if requests:
            for run, sampled in zip(running, sample(requests), strict=True):
                run.decide(sampled, judge)
    return [ended[place] for place in places]


def prompt_of(observation: Any, *, agent: str) -> list[Message]:
    """An observation as chat messages: `{"text": ..., "system": ...}` (system optional), or a plain string.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(observation, str):
        return [{"role": "user", "content": observation}]
    if isinstance(observation, Mapping) and isinstance(observation.get("text"), str):
        system = observation.get("system")
        lead = [{"role": "system", "content": system}] if system else []
        return [*lead, {"role": "user", "content": observation["text"]}]
    given = type(observation).__name__
    if isinstance(observation, Mapping):
        given = f"a mapping with the keys {sorted(observation)}"
    raise TypeError(
        f"agent {agent!r} observes {given}, expected text: a str, or a dict with a str under 'text' and, if you like, "
        "one under 'system'. Wrap the environment so that observe() returns what the model shall read."
    )


class _Run:
    """An environment in the middle of an episode: it waits for an agent's completions, then goes on."""

    def __init__(self, env: AECEnv, instance: int, episode: int, *, row: Row, seed: str) -> None:
        self.env = env
        self.row = row
        self.instance = instance
        self.episode = episode
        self.agent = ""
        self.prompt: list[Message] = []
        self._seed = seed
        self._decisions: list[Decision] = []
        self._returns: dict[str, float] = {}
        self._outcome: Mapping[str, Any] = {}
        self._turns: dict[str, int] = {}

    def start(self, default_env_seed: int) -> None:
        options = {name: value for name, value in self.row.items() if name != "seed"}
        self.env.reset(seed=self.row.get("seed", default_env_seed), options=options or None)
        self._returns = dict.fromkeys(self.env.possible_agents, 0.0)

    def await_agent(self, max_turns: int | None) -> bool:
        """Go to the next agent that decides; False where the episode is over."""
        env = self.env
        while env.agents:
            agent = env.agent_selection
            if env.terminations[agent] or env.truncations[agent]:
                env.step(None)  # PettingZoo's farewell step of an agent that is done
                continue
            if max_turns is not None and self._turns.get(agent, 0) >= max_turns:
                return False
            self.agent = agent
            self.prompt = prompt_of(env.observe(agent), agent=agent)
            return True
        return False

    def decide(self, sampled: Sampled, judge: Judge | None) -> None:
        """Play every completion on a branch of its own and go on from the best."""
        state = _state_hash(self.env)
        turn = self._turns.get(self.agent, 0)
        branches = list(_play_branches(self.env, self.agent, sampled.completions))
        if judge is not None:
            choice = Choice(self.row, self.agent, turn, self.prompt, sampled.completions)
            branches = [_add(self.agent, b, more) for b, more in zip(branches, judge(choice), strict=True)]
        rewards = [branch.candidate.reward for branch in branches]
        best = [k for k, reward in enumerate(rewards) if reward == max(rewards)]
        place = f"{self._seed}/{self.instance}/{self.episode}/{self.agent}/{turn}"
        chosen = best[0] if len(best) == 1 else random.Random(place).choice(best)
        self.env = branches[chosen].resume()
        for agent, reward in branches[chosen].rewards.items():
            self._returns[agent] = self._returns.get(agent, 0.0) + reward
        self._outcome = branches[chosen].outcome
        self._turns[self.agent] = turn + 1
        self._decisions.append(
            Decision(
                instance=self.instance,
                episode=self.episode,
                agent=self.agent,
                turn=turn,
                prompt=self.prompt,
                prompt_ids=sampled.prompt_ids,
                candidates=tuple(branch.candidate for branch in branches),
                chosen=chosen,
                state=state,
            )
        )

    def finish(self) -> Episode:
        return Episode(
            instance=self.instance,
            episode=self.episode,
            decisions=tuple(replace(d, episode_return=self._returns[d.agent]) for d in self._decisions),
            returns=self._returns,
            outcome=self._outcome,
        )


@dataclass(frozen=True, slots=True)
class _Branch:
    """What a candidate led to: every agent's reward, the outcome so far, and the way back to the state it reached."""

    candidate: Candidate
    rewards: Mapping[str, float]
    outcome: Mapping[str, Any]
    resume: Callable[[], AECEnv]


def _play_branches(env: AECEnv, agent: str, completions: Sequence[Completion]) -> Iterator[_Branch]:
    """Step each completion from the environment's present state; no branch sees another's.

    An environment with `snapshot()` and `restore()` goes back and forth; any other is deep-copied.
    """
    game = env.unwrapped
    if len(completions) == 1:
        yield _step(env, agent, completions[0])
    elif hasattr(game, "snapshot") and hasattr(game, "restore"):
        before = game.snapshot()
        for completion in completions:
            game.restore(before)
            branch = _step(env, agent, completion)
            yield replace(branch, resume=_restorer(env, game.snapshot()))
    else:
        for completion in completions:
            yield _step(copy.deepcopy(env), agent, completion)


def _add(agent: str, branch: _Branch, more: Mapping[str, float]) -> _Branch:
    """The branch with further rewards for the agent that acted."""
    candidate, extra = branch.candidate, sum(more.values())
    return replace(
        branch,
        candidate=replace(candidate, reward=candidate.reward + extra, parts={**candidate.parts, **more}),
        rewards={**branch.rewards, agent: branch.rewards[agent] + extra},
    )


def _restorer(env: AECEnv, snapshot: Any) -> Callable[[], AECEnv]:
    def resume() -> AECEnv:
        env.unwrapped.restore(snapshot)
        return env

    return resume


def _step(env: AECEnv, agent: str, completion: Completion) -> _Branch:
    env.step(completion.text)
    rewards = {name: float(reward) for name, reward in env.rewards.items()}
    if not all(map(math.isfinite, rewards.values())):
        raise ValueError(
            f"the environment gave {rewards} after {agent!r} said {completion.text[:200]!r}; rewards must be finite"
        )
    info = env.infos.get(agent, {})  # read now: an agent that is done takes its info along when it leaves
    candidate = Candidate(
        completion=completion,
        reward=rewards[agent],
        parts=dict(info.get("rewards", {})),
        state=_state_hash(env),
    )
    return _Branch(candidate, rewards, dict(info.get("outcome", {})), resume=lambda: env)


def _state_hash(env: AECEnv) -> str | None:
    game = env.unwrapped
    return game.state_hash() if hasattr(game, "state_hash") else None
