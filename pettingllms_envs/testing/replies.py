"""Checks that any reply, of any content and length, is a legal action."""

from __future__ import annotations

import time
from typing import Any

from pettingllms_envs.episodes.difference import short
from pettingllms_envs.testing.observations import expect_readable
from pettingllms_envs.testing.play import Case, Failed, Skipped, Start, best, episode, oracle_of, over, scripted, told


SLOWEST = 1.0  # seconds of CPU time for one reply: the clock would fail environments on a busy machine
LONGEST = 2**20  # characters
EPISODES = 200
ODD = (" ", "\n", "\u00b2", "\uff11", "\u0130", "\u200b", "\u2028", "-", "0", "9" * 20)  # Python reads \uff11 as 1


def check_fuzzed_replies(case: Case) -> str:
    """No reply raises, changes a space, or leads to an observation that is not text: Unicode, empty, nearly legal."""
    try:
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis import strategies as st
    except ImportError:
        raise Skipped("Hypothesis is not installed. Install it: pip install hypothesis") from None
    env = case.make()
    known = _legal_replies(case)
    letters = sorted(set("".join(known))) or ["?"]
    piece = st.one_of(st.text(letters, max_size=4), st.sampled_from(ODD))
    place, cut = st.integers(0, 2**16), st.sampled_from((0, 0, 1, 2, 2**16))
    nearly_legal = st.builds(_spliced, st.sampled_from(known), place, cut, piece)
    anything = st.text(st.characters(), max_size=60)  # surrogates included
    replies = st.lists(st.one_of(nearly_legal, anything, nearly_legal, st.text(letters, max_size=60)), max_size=8)
    steps = 0

    @settings(
        max_examples=EPISODES,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(st.sampled_from(case.starts), replies)
    def play(start: Start, replies: list[str]) -> None:
        nonlocal steps
        spaces = _spaces(env)
        steps += len(replies)
        episode(env, start, scripted(replies), max_steps=len(replies), look=lambda env: _sound(env, spaces))

    play()
    return f"{EPISODES} episodes of {steps} replies in all"


def check_long_replies(case: Case) -> str:
    """A reply of 2**20 characters takes less than a second of CPU time, whatever its content.

    The length doubles from 2**12, so that a superlinear parser fails before it takes minutes. Programs send replies
    on, at up to 12 bytes a character, to an endpoint that bounds requests; theirs have up to 2**18 characters.
    """
    env = case.make()
    longest = 2**18 if "program" in env.metadata else LONGEST
    spaces = _spaces(env)
    shapes = _shapes(_legal_replies(case))
    for i, shape in enumerate(shapes):
        start, size = case.starts[i % len(case.starts)], 2**12
        while size <= longest:
            head, unit, tail = shape
            reply = head + (unit * (size // len(unit) + 1))[: size - len(head) - len(tail)] + tail
            seconds = _seconds(env, start, reply, spaces)
            if seconds > SLOWEST:
                seconds = min(seconds, _seconds(env, start, reply, spaces))  # the first may have filled a cache
            if seconds > SLOWEST:
                words = f"{short(head + unit * 4)}... of {size:,} characters took {seconds:.1f} s of CPU time"
                raise Failed(
                    f"the reply {words}; expected less than {SLOWEST:g} s, linear in its length\n{told(start, ())}"
                )
            size *= 2
    return f"{len(shapes)} kinds of reply of up to {longest:,} characters"


def _legal_replies(case: Case) -> list[str]:
    """Replies to corrupt: the oracle's on some instances and blind ones or, without those, random ones."""
    env = case.make()
    known = []
    for start in case.starts[:3]:
        env.reset(seed=start.seed, options=dict(start.options) or None)
        if oracle_of(env) is not None:
            known.append(best(env, env.agent_selection))
    return list(dict.fromkeys((*known, *case.blind))) or list(case.pool)


def _spliced(reply: str, place: int, cut: int, piece: str) -> str:
    """The reply with a piece inserted at a place and `cut` characters removed after it."""
    start = place % (len(reply) + 1)
    return reply[:start] + piece + reply[start + cut :]


def _shapes(known: list[str]) -> list[tuple[str, str, str]]:
    """Head, repeated unit, and tail of long replies, in several variants of the known ones."""
    plain = [
        ("", unit, "") for unit in ("a", " ", "\n", "9", "[", "(", "\t, ", "\N{GRINNING FACE}", "\ud800", "\r\n ")
    ]
    legal = next((reply for reply in known if reply.strip()), "yes")
    last = legal[-1]
    spun = [("", f"{legal} ", ""), ("", f"{legal}\n", ""), (legal, " ", ""), (legal, " ", "x"), ("", " ", legal)]
    return [*plain, *spun, (legal, "\n", ""), (legal, last, ""), (legal, f" {last}", "."), (legal, f", {last}", " ,")]


def _seconds(env: Any, start: Start, reply: str, spaces: dict[str, tuple[Any, str, Any, str]]) -> float:
    """The longest CPU time of any agent's step with the reply, including the observations after it."""
    slowest = 0.0
    env.reset(seed=start.seed, options=dict(start.options) or None)
    for _ in env.possible_agents:
        if not env.agents or over(env):
            break
        began = time.thread_time()
        env.step(reply)
        _sound(env, spaces)
        slowest = max(slowest, time.thread_time() - began)
    return slowest


def _spaces(env: Any) -> dict[str, tuple[Any, str, Any, str]]:
    """Each agent's spaces, with their `repr`."""
    pairs = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in env.possible_agents}
    return {agent: (seen, repr(seen), act, repr(act)) for agent, (seen, act) in pairs.items()}


def _sound(env: Any, spaces: dict[str, tuple[Any, str, Any, str]]) -> None:
    """Raise `Failed` unless the observations are texts in the original spaces."""
    for agent in env.agents:
        observation = env.observe(agent)
        expect_readable(agent, observation)
        seen, seen_words, act, act_words = spaces[agent]
        if not seen.contains(observation):
            raise Failed(f"the observation of {agent} is not in its space: {short(observation)}")
        if env.observation_space(agent) is not seen or repr(seen) != seen_words:
            raise Failed(f"the observation space of {agent} changed; it was {seen_words}")
        if env.action_space(agent) is not act or repr(act) != act_words:
            raise Failed(f"the action space of {agent} changed; it was {act_words}")
