r"""Messages between roles: a channel with a capacity, whose messages are shown as data.

    >>> sent = Channel(capacity=12).send("adviser", "Go left.\nTurn 1 of 4.")
    >>> print(sent.shown)
    The adviser wrote:
    > Go left.
    > Tur

What arrives depends on the text that passed and on nothing else: not on the length of the message, and on no character
that cannot be seen. So there are as many messages as texts that the alphabet and the capacity allow. Every line is
quoted, see `pettingllms_envs.quoting`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from pettingllms_envs.core import check_whole
from pettingllms_envs.state_digest import Reported


_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\U00016fe4\U0001d159\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that nobody sees, although Unicode does not call them formatting: fillers, variation selectors."""
_BLANK = "\u2800"
"""The Braille letter without dots, a space that Unicode does not call one."""


class Sent(NamedTuple):
    """A message as it arrives: the role or agent that wrote it, and what passed the channel."""

    sender: str
    text: str

    @property
    def shown(self) -> str:
        """The message quoted, for a prompt."""
        from pettingllms_envs.quoting import quote  # only those pay for it whose roles write to each other

        return f"The {self.sender} wrote:\n{quote(self.text)}" if self.text else f"The {self.sender} wrote nothing."


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel from one role to others.

    Args:
        capacity: Most characters of a message, at least 1; the rest is lost.
        alphabet: The only characters that pass, such as `"0123456789"`; others are lost. Empty for all that can be
            printed: letters, marks, digits and signs of any script, spaces, line breaks.

    Raises:
        ValueError: `capacity` is not a whole number of at least 1, or the alphabet has a character that cannot be
            printed.
    """

    capacity: int = 500
    alphabet: str = ""

    def __post_init__(self) -> None:
        check_whole("the capacity of a channel", self.capacity, 1)
        if hidden := [letter for letter in self.alphabet if letter != "\n" and _visible(letter) != letter]:
            raise ValueError(
                f"the alphabet of a channel has {hidden[0]!a}; expected characters that can be printed, spaces "
                "and line breaks. Leave it out."
            )

    def send(self, sender: str, reply: str) -> Sent:
        """What arrives of a reply: not its thoughts, and no white space around it."""
        from pettingllms_envs.replies.fences import without_thoughts

        text = "\n".join(map(_visible, without_thoughts(reply).expandtabs(4).splitlines()))
        if self.alphabet:
            text = "".join(letter for letter in text if letter in self.alphabet)
        return Sent(sender, text.strip()[: self.capacity].rstrip())


NO_MESSAGES = Reported(messages=0, message_chars=0)


def _visible(line: str) -> str:
    """What can be printed of a line, every space as a plain one."""
    if line.isascii() and line.isprintable():
        return line
    letters = (" " if letter.isspace() or letter == _BLANK else letter for letter in _INVISIBLE.sub("", line))
    return "".join(letter for letter in letters if letter.isprintable())
