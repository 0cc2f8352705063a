"""ChatText: the Gymnasium space of all strings that a language model can write.

`gymnasium.spaces.Text` rejects most of Unicode, checks 65k characters in milliseconds and samples large character
sets in tenths of a second. Here every `str` is a member, and a sample is either a reply such as a model might give or
junk, so that PettingZoo's tests and random agents reach both the moves and the error handling of an environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.spaces import Space


_JUNK = (
    "",
    " \n\t ",
    "I am not sure.",
    '{"answer": ["1", "2"]}',
    "```python\nprint(1)\n```",
    "\x00\u2028\ud800 \N{GRINNING FACE} U+0055",
    "Answer: " + "9" * 400,
)


class ChatText(Space[str]):
    """The space of all strings. All instances are equal; sampling uses the instance's own random numbers.

    Args:
        seed: Seed of the samples; see `gymnasium.spaces.Space.seed`.
        replies: Well-formed replies that samples are drawn from.
    """

    def __init__(self, seed: int | None = None, replies: Sequence[str] = ()) -> None:
        super().__init__(seed=seed)
        self._replies = tuple(replies)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed shape."""
        return False

    def contains(self, x: Any) -> bool:
        """Whether `x` is a `str`, in constant time."""
        return isinstance(x, str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """One of the well-formed replies (half of the time, with or without some words before it), or junk.

        Raises:
            ValueError: A mask or probabilities were given; every string is legal, so there is nothing to mask.
        """
        if mask is not None or probability is not None:
            raise ValueError("ChatText.sample got a mask or probability. Every str is legal: call it without.")
        rng = self.np_random
        junk = _JUNK[rng.integers(len(_JUNK))]
        if not self._replies or rng.random() < 0.5:
            return junk
        reply = self._replies[rng.integers(len(self._replies))]
        return reply if rng.random() < 0.5 else f"{junk}\nLet me think.\n{reply}"

    def to_jsonable(self, sample_n: Any) -> list[str]:
        """The samples as they are."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """The samples as they are."""
        return list(sample_n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatText)

    def __hash__(self) -> int:
        return hash(ChatText)

    def __repr__(self) -> str:
        return "ChatText()"
