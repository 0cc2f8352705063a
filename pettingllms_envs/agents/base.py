"""Who replies: what every agent of an evaluation is, and those that need no model.

An agent is asked on a thread of its own for each episode and may take its time; `reply` must be safe to call from many
threads, and what it answers must follow from what it was asked, the seed included.

| kind       | replies                                                                    |
|------------|----------------------------------------------------------------------------|
| `oracle`   | the environment's own best reply                                           |
| `random`   | a sample of the action space                                               |
| `null`     | nothing: the empty reply                                                   |
| `scripted` | those of a file, or of a function of yours                                 |
| `recorded` | those of a recorded run, to the same prompts (`episodes/recorded.py`)       |
| `api`      | a model behind an OpenAI-compatible server (`openai.py`)                   |
| others     | of the entry-point group `pettingllms.agents`: `transformers`, `vllm`      |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pettingllms_envs.observations import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A reply that is wanted.

    Args:
        env: The environment, the agent to act; a model's agent has no business with it.
        agent: Its name, `<role>_0`.
        messages: The prompt as chat messages, each with `role` and `content`.
        seed: Of this reply, below 2^31.
        instance: Index of the instance in its run.
        sample: Number of the episode on that instance.
        step: Replies so far in the episode.
    """

    env: Any
    agent: str
    messages: Sequence[Message]
    seed: int
    instance: int
    sample: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an agent answered.

    Args:
        text: To be played.
        reasoning: What it thought before, where a server tells that apart.
        prompt_tokens: Of the prompt, as its model counts; None where nobody counts.
        completion_tokens: Of all that it wrote.
        finish: Why it ended, `"stop"` or `"length"`, or another word of the server's.
        model: As the server calls it.
        tries: Requests that it took.
        num_tool_calls: Calls of tools that it asked for besides, or in place of, the text. Nobody makes them.
    """

    text: str
    reasoning: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish: str | None = None
    model: str | None = None
    tries: int = 1
    num_tool_calls: int = 0


class AgentFailed(Exception):
    """No reply could be had, for a reason that is not the model's. The episode becomes an error row.

    Args:
        kind: A word for the tables: `"unreachable"`, `"refused"`, `"diverged"`.
        message: What happened.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class AgentRefused(Exception):
    """No reply will ever be had (a wrong key, an unknown model): the run ends at once."""


class Agent(Protocol):
    """Replies to prompts."""

    def reply(self, request: Request) -> Reply:
        """The reply.

        Raises:
            AgentFailed: There is none for this prompt. So says any exception with a text as its `kind`, for agents of
                packages that do not import this one.
            AgentRefused: There will be none for any.
        """
        ...


class Oracle:
    """The environment's own best reply; the upper bound."""

    def reply(self, request: Request) -> Reply:
        """See `Agent`."""
        oracle = getattr(request.env.unwrapped, "oracle", None)
        if oracle is None:
            raise AgentRefused(
                f"{request.agent} is to be played by the oracle, but {type(request.env.unwrapped).__name__} has none; "
                "expected a method oracle(). Choose another agent."
            )
        return Reply(text=oracle())


class Random:
    """A sample of the agent's action space."""

    def reply(self, request: Request) -> Reply:
        """See `Agent`."""
        space = request.env.action_space(request.agent)
        space.seed(request.seed)
        return Reply(text=str(space.sample()))


class Null:
    """The empty reply: a partner who does nothing."""

    def reply(self, request: Request) -> Reply:
        """See `Agent`."""
        return Reply(text="")


class Scripted:
    """Replies that a function makes up.

    Args:
        function: From what is asked to the text of the reply.
    """

    def __init__(self, function: Callable[[Request], str]) -> None:
        self._function = function

    def reply(self, request: Request) -> Reply:
        """See `Agent`."""
        return Reply(text=self._function(request))


def from_file(file: Path) -> Scripted:
    """An agent that gives the replies of a file: a JSON list of strings, or one reply per line.

    The n-th reply answers the episode's n-th prompt; after the last one the list starts over.

    Raises:
        ValueError: The file has no replies.
        OSError: There is no such file.
    """
    text = file.read_text("utf-8")
    replies = json.loads(text) if file.suffix == ".json" else text.splitlines()
    if not isinstance(replies, list) or not replies or not all(isinstance(reply, str) for reply in replies):
        raise ValueError(f"{file} has no replies; expected a JSON list of texts, or a reply a line. Write some.")
    return Scripted(lambda request: str(replies[request.step % len(replies)]))
