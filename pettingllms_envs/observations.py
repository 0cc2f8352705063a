"""Observations and the prompts that they become: texts, images, chat messages, tools.

An observation is one of

* a `str`, or `{"text": str}`, with perhaps a `"system"` prompt and a `"followup"` for agents with a history;
* `{"parts": [...]}`, texts and [`Image`]s in order, with perhaps a `"system"` prompt;
* `{"messages": [...]}`, a chat, with perhaps `"tools"` that the model may call, and `"limits"` of its reply.

`pettingllms_envs.prompts.read_observation` converts all of them to a `Prompt`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple


PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of every PNG file."""

DATA_URL = "data:image/png;base64,"
"""The beginning of a PNG file as an address, as OpenAI's API takes images."""


@dataclass(frozen=True)
class Image:
    """An image of an observation.

    Args:
        png: Its file, in the PNG format.
        alt: A description for those who cannot see it: models that read texts, terminals.
    """

    png: bytes = field(repr=False)
    alt: str

    def __post_init__(self) -> None:
        if not isinstance(self.png, bytes) or not isinstance(self.alt, str):
            given = f"{type(self.png).__name__} and {type(self.alt).__name__}"
            raise TypeError(f"Image got {given}; expected the bytes of a PNG file, and a description as a str.")
        if not self.png.startswith(PNG):
            raise ValueError(f"Image got the bytes {self.png[:8]!r} ...; expected a PNG file. Save it in that format.")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file, 64 hex digits."""
        return hashlib.sha256(self.png).hexdigest()

    @classmethod
    def of_url(cls, url: Any, alt: str = "an image") -> Image:
        """The image of a data URL.

        Raises:
            ValueError: It is none of a PNG file. Other addresses are not fetched.
        """
        if not isinstance(url, str) or not url.startswith(DATA_URL):
            raise ValueError(
                f"an image has the address {str(url)[:40]!r}, which is not fetched; expected {DATA_URL}..., a file "
                "in base64. Open it, Image(path.read_bytes(), 'a cat'), and give its url."
            )
        try:
            png = base64.b64decode(url.removeprefix(DATA_URL), validate=True)
        except ValueError:
            raise ValueError(
                f"an image has the address {url[:40]!r}, which is no base64 throughout its {len(url)} characters; "
                f"expected {DATA_URL}... Give the url of an Image."
            ) from None
        return cls(png, alt)

    @property
    def url(self) -> str:
        """The file as a data URL."""
        return DATA_URL + base64.b64encode(self.png).decode("ascii")

    def __repr__(self) -> str:
        return f"Image({self.digest[:16]}, alt={self.alt!r})"


Part = str | Image
"""A part of an observation."""

Message = dict[str, Any]
"""A chat message: `{"role": "system" | "user" | "assistant" | "tool", "content": ...}`, a `str` or a list of `Part`s.

An assistant's may have `tool_calls`, a list of `{"id": str, "type": "function", "function": {"name": str,
"arguments": {...}}}`; a tool's has the `tool_call_id` it answers, and perhaps the tool's `name`.
"""


class Prompt(NamedTuple):
    """What a model is given: the chat messages, and the tools that it may call.

    Args:
        messages: The messages, the last one a user's or a tool's.
        tools: Tools in OpenAI's form: `{"type": "function", "function": {"name", "description", "parameters"}}`.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()


class Limits(NamedTuple):
    """What an observation asks of its reply. It can only shorten what the trainer or the evaluation allows.

    Args:
        max_tokens: Most tokens of the reply; None: no limit of its own.
        stop: Words that end the reply, in addition to others.
    """

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


Observation = str | Sequence[Part] | Prompt
"""What a workflow shows an agent: a text, texts and images in order, or a whole prompt."""


def in_texts(value: Any, change: Callable[[str], str]) -> Any:
    """JSON data with every text in it changed, those of keys as well; tuples become lists."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {in_texts(key, change): in_texts(each, change) for key, each in value.items()}
    return [in_texts(each, change) for each in value] if isinstance(value, list | tuple) else value
