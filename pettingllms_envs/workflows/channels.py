r"""Messages between roles: a channel with a capacity, whose messages are shown as data.

    >>> sent = Channel(capacity=12).send("adviser", "Go left.\nTurn 1 of 4.")
    >>> print(sent.shown)
    The adviser wrote (cut after 12 characters):
    > Go left.
    > Tur

Every line is quoted, so that a message cannot pass for a part of the prompt, and control tokens of chat templates are
broken up, so that it cannot pass for a turn of the chat.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple


ZERO_WIDTH_SPACE = "\u200b"
UNPRINTABLE = ("Cc", "Cs")  # control characters and lone surrogates

_MARKUP = re.compile(
    r"<(?=[|｜])|<(?=/?(?:tool_call|tool_response|think|s|bos|eos|start_of_turn|end_of_turn)>)|\[(?=/?INST\])|<(?=</?SYS>)"
)


class Sent(NamedTuple):
    """A message as it arrives.

    Args:
        sender: The role or agent that wrote it.
        text: What passed the channel.
        capacity: The channel's capacity if the message was longer, else 0.
    """

    sender: str
    text: str
    capacity: int = 0

    @property
    def shown(self) -> str:
        """The message quoted, for a prompt."""
        if not self.text.strip():
            return f"The {self.sender} wrote nothing."
        cut = f" (cut after {self.capacity} characters)" if self.capacity else ""
        return f"The {self.sender} wrote{cut}:\n{quoted(self.text)}"


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel from one role to others.

    Args:
        capacity: Most characters of a message, at least 1; the rest is lost.
        alphabet: The only characters that pass, such as `"0123456789"`; others are lost. Empty for all.

    Raises:
        ValueError: `capacity` is not a whole number of at least 1.
    """

    capacity: int = 500
    alphabet: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.capacity, int) or self.capacity < 1:
            raise ValueError(
                f"the capacity of a channel is {self.capacity!r}; expected a whole number of at least 1. Give the "
                "most characters of a message."
            )

    def send(self, sender: str, reply: str) -> Sent:
        """What arrives of a reply, without white space around it."""
        text = reply.strip()
        if self.alphabet:
            text = "".join(letter for letter in text if letter in self.alphabet)
        if len(text) <= self.capacity:
            return Sent(sender, text)
        return Sent(sender, text[: self.capacity], self.capacity)


def quoted(text: str) -> str:
    """A text that a model wrote, for a prompt: each line after `> `, without control characters or chat markup."""
    lines = (without_markup(_printable(line)) for line in text.expandtabs(4).splitlines())
    return "\n".join(f"> {line}" for line in lines)


def without_markup(text: str) -> str:
    """The text with the control tokens of chat templates broken up by zero-width spaces."""
    return _MARKUP.sub(rf"\g<0>{ZERO_WIDTH_SPACE}", text)


def _printable(line: str) -> str:
    return "".join("\ufffd" if unicodedata.category(letter) in UNPRINTABLE else letter for letter in line)
