"""The Gymnasium spaces of what language models write and read: all strings, texts with images, chat messages.

`gymnasium.spaces.Text` rejects most of Unicode, checks 65k characters in milliseconds and samples large character
sets in tenths of a second. In `ChatText` every `str` is a member, and a sample is either a reply such as a model might
give or junk, so that PettingZoo's tests and random agents reach both the moves and the error handling of an
environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gymnasium.spaces import Dict, Space

from pettingllms_envs.observations import Image, Limits


T = TypeVar("T")

_JUNK = (
    "",
    " \n\t ",
    "I am not sure.",
    '{"answer": ["1", "2"]}',
    "```python\nprint(1)\n```",
    "\x00\u2028\ud800 \N{GRINNING FACE} U+0055",
    "Answer: " + "9" * 400,
)

_PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c6360"
    "00000002000148afa4710000000049454e44ae426082"
)  # a PNG file


class _ChatSpace(Space[T]):
    """What the spaces share: instances with one `repr` are equal, and none has a fixed shape."""

    @property
    def is_np_flattenable(self) -> bool:
        """False: texts have no fixed shape."""
        return False

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ChatText(_ChatSpace[str]):
    """The space of all strings. All instances are equal; sampling uses the instance's own random numbers.

    Args:
        seed: Seed of the samples; see `gymnasium.spaces.Space.seed`.
        replies: Well-formed replies that samples are drawn from.
    """

    def __init__(self, seed: int | None = None, replies: Sequence[str] = ()) -> None:
        super().__init__(seed=seed)
        self._replies = tuple(replies)

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


class ChatParts(_ChatSpace[tuple[Any, ...]]):
    """The space of texts and images in any order, as lists or tuples. All instances are equal."""

    def contains(self, x: Any) -> bool:
        """Whether `x` is a list or tuple of `str` and `Image`."""
        return isinstance(x, list | tuple) and all(isinstance(part, str | Image) for part in x)

    def sample(self, mask: Any = None, probability: Any = None) -> tuple[Any, ...]:
        """A text and an image of one pixel."""
        return (_JUNK[self.np_random.integers(len(_JUNK))], Image(_PIXEL, "one pixel"))


class ChatPrompt(_ChatSpace[list[Any]]):
    """The space of chat messages, or of the tools that a model may call, as lists. Those of one kind are equal.

    Args:
        kind: `"messages"` or `"tools"`, see `pettingllms_envs.observations.Prompt`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def contains(self, x: Any) -> bool:
        """Whether a model can be given `x`."""
        from pettingllms_envs.prompts import read_observation  # only those pay for it whose agents observe a chat

        whole = {"messages": [{"role": "user", "content": ""}]} | {self.kind: x}
        try:
            read_observation(whole, agent="")
        except (TypeError, ValueError):
            return False
        return isinstance(x, list)

    def sample(self, mask: Any = None, probability: Any = None) -> list[Any]:
        """A message with junk, or no tools."""
        return [{"role": "user", "content": _JUNK[0]}] if self.kind == "messages" else []

    def __repr__(self) -> str:
        return f"ChatPrompt({self.kind!r})"


class _Chat(Dict):
    """Messages and tools, and perhaps the limits of the reply, which a sample does not have."""

    def contains(self, x: Any) -> bool:
        """Whether a model can be asked so."""
        if not isinstance(x, dict) or not isinstance(x.get("limits", Limits()), Limits):
            return False
        return super().contains({name: value for name, value in x.items() if name != "limits"})


def observation_space(observes: str) -> Dict:
    """The space of an agent's observations, by `core.Role.observes`."""
    if observes == "text":
        return Dict({"system": ChatText(), "text": ChatText()})
    if observes == "parts":
        return Dict({"system": ChatText(), "parts": ChatParts()})
    return _Chat({"messages": ChatPrompt("messages"), "tools": ChatPrompt("tools")})
