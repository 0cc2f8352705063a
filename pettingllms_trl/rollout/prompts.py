"""What an agent observes as chat messages, and the conversation of an agent that remembers. Needs no torch.

An agent that remembers is asked at its next turn with `earlier prompt + reply as sampled + what the chat template puts
between + new observation`. Nothing sampled is decoded and encoded again: the ids of the earlier part are those that
the model was given and those that it sampled, so that an engine finds their keys and values in its prefix cache and
the log-probabilities of training are those of sampling. Only the candidate that was played on is remembered.

    turn 0   [user|Where?|end][assistant|                                        (template)
    turn 1   [user|Where?|end][assistant|Left.|end] [user|And now?|end][assistant|      (turn 0, reply, between)

What others said reaches an agent by its observation alone. A conversation that would grow past the model's context is
restarted from the present observation, which says by itself what the agent must know; so is one whose system message
has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pettingllms_trl.records import Completion, Episode, Message, role_of


CARRIED = ("system", "text", "followup")
"""What an observation without messages may have."""

ROLES = ("system", "user", "assistant")
"""What a message of an observation `{"messages": [...]}` may have as its role."""


def prompt_of(observation: Any, *, agent: str) -> list[Message]:
    """An observation as chat messages: of a `str`, `{"text": ..., "system": ...}` (system optional), or messages.

    Messages are `{"messages": [{"role": ..., "content": ...}, ...]}`, the last one the user's: few-shot examples and
    the question, or a dialogue so far.

    Lone surrogates, which a partner's reply or a data set may have brought in, and which no tokenizer takes, are
    U+FFFD in them.

    Raises:
        TypeError: It is none of these, or has something else besides, such as an image, which the model would not be
            shown.
        ValueError: The messages stand beside a text, have another role, are none, or do not end with the user's.
    """
    if isinstance(observation, str):
        return [{"role": "user", "content": _encodable(observation)}]
    if isinstance(observation, Mapping) and "messages" in observation:
        return _messages_of(observation, agent)
    if isinstance(observation, Mapping) and isinstance(observation.get("text"), str):
        _check_carried(observation, agent)
        system = observation.get("system")
        lead = [{"role": "system", "content": _encodable(system)}] if system else []
        return [*lead, {"role": "user", "content": _encodable(observation["text"])}]
    given = type(observation).__name__
    if isinstance(observation, Mapping):
        given = f"a mapping with the keys {sorted(observation)}"
    raise TypeError(
        f"agent {agent!r} observes {given}, expected text: a str, or a dict with a str under 'text' and, if you like, "
        "one under 'system', or with chat messages under 'messages'. Wrap the environment so that observe() returns "
        "what the model shall read."
    )


def _check_carried(observation: Mapping[str, Any], agent: str) -> None:
    """Raise TypeError for a part of an observation that no prompt carries."""
    for key, value in observation.items():
        if key not in CARRIED or not isinstance(value, str | None):
            raise TypeError(
                f"agent {agent!r} observes {key!r}, a {type(value).__name__}; expected text under "
                f"{', '.join(map(repr, CARRIED))} and nothing else, since models are trained on texts only. Wrap the "
                "environment so that observe() puts it into the text, or leaves it out."
            )


def _messages_of(observation: Mapping[str, Any], agent: str) -> list[Message]:
    """The messages of an observation `{"messages": [...]}`.

    Raises:
        TypeError: They are no list of `{"role": str, "content": str}`.
        ValueError: They stand beside other keys, have another role, are none, or do not end with the user's.
    """
    if others := sorted(map(str, set(observation) - {"messages"})):
        raise ValueError(
            f"agent {agent!r} observes 'messages' beside {', '.join(map(repr, others))}; expected 'messages' alone, "
            "which are the whole prompt. Put the other texts into the messages."
        )
    given = observation["messages"]
    if not isinstance(given, list | tuple):
        raise TypeError(
            f"agent {agent!r} observes {type(given).__name__!r} as 'messages'; expected a list of "
            '{"role": ..., "content": ...}, the last one the user\'s.'
        )
    messages = [_message_of(message, number, agent) for number, message in enumerate(given)]
    if not messages or messages[-1]["role"] != "user":
        roles = [message["role"] for message in messages]
        raise ValueError(
            f"agent {agent!r} observes messages of the roles {roles}; expected a last message of the role 'user', "
            "which the policy replies to. Append it."
        )
    return messages


def _message_of(message: Any, number: int, agent: str) -> Message:
    """One of them. Keys whose value is `None` are ignored: Arrow adds them where rows differ in their keys."""
    found = {key: value for key, value in message.items() if value is not None} if isinstance(message, Mapping) else {}
    if set(found) != {"role", "content"} or not all(isinstance(value, str) for value in found.values()):
        types = {key: type(value).__name__ for key, value in found.items()} or type(message).__name__
        raise TypeError(
            f"agent {agent!r} observes {types} as message {number}; expected a dict with a str under 'role' and one "
            "under 'content' and nothing else, since models read texts only. Leave the rest out."
        )
    if found["role"] not in ROLES:
        raise ValueError(
            f"agent {agent!r} observes message {number} with the role {found['role']!r}; expected one of "
            f"{', '.join(map(repr, ROLES))}."
        )
    return {"role": found["role"], "content": _encodable(found["content"])}


def followup_of(observation: Any) -> str | None:
    """What an agent that remembers is shown in place of an observation's text, where it offers a `"followup"`."""
    followup = observation.get("followup") if isinstance(observation, Mapping) else None
    return _encodable(followup) if isinstance(followup, str) else None


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


