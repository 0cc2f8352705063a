"""Chat histories of agents with `history="conversation"`: their own prompts and replies, token for token.

At its next turn such an agent's prompt is `earlier prompt + reply as sampled + what the chat template puts between +
new observation`. Sampled tokens are never decoded and encoded again, so that an engine finds them in its prefix cache,
and the log-probabilities of training are those of sampling. Only the candidate that was played on is kept.

    turn 0   [user|Where?|end][assistant|                                        (template)
    turn 1   [user|Where?|end][assistant|Left.|end] [user|And now?|end][assistant|      (turn 0, reply, between)

A conversation that would exceed the model's context is restarted from the current observation, which contains all that
the agent must know; so is one whose system message has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pettingllms_trl.records import Completion, Episode, Message, Prompt, role_of


HISTORIES: Mapping[str, tuple[str, str, bool]] = {
    "none": ("what it observes now", "everywhere", False),
    "conversation": (
        "its own earlier prompts and replies, token for token, and what it observes now",
        "one text per turn, images in the first only; no tools, no programs",
        True,
    ),
}
"""The values of `history`: what a prompt is made of, where it may be used, and whether earlier turns are kept."""

ExtendPrompt = Callable[[Sequence[int], Message], tuple[int, ...] | None]
"""From the token ids so far and a user message to the ids of the extended prompt; `None` if it is too long."""


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The conversations of an episode so far."""

    extensions: Mapping[str, ExtendPrompt | None] = field(default_factory=dict)  # `None` for an agent behind an API
    conversations: Mapping[str, Prompt] = field(default_factory=dict)  # each agent's last prompt, with its reply

    def prompt(self, agent: str, opening: Prompt, followup: str | None) -> Prompt:
        """The next prompt of an agent with a history; it has token ids if it continues sampled tokens.

        Raises `ValueError` if the agent observes a whole dialogue, or tools. After its first turn it is shown
        `followup` instead of the opening's text, if there is one.
        """
        check_opening(agent, opening)
        before = self.conversations.get(agent)
        if before is None or _system(before.messages) != _system(opening.messages):
            return opening
        message = {"role": "user", "content": opening.messages[-1]["content"] if followup is None else followup}
        if not isinstance(message["content"], str):
            raise ValueError(
                f"agent {agent!r} has history='conversation' and observes images after its first turn; expected texts "
                "from then on: conversations of several pictures are not supported. Have observe() describe them, "
                "or set history to 'none' for this agent."
            )
        extend = self.extensions[agent]
        ids = () if extend is None else extend(before.ids, message)
        return opening if ids is None else Prompt([*before.messages, message], ids, before.images)

    def replied(self, agent: str, prompt: Prompt, completion: Completion) -> ChatHistory:
        """The history after the reply to a prompt of an agent that has one."""
        reply = {"role": "assistant", "content": completion.text}
        said = Prompt((*prompt.messages, reply), prompt.ids + completion.ids, prompt.images)
        return replace(self, conversations={**self.conversations, agent: said})


def check_opening(agent: str, opening: Prompt) -> None:
    """Raise `ValueError` for an observation that cannot start a conversation: more than one user message, or tools."""
    if opening.tools:
        raise ValueError(
            f"agent {agent!r} has history='conversation' and observes tools, which is not supported: its earlier "
            "turns would be kept without their results. Set history to 'none' for this agent, or make the environment "
            "with tool_calls='text'."
        )
    roles = [message["role"] for message in opening.messages]
    if roles not in (["user"], ["system", "user"]):
        raise ValueError(
            f"agent {agent!r} has history='conversation' and observes messages of the roles {roles}; expected a text "
            "and perhaps a system prompt, since its earlier turns are kept for it. Set history to 'none' for this "
            "agent, or have observe() return {'text': ...} without earlier turns."
        )


def agents_with_history(history: str | Mapping[str, str] | None, agents: Sequence[str]) -> dict[str, str]:
    """The history of each agent whose turns it keeps. Raises `ValueError` for another history, or an unknown name.

    `history` is one of `HISTORIES` for all agents, or by agent or role; an agent's entry wins over its role's, and
    agents without one have no history.
    """
    of_name = dict.fromkeys(agents, history) if isinstance(history, str) else dict(history or {})
    known = {*agents, *map(role_of, agents)}
    for name, given in of_name.items():
        if given not in HISTORIES:
            raise ValueError(f"history is {given!r} for {name!r}, expected one of {(*HISTORIES,)}. Choose one.")
        if name not in known:
            raise ValueError(
                f"history is given for {name!r}, but the environment has the agents {', '.join(agents)}. Name an "
                "agent, or a role (the agent's name without its number)."
            )
    of_agent = {agent: of_name.get(agent, of_name.get(role_of(agent), "none")) for agent in agents}
    return {agent: name for agent, name in of_agent.items() if HISTORIES[name][2]}


def num_restarted(episodes: Sequence[Episode], agents: Sequence[str]) -> int:
    """How many conversations were restarted: prompts without earlier turns though the agent had replied before."""
    return sum(
        decision.turn > 0 and decision.agent in agents and not _goes_on(decision.prompt)
        for episode in episodes
        for decision in episode.decisions
    )


def check_conversations(episodes: Sequence[Episode], agents: Sequence[str]) -> None:
    """Assert that each prompt of these agents begins with the tokens of its previous prompt and the chosen reply."""
    for episode in episodes:
        said: dict[str, tuple[int, ...]] = {}
        for d in [each for each in episode.decisions if each.agent in agents]:
            if _goes_on(d.prompt):
                where, before = f"instance {d.instance}, {d.agent}, turn {d.turn}", said.get(d.agent, ())
                assert d.prompt.ids[: len(before)] == before, f"{where}: not the tokens that were sampled before"
            said[d.agent] = d.prompt.ids + d.played.completion.ids


def _goes_on(prompt: Prompt) -> bool:
    return any(message["role"] == "assistant" for message in prompt.messages)


def _system(messages: Sequence[Message]) -> str | None:
    return messages[0]["content"] if messages[0]["role"] == "system" else None
