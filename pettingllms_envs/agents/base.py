"""The protocol of an evaluation's agents, and the agents that need no model.

`reply` is called on a separate thread for each episode and may take its time. It must be thread-safe, and its result
must depend only on the request, which includes a seed.

| kind       | replies                                                                    |
|------------|----------------------------------------------------------------------------|
| `oracle`   | the environment's own best reply                                           |
| `bot`      | those of a rule-based player of the environment                            |
| `random`   | a sample of the action space                                               |
| `null`     | the empty reply                                                            |
| `scripted` | from a file, or from a function of yours                                   |
| `recorded` | those of a recorded run, to the same prompts (`episodes/recorded.py`)      |
| `api`      | from a model behind an OpenAI-compatible server (`openai.py`)              |
| others     | of the entry-point group `pettingllms.agents`: `transformers`, `vllm`      |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pettingllms_envs.observations import Limits, Message
from pettingllms_envs.prompts import images_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a reply.

    Args:
        env: The environment, for the oracle and the like; a model's agent must not use it.
        messages: The prompt as chat messages, see `pettingllms_envs.observations.Message`.
        seed: Seed of this reply, below 2^31.
        sample: Number of the episode on that instance.
        step: Number of replies so far in the episode.
        tools: Tools that the model may call, see `pettingllms_envs.observations.Prompt`.
    """

    env: Any
    agent: str
    messages: Sequence[Message]
    seed: int
    instance: int
    sample: int
    step: int
    tools: Sequence[Mapping[str, Any]] = ()
    limits: Limits = Limits()  # noqa: RUF009  # frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An agent's reply.

    Args:
        text: The action to play.
        reasoning: The reasoning before it, if the server returns that separately.
        prompt_tokens: Tokens of the prompt, as its model counts them; None if unknown.
        completion_tokens: Tokens of everything that it wrote; None if unknown.
        usage_note: What is wrong with what the server said of tokens, such as `"0 tokens for a text"`; None: nothing.
        finish: Why it ended: `"stop"`, `"length"`, or another word of the server's (`answers.finish_of`).
        num_tool_calls: Tool calls in the reply, besides or instead of text, though the request has no tools. They are
            not executed. Calls of the request's tools are in `text`.
    """

    text: str
    reasoning: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usage_note: str | None = None
    finish: str | None = None
    model: str | None = None
    tries: int = 1
    num_tool_calls: int = 0


class AgentFailed(Exception):
    """An agent could not reply, for a reason other than the model. The episode becomes an error row.

    Args:
        kind: The kind of error in tables: `"unreachable"`, `"refused"`, `"denied"`, `"diverged"`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class AgentRefused(Exception):
    """An agent can never reply (a wrong key, an unknown model): the run is stopped."""


CARRIES = ("images", "tools")
"""What prompts may have besides texts."""


class Agent(Protocol):
    """Replies to prompts.

    An agent that can be given more than texts has an attribute `carries`, with some of `CARRIES`. Without it,
    prompts with images or tools are an error.
    """

    def reply(self, request: Request) -> Reply:
        """Reply to a prompt.

        Raises:
            AgentFailed: It cannot reply to this prompt. Any exception with a `str` attribute `kind` counts as one, for
                agents of packages that do not import this one.
            AgentRefused: It cannot reply to any prompt.
        """


def check_carried(agent: Agent, request: Request) -> None:
    """Raise `AgentRefused` if a prompt has images or tools that the agent cannot be given."""
    carries = getattr(agent, "carries", ())  # agents of plug-ins are classes of their own
    needed = {"images": images_of(request.messages), "tools": request.tools}
    for name in CARRIES:
        if needed[name] and name not in carries:
            raise AgentRefused(
                f"{request.agent} observes {name}, which {type(agent).__name__} cannot be given; expected an agent "
                f"that can, such as a model behind an API that reads {name}. {_REMEDIES[name]}"
            )


_REMEDIES = {
    "images": "Choose such an agent, or have observe() describe the images in the text.",
    "tools": "Choose such an agent, or make the environment with tool_calls='text'.",
}


class Oracle:
    """Gives the environment's own best reply: the upper bound."""

    carries = CARRIES

    def reply(self, request: Request) -> Reply:
        oracle = getattr(request.env.unwrapped, "oracle", None)
        if oracle is None:
            raise AgentRefused(
                f"{request.agent} is to be played by the oracle, but {type(request.env.unwrapped).__name__} has none; "
                "expected a method oracle(). Choose another agent."
            )
        return Reply(text=oracle())


class Bot:
    """Gives the replies of a rule-based player of the environment.

    Args:
        name: One of its `metadata["bots"]`, which plays the agent's role.
    """

    carries = CARRIES

    def __init__(self, name: str) -> None:
        self._name = name

    def reply(self, request: Request) -> Reply:
        return Reply(text=request.env.unwrapped.bot(self._name))


class Random:
    """Gives a sample of the agent's action space."""

    carries = CARRIES

    def reply(self, request: Request) -> Reply:
        space = request.env.action_space(request.agent)
        space.seed(request.seed)
        return Reply(text=str(space.sample()))


class Null:
    """Gives the empty reply: an agent that does nothing."""

    carries = CARRIES

    def reply(self, request: Request) -> Reply:
        return Reply(text="")


class Scripted:
    """Gives the replies of a function from a request to a reply's text."""

    carries = CARRIES

    def __init__(self, function: Callable[[Request], str]) -> None:
        self._function = function

    def reply(self, request: Request) -> Reply:
        return Reply(text=self._function(request))


def from_file(file: Path) -> Scripted:
    """An agent that gives the replies of a file: a JSON list of strings, or one reply per line.

    The n-th reply answers the episode's n-th prompt; after the last one the list starts over.
    """
    text = file.read_text("utf-8-sig")
    try:
        replies = json.loads(text) if file.suffix == ".json" else text.splitlines()
    except ValueError as error:
        raise ValueError(f"{file} is not JSON ({error}); expected a JSON list of texts. Correct it.") from None
    if not isinstance(replies, list) or not replies or not all(isinstance(reply, str) for reply in replies):
        raise ValueError(f"{file} has no replies; expected a JSON list of texts, or a reply a line. Write some.")
    return Scripted(lambda request: str(replies[request.step % len(replies)]))
