"""The rollouts whose digests are recorded: 44 of known environments, and 200 random ones with every option."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pettingllms_envs import hanabi_v0, kuhn_poker_v0, plan_path_v0, sokoban_v0
from pettingllms_trl.records import Decision, Message
from pettingllms_trl.rollout import Rollout
from random_teams import KINDS, Failures, Seeded, rng
from third_party import OneShot, Relay


Play = Callable[..., Rollout]
KNOWN = {
    "plan_path": partial(plan_path_v0.env, size=4, num_turns=3),
    "sokoban": partial(sokoban_v0.env, num_turns=3),
    "hanabi": hanabi_v0.env,
    "kuhn": kuhn_poker_v0.env,
}
TREES: Sequence[dict[str, Any]] = [
    {"num_candidates": 3},
    {"num_candidates": 2, "max_turns": 2, "partners": 1},
    {"num_candidates": 3, "sampling": "parallel"},
    {"num_candidates": 2, "num_continuations": 1, "keep_continuations": True, "max_turns": 2},
    {"num_candidates": 2, "num_continuations": 2, "choose": "value", "keep_continuations": True, "max_turns": 2,
     "partners": 1},
    {"num_candidates": 2, "num_continuations": 1, "choose": "value", "max_turns": 2},
]  # fmt: skip


def by_length(choice: Any) -> list[dict[str, float]]:
    """A reward function."""
    return [{"length": float(len(completion.text))} for completion in choice.completions]


def doubled(reward: float, parts: Any, team: Any = None) -> float:
    """A weigher."""
    return 2 * reward


COMMON: Sequence[dict[str, Any]] = [
    {"num_candidates": 3},
    {"num_candidates": 2, "num_continuations": 1, "keep_continuations": True},
    {"num_candidates": 2, "num_continuations": 2, "choose": "value", "keep_continuations": True},
    {"num_candidates": 3, "judge": by_length},
    {"num_candidates": 2, "num_continuations": 1, "judge": by_length, "weigh": doubled},
]


def follow(ids: Sequence[int], message: Message) -> tuple[int, ...] | None:
    """Extends a conversation, token for token, until it is too long."""
    found = (*ids, 0, *message["content"].encode())
    return found if len(found) < 400 else None


def known_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and arguments of 44 rollouts: four environments of ours, and four that are copied or judged."""
    for name, make_env in KNOWN.items():
        for i, options in enumerate(TREES):
            partners = make_env().possible_agents[: options.get("partners", 0)]
            yield f"{name} {i}", {"make_env": make_env, **options, "partners": partners}
    for name, make_env in {
        "relay2": Relay,
        "relay1": partial(Relay, 1),
        "one": OneShot,
        "plan": KNOWN["plan_path"],
    }.items():
        for i, options in enumerate(COMMON):
            yield f"{name} {i}", {"make_env": make_env, **options}


def random_case(number: int) -> dict[str, Any]:
    """Arguments of a rollout with a random environment and options."""
    draw = rng("case", number)
    kind = KINDS[number % len(KINDS)]
    failures = Failures(draw.choice([0.0, 0.02, 0.05]), always=draw.random() < 0.5)
    options: dict[str, Any] = {
        "make_env": partial(kind, number, failures),
        "sampling": draw.choice(["tree", "tree", "parallel"]),
        "num_candidates": draw.randint(1, 3),
        "num_continuations": draw.choice([0, 0, 1, 2]),
        "keep_continuations": draw.random() < 0.5,
        "max_envs": draw.choice([None, 1, 3, 5]),
        "max_turns": draw.choice([None, None, 2]),
        "crash_reward": draw.choice([None, -3.0]),
        "partners": draw.choice([(), (), ("a_0",)]),
        "judge": draw.choice([None, by_length]),
        "weigh": draw.choice([None, doubled]),
        "extensions": draw.choice([None, {"a_0": follow, "b_0": None}]) if number % 2 else None,
        "num_rows": 12,
    }
    if options["sampling"] == "tree" and options["num_continuations"] and draw.random() < 0.5:
        options["choose"] = "value"
    return options


def played(play: Play, case: dict[str, Any], *, seed: int = 0, **options: Any) -> Rollout | str:
    """The rollout of a case, or the error that it ends with."""
    case = {"sampling": "tree", "num_rows": 4, **case, **options}
    is_batched, shared = case.pop("is_batched", seed % 2 == 0), case.pop("shared", False)
    rows = [{"seed": i} for i in range(case.pop("num_rows"))]
    engine = Seeded(seed, is_batched=is_batched, shared=shared)
    try:
        return play(rows, engine=engine, seed=f"rollout {seed}", **case)
    except Exception as error:  # noqa: BLE001  # which is a result, too
        return f"{type(error).__name__}: {error}"


def digest(found: Rollout | str) -> str:
    """A digest of all that a rollout says, whatever its records' classes are."""
    if isinstance(found, str):
        return hashlib.sha256(found.encode()).hexdigest()[:12]
    said = [
        (
            (e.instance, e.episode, dict(e.returns), dict(e.outcome), e.environment),
            [_said(decision) for decision in e.decisions],
            [_said(decision) for decision in e.continuations],
        )
        for e in found.episodes
    ]
    counts = found.retried, found.timed_out, dict(found.dropped), list(found.crashed), found.num_sampled_tokens
    return hashlib.sha256(repr((said, counts)).encode()).hexdigest()[:12]


def _said(d: Decision) -> tuple[Any, ...]:
    candidates = [
        (
            *(c.completion.ids, c.completion.text, c.completion.logprobs, c.completion.finish),
            *(c.reward, dict(c.parts), tuple(c.team), c.state, c.continuations),
        )
        for c in d.candidates
    ]
    shown = list(d.prompt.messages), d.prompt.ids, list(d.prompt.tools), d.state, d.environment
    worth = d.episode_return, d.return_to_go, dict(d.rewards), d.policy_version, tuple(d.continuation or ())
    return d.instance, d.episode, d.agent, d.turn, d.chosen, shown, candidates, worth