HISTORIES = ("none", "conversation")

Follow = Callable[[Sequence[int], Message], tuple[int, ...] | None]
"""The token ids so far, and a user's message: to the ids of the prompt that it makes. `None`: they are too many."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one agent was asked and replied.

    Args:
        messages: Prompts and replies in turn, a system message before them where there is one.
        ids: The same, as the model got and sampled them; empty where an API partner spoke.
    """

    messages: tuple[Message, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The conversations of an episode so far, by agent.

    Args:
        follow: How a conversation goes on in tokens, for each agent that remembers; `None` for a partner behind an
            API, which is given messages. Who is not in it remembers nothing.
        conversations: Of those who have spoken.
    """

    follow: Mapping[str, Follow | None] = field(default_factory=dict)
    conversations: Mapping[str, Conversation] = field(default_factory=dict)

    def prompt(
        self, agent: str, opening: Sequence[Message], followup: str | None
    ) -> tuple[Sequence[Message], tuple[int, ...]]:
        """What the agent is asked now. Raises `ValueError` where it remembers and its observation is a whole dialogue.

        Args:
            agent: Who is to act.
            opening: Its observation as a prompt that stands alone.
            followup: What it is shown in place of that if it remembers what came before; `None`: the same text.

        Returns:
            The messages, and their token ids where they go on from tokens that were sampled, else none.
        """
        if agent in self.follow:
            check_opening(agent, opening)
        before = self.conversations.get(agent)
        if before is None or _system(before.messages) != _system(opening):
            return opening, ()
        message = {"role": "user", "content": opening[-1]["content"] if followup is None else followup}
        follow = self.follow[agent]
        if follow is None:
            return [*before.messages, message], ()
        ids = follow(before.ids, message)
        return (opening, ()) if ids is None else ([*before.messages, message], ids)

    def replied(
        self, agent: str, prompt: Sequence[Message], prompt_ids: tuple[int, ...], completion: Completion
    ) -> ChatHistory:
        """After an agent's reply to a prompt."""
        if agent not in self.follow:
            return self
        reply = {"role": "assistant", "content": completion.text}
        said = Conversation((*prompt, reply), prompt_ids + completion.ids)
        return replace(self, conversations={**self.conversations, agent: said})


def check_opening(agent: str, opening: Sequence[Message]) -> None:
    """Raise `ValueError` for an observation that has no place in a conversation: more than a text of the user's."""
    roles = [message["role"] for message in opening]
    if roles not in (["user"], ["system", "user"]):
        raise ValueError(
            f"agent {agent!r} has history='conversation' and observes messages of the roles {roles}; expected a text "
            "and perhaps a system prompt, since its earlier turns are kept for it. Set history to 'none' for this "
            "agent, or have observe() return {'text': ...} without earlier turns."
        )


def remembering(history: str | Mapping[str, str] | None, agents: Sequence[str]) -> list[str]:
    """The agents that hold a conversation.

    Args:
        history: One of `HISTORIES` for all, or by agent or role, an agent's own before its role's; who is not named
            there has none. `None` is `"none"`.
        agents: Of the environment.

    Raises:
        ValueError: Another word, or a name that is nobody's.
    """
    history = "none" if history is None else history
    of_name = dict.fromkeys(agents, history) if isinstance(history, str) else dict(history)
    known = {*agents, *map(role_of, agents)}
    for name, given in of_name.items():
        if given not in HISTORIES:
            raise ValueError(f"history is {given!r} for {name!r}, expected one of {HISTORIES}. Choose one of them.")
        if name not in known:
            raise ValueError(
                f"history is given for {name!r}, but the environment has the agents {', '.join(agents)}. Name an "
                "agent, or a role (the agent's name without its number)."
            )
    own = {agent: of_name.get(agent, of_name.get(role_of(agent), "none")) for agent in agents}
    return [agent for agent in agents if own[agent] == "conversation"]


def num_begun_anew(episodes: Sequence[Episode], agents: Sequence[str]) -> int:
    """How many prompts of agents that remember stand alone though the agent had spoken before."""
    return sum(
        decision.turn > 0 and decision.agent in agents and not _goes_on(decision.prompt)
        for episode in episodes
        for decision in episode.decisions
    )


def check_conversations(episodes: Sequence[Episode], agents: Sequence[str]) -> None:
    """Each prompt of an agent that remembers begins with the tokens of its last one and of the reply played on.

    Raises:
        AssertionError: Naming the decision whose prompt does not.
    """
    for episode in episodes:
        said: dict[str, tuple[int, ...]] = {}
        for d in episode.decisions:
            if d.agent not in agents:
                continue
            where = f"instance {d.instance}, {d.agent}, turn {d.turn}"
            before = said.get(d.agent, ())
            if _goes_on(d.prompt):
                assert d.prompt_ids[: len(before)] == before, f"{where}: not the tokens that were sampled before"
            said[d.agent] = d.prompt_ids + d.played.completion.ids


def _goes_on(prompt: Sequence[Message]) -> bool:
    return any(message["role"] == "assistant" for message in prompt)


def _system(messages: Sequence[Message]) -> str | None:
    return messages[0]["content"] if messages[0]["role"] == "system" else None
