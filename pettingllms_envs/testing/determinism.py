"""Checks that an episode repeats: from its start, from its middle, in another process, and among branches."""

from __future__ import annotations

import copy
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pettingllms_envs.branching import SavedState
from pettingllms_envs.episodes.difference import difference, short
from pettingllms_envs.testing import play


CANNOT_IMPORT = 3  # exit status of the other process
_PROGRAM = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer);"
    "from pettingllms_envs.testing.determinism import answer; answer()"
)


def check_determinism(case: play.Case) -> str:
    """The same seed and replies lead to the same episode, in a new instance and in one that has played others."""
    used = case.make()
    played = [play.mixed_episode(case, start, used) for start in case.starts]
    for what, env in (("a second run in the same instance", used), ("a run in a new instance", None)):
        for first in played:
            play.same_course(first, play.played_again(case, first, env), what)
    return f"{len(played)} episodes of {_steps(played)} steps in all, each played three times"


def check_another_process(case: play.Case) -> str:
    """The same seed and replies lead to the same episode in another process with another PYTHONHASHSEED."""
    try:
        made = pickle.dumps(case.make)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise play.Skipped(f"make cannot be sent to another process: {error}. Give a function of a module.") from None
    env = case.make()
    played = [play.mixed_episode(case, start, env) for start in case.starts]
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    orders = [(each.start, each.replies) for each in played]
    child = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=pickle.dumps(sys.path) + pickle.dumps(made) + pickle.dumps((orders, case.max_steps)),
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=False,
    )
    last_words = (child.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
    if child.returncode == CANNOT_IMPORT:
        raise play.Skipped(f"make cannot be imported in another process: {last_words}")
    if child.returncode:
        raise play.Failed(f"the other process, with PYTHONHASHSEED={hash_seed}, ended with: {last_words}")
    for first, seen in zip(played, pickle.loads(child.stdout), strict=True):
        play.same_course(first, seen, f"a run in a process with PYTHONHASHSEED={hash_seed}")
    return f"{len(played)} episodes of {_steps(played)} steps in all, with PYTHONHASHSEED={hash_seed}"


def answer() -> None:
    """Run in the other process: play the received episodes, and send back what was observed."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # what the environment prints must not mix with the answer
    try:
        make = pickle.loads(pickle.load(sys.stdin.buffer))
    except (ImportError, AttributeError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(CANNOT_IMPORT)
    orders, max_steps = pickle.load(sys.stdin.buffer)
    env = make()
    seen = [
        play.episode(env, start, play.scripted(replies), max_steps=max_steps, look=play.view).seen
        for start, replies in orders
    ]
    out.write(pickle.dumps(seen))


def check_snapshots(case: play.Case) -> str:
    """An episode that is resumed at any point continues exactly as before, also in another environment object."""
    points = 0
    make, how = play.branched(case.make)
    for start in case.starts[:5]:
        env = make()
        save, load = play.saver(env)
        whole = play.mixed_episode(case, start, env, look=partial(_moment, save))
        course = whole._replace(seen=tuple(shown for shown, _, _ in whole.seen))
        fresh = make()
        for i in range(0, len(whole.seen), max(len(whole.seen) // 16, 1)):
            points += 1
            _, token, pickled = whole.seen[i]
            with play.blaming(lambda i=i, whole=whole: play.told(whole.start, whole.replies[:i])):  # type: ignore[misc]
                env = load(env, token)
                play.same_course(course, _rest(env, whole, i), f"taken up after {i} steps", i)
                if pickled is not None:
                    fresh = load(fresh, token._replace(snapshot=pickle.loads(pickled)))
                    play.same_course(
                        course, _rest(fresh, whole, i), f"pickled after {i} steps, in another instance", i
                    )
    return f"taken up at {points} points of {len(case.starts[:5])} episodes, {how}"


def _moment(save: Callable[[Any], Any], env: Any) -> tuple[dict[str, Any], Any, bytes | None]:
    """What is observable of an environment, its state to resume, and the part of that which may leave the process."""
    token = save(env)
    return play.view(env), token, pickle.dumps(token.snapshot) if isinstance(token, SavedState) else None


def check_branches(case: play.Case) -> str:
    """Branches from one state with different replies, in any order, do not affect each other."""
    count = 0
    make, how = play.branched(case.make)
    for start in case.starts[:3]:
        whole = play.mixed_episode(case, start)
        for depth in range(min(4, sum(reply is not None for reply in whole.replies))):
            prefix = whole.replies[:depth]
            replies = list(dict.fromkeys((whole.replies[depth] or "", *random.Random(depth).sample(case.pool, 3), "")))
            with play.blaming(lambda start=start, prefix=prefix: play.told(start, prefix)):  # type: ignore[misc]
                _branch(make, whole, depth, replies)
            count += len(replies)
    return f"{count} branches from {len(case.starts[:3])} episodes, {how}"


def _branch(make: Callable[[], Any], whole: play.Course, depth: int, replies: list[str]) -> None:
    """Branch from one state, then visit the branches in the opposite order and go one step further."""
    follow = replies[::-1]

    def at_root(env: Any) -> Any:
        play.episode(env, whole.start, play.scripted(whole.replies), max_steps=depth)
        return env

    alone = []
    for reply, then in zip(replies, follow, strict=True):
        env = at_root(make())
        play.advance(env, reply)
        first = play.view(env)
        play.advance(env, then)
        alone.append((first, play.view(env)))
    env = at_root(make())
    save, load = play.saver(env)
    before, root = play.view(env), save(env)
    branches = []
    for reply in replies:
        env = load(env, root)
        play.same(before, play.view(env), "the root after a branch was played")
        play.advance(env, reply)
        branches.append(save(env))
    for i in reversed(range(len(replies))):
        env = load(env, branches[i])
        play.same(alone[i][0], play.view(env), f"the branch {short(replies[i])} after its siblings {short(replies)}")
        play.advance(env, follow[i])
        play.same(
            alone[i][1], play.view(env), f"the branch {short(replies[i])}, then {short(follow[i])}, after its siblings"
        )
    play.same(before, play.view(load(env, root)), "the root after its branches were played")


def check_global_random_state(case: play.Case) -> str:
    """No call draws from, or seeds, the global random numbers of `random` and `numpy.random`."""
    calls, make = 0, _drawing(case)

    def untouched(name: str, call: Callable[[], Any]) -> Any:
        nonlocal calls
        calls += 1
        before = _global_state()
        result = call()
        if difference(before, _global_state()) is not None:
            raise play.Failed(
                f"{name} changed the global random state; expected random numbers of the environment's own"
            )
        return result

    for start in case.starts[:3]:
        whole = play.mixed_episode(case, start)
        env = untouched("make()", make)
        untouched("reset() without a seed", env.reset)
        untouched("reset()", partial(env.reset, seed=start.seed, options=dict(start.options) or None))
        with play.blaming(lambda whole=whole: play.told(whole.start, whole.replies)):  # type: ignore[misc]
            for reply in whole.replies:
                for agent in env.agents:
                    untouched("observe()", partial(env.observe, agent))
                untouched("last()", env.last)
                if getattr(env, "render_mode", None) is not None:
                    untouched("render()", env.render)
                untouched("step()", partial(env.step, reply))
    return f"{calls} calls"


def _drawing(case: play.Case) -> Callable[[], Any]:
    """`make`, with a render mode that opens no window, if the environment has one."""
    modes = [mode for mode in case.make().metadata.get("render_modes", ()) if mode != "human"]
    if modes and play.made_if_taken(case.make, render_mode=modes[0]) is not None:
        return partial(case.make, render_mode=modes[0])
    return case.make


def _rest(env: Any, whole: play.Course, i: int) -> list[dict[str, Any]]:
    """The views from step i on when the episode's own replies are played."""
    seen = [play.view(env)]
    for reply in whole.replies[i:]:
        if not env.agents:
            break
        env.step(None if play.over(env) else "" if reply is None else reply)
        seen.append(play.view(env))
    return seen


def _steps(played: list[play.Course]) -> int:
    return sum(len(each.replies) for each in played)


def _global_state() -> Any:
    return copy.deepcopy((random.getstate(), np.random.get_state(legacy=True)))  # noqa: NPY002 - to see who does
