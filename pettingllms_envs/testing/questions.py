"""Checks who is shown what by a team that is a function: an agent sees its own questions, and no other's secrets.

Agents that reply with words that mean nothing cannot tell each other anything. So what a question calls `private` can
be shown to another agent by the function alone.
"""

from __future__ import annotations

from typing import Any

from pettingllms_envs.teams.functions import FunctionWorkflow
from pettingllms_envs.teams.tool_calls import ToolCalls, ToolCallState
from pettingllms_envs.testing.play import Case, Failed, Skipped, Start, blaming, over, texts, told


WORDS = ("blah", "other nonsense", "Hm.")
MOST_STARTS = 4


def check_questions(case: Case) -> str:
    """An agent that is not asked observes its last question, or nothing; and nobody what is private to another."""
    env = case.make()
    workflow = getattr(env.unwrapped, "workflow", None)
    if not isinstance(workflow.workflow if isinstance(workflow, ToolCalls) else workflow, FunctionWorkflow):
        raise Skipped("its team is no function")
    starts = case.starts[:MOST_STARTS]
    plays = [_play(env, start, first, case.max_steps) for start in starts for first in range(len(WORDS))]
    secrets = set[str]().union(*(own for _, own in plays))
    more = f"; {len(secrets)} private texts were shown to nobody else" if secrets else ""
    return f"each agent's own questions at {sum(number for number, _ in plays)} moments{more}"


def _play(env: Any, start: Start, first: int, max_steps: int) -> tuple[int, set[str]]:
    """Play words that mean nothing, and look at all agents after each; returns the moments and what was private."""
    env.reset(seed=start.seed, options=dict(start.options) or None)
    asked, private, replies = dict[str, Any](), dict[str, set[str]](), list[str]()
    while env.agents and len(replies) < max_steps:
        is_over = over(env)
        if is_over and not all(env.terminations[agent] or env.truncations[agent] for agent in env.agents):
            env.step(None)  # of one that leaves while others go on
            continue
        if not is_over:
            acting = env.agent_selection
            asked[acting] = env.observe(acting)
            play = env.unwrapped.snapshot().play
            ask = (play.play if isinstance(play, ToolCallState) else play).ask
            private.setdefault(acting, set()).update(ask.private)
        with blaming(lambda: told(start, replies)):
            for agent in env.agents:
                _look(agent, env.observe(agent), asked.get(agent), private)
        if is_over:
            break
        replies.append(WORDS[(first + len(replies)) % len(WORDS)])
        env.step(replies[-1])
    return len(replies) + 1, set().union(*private.values())


def _look(agent: str, seen: Any, asked: Any, private: dict[str, set[str]]) -> None:
    chat = [message for message in seen.get("messages", ()) if dict(message)["role"] != "system"]
    shown = texts({"messages": chat} if "messages" in seen else {**seen, "system": None})
    if asked is None and any(text.strip() for text in shown):
        raise Failed(
            f"{agent} was asked nothing yet and observes {max(shown, key=len)[:80]!r}; expected nothing. Leave "
            "observe() as it is: an agent sees its own questions."
        )
    if asked is not None and seen != asked:
        raise Failed(
            f"{agent} is not asked, and observes something else than its last question: {max(shown, key=len)[:80]!r}; "
            "expected that question. Leave observe() as it is, and change no list that was yielded."
        )
    for other, secrets in private.items():
        for secret in secrets - private.get(agent, set()) if other != agent else ():
            if any(secret in text for text in shown):
                raise Failed(
                    f"{agent} is shown {secret[:80]!r}, which is private in a question to {other}, and nobody said it;"
                    " expected it there only. Leave it out of game.feedback, of game.show and of what others keep."
                )
