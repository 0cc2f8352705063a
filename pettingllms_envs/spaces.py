"""ChatText: the Gymnasium space of everything a language model can write.

`gymnasium.spaces.Text` rejects most of Unicode, checks 65k characters in milliseconds and samples large character
sets in tenths of a second. Here every `str` is a member, and a sample is either a reply such as a model might give or
junk, so that PettingZoo's tests and random agents reach both the moves and the error handling of an environment.
"""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Space


_JUNK = (
    "",
    " \n\t ",
    "I am not sure.",
    "Moves:",
    "Moves: up, then left",
    "Moves: U R\nDone.",
    "Moves: U, R, D, L and so on",
    '{"moves": ["U", "R"]}',
    "```\nMoves: D D\n```",
    "\x00\u2028\ud800 \N{GRINNING FACE} U+0055",
    "Moves: " + "U " * 300,
    "Answer: " + "9" * 400,
)


class ChatText(Space[str]):
    """The space of all strings. All instances are equal; sampling uses the instance's own random numbers.

    Args:
        seed: Seed of the samples; see `gymnasium.spaces.Space.seed`.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed shape."""
        return False

    def contains(self, x: Any) -> bool:
        """Whether `x` is a `str`, in constant time."""
        return isinstance(x, str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A list of one to three moves on the last line (half of the time), or junk.

        Raises:
            ValueError: A mask or probabilities were given; every string is legal, so there is nothing to mask.
        """
        if mask is not None or probability is not None:
            raise ValueError("ChatText.sample got a mask or probability. Every str is legal: call it without.")
        rng = self.np_random
        if rng.random() < 0.5:
            return _JUNK[rng.integers(len(_JUNK))]
        moves = " ".join("UDLR"[i] for i in rng.integers(4, size=rng.integers(1, 4)))
        return f"Moves: {moves}" if rng.random() < 0.5 else f"Let me think.\nMoves: {moves}"

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
