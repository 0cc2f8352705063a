"""The conversation of an agent that remembers: its own prompts and replies, token for token. Needs no torch.

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

from pettingllms_trl.records import Completion, Episode, Message, role_of


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
