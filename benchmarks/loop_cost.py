"""What the loop of a rollout costs by itself: an engine that answers at once, less what the environment takes."""

from __future__ import annotations

import cProfile
import pstats
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pettingllms_envs
from pettingllms_trl.records import Completion, Episode, Request, Sampled
from pettingllms_trl.rollout import RolloutOptions, play


class Instant:
    """An engine that answers at once, with what a function makes of a request."""

    is_batched = False

    def __init__(self, answer: Callable[[Request], Sequence[Completion]]) -> None:
        self._answer, self._open = answer, list[tuple[int, Request]]()

    def submit(self, ticket: int, request: Request) -> None:
        self._open.append((ticket, request))

    def step(self) -> Sequence[tuple[int, Sampled]]:
        requests, self._open = self._open, []
        return [
            (ticket, Sampled(replace(request.prompt, ids=(0,)), tuple(self._answer(request))))
            for ticket, request in requests
        ]


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds for a decision of eight candidates: all of the rollout, and what the environment takes of it."""

    name: str
    decisions: int
    all_us: float
    env_us: float

    @property
    def own_us(self) -> float:
        """What the loop adds."""
        return self.all_us - self.env_us

    def share(self, seconds: float) -> float:
        """The loop's part of a rollout that takes so long."""
        return self.own_us * self.decisions / 1e6 / seconds

    def line(self, seconds: float) -> str:
        return (
            f"{self.name}: {self.all_us:.0f} us a decision, {self.env_us:.0f} of them the environment's and "
            f"{self.own_us:.0f} the loop's; of {self.decisions} decisions that is {self.share(seconds):.2%} of "
            f"{seconds:.0f} s"
        )


def cost(name: str, repeats: int) -> Cost:
    """The least of several rollouts of 64 instances, and of the same calls of the environment without a loop."""
    run = rollout_of(name)
    env = pettingllms_envs.make(name)
    whole, bare = [], []
    episodes: list[Episode] = []
    for _ in range(repeats):
        begin = time.process_time()
        episodes = run()
        whole.append(time.process_time() - begin)
        begin = time.process_time()
        walk_again(env, episodes)
        bare.append(time.process_time() - begin)
    decisions = sum(len(episode.decisions) for episode in episodes)
    return Cost(name, decisions, 1e6 * min(whole) / decisions, 1e6 * min(bare) / decisions)


def rollout_of(name: str) -> Callable[[], list[Episode]]:
    """Play 64 instances of a board game with an instant engine, in environments that are kept."""
    rng = random.Random(0)
    texts = ["Moves: " + " ".join(rng.choices("UDLR", k=rng.randint(1, 3))) for _ in range(500)]
    replies = [Completion(ids=(1, 2, 3), text=text) for text in texts]
    rows, pool = [{"seed": seed} for seed in range(64)], []

    def run() -> list[Episode]:
        draws = random.Random(0)
        return play(
            rows,
            Instant(lambda request: draws.choices(replies, k=8)),
            RolloutOptions(sampling="tree", num_candidates=8, max_turns=4),
            make_env=partial(pettingllms_envs.make, name),
            pool=pool,
            seed="s",
        ).episodes

    return run


def walk_again(env: Any, episodes: Iterable[Episode]) -> None:
    """Call of the environment all that a rollout calls, and do nothing with it."""
    game = env.unwrapped
    for episode in episodes:
        env.reset(seed=episode.instance)
        for decision in episode.decisions:
            env.observe(decision.agent)
            game.state_hash()
            before, reached = game.snapshot(), []
            for k, candidate in enumerate(decision.candidates):
                if k:
                    game.restore(before)
                env.step(candidate.completion.text)
                _ = env.rewards, env.infos, env.terminations, env.truncations, env.agents, game.state_hash()
                reached.append(game.snapshot())
            game.restore(reached[decision.chosen])


def profile(name: str, lines: int) -> None:
    """Print what takes longest in the rollout's own files."""
    run = rollout_of(name)
    run()
    profiler = cProfile.Profile()
    profiler.runcall(run)
    pstats.Stats(profiler).sort_stats("tottime").print_stats("pettingllms_trl", lines)
