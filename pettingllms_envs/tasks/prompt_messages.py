"""The chat messages of a row's `prompt`, with the pictures of the row in them, as TRL's trainers put them there.

Pictures are in the column `images`, a list, or else in `image`. They take the places `{"type": "image"}` of the
messages, in order; if a user's message is a plain text, they stand before the first such text. A part may also bring a
picture of its own: `{"type": "image", "image": ...}`, or `{"type": "image_url", "image_url": {"url": ...}}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, groupby
from typing import Any, Final

from pettingllms_envs.observations import Image, Message
from pettingllms_envs.quoting import quote_headings


PROMPT: Final = "prompt"
"""The column that may hold a text or a list of chat messages, as in TRL's data sets."""
PICTURES: Final = ("image", "images")
"""Columns with pictures, as in TRL's data sets."""


def messages_of(row: Mapping[str, Any]) -> list[Message]:
    """The messages of a row, whose pictures are data URLs, with its texts quoted and its pictures as `Image`s."""
    prompt, given = row[PROMPT], row.get("images")
    pictures = [each for each in ([row.get("image")] if given is None else given) if each is not None]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if not all(isinstance(message, Mapping) for message in messages):
        return messages  # which reading the observation will refuse
    texts = [each for each in messages if each.get("role") == "user" and isinstance(each.get("content"), str)]
    if pictures and texts:
        parts = [*[{"type": "image"}] * len(pictures), {"type": "text", "text": texts[0]["content"]}]
        messages = [{**each, "content": parts} if each is texts[0] else each for each in messages]
    contents = [each["content"] for each in messages if isinstance(each.get("content"), list)]
    num_places = sum(map(_is_place, chain.from_iterable(contents)))
    if num_places != len(pictures):
        raise ValueError(
            f"the prompt has {num_places} places {{'type': 'image'}}, and {' and '.join(PICTURES)} have "
            f"{len(pictures)} pictures; expected as many. Correct the prompt, or leave the pictures out."
        )
    left = iter(pictures)
    return [_shown(message, left) for message in messages]


def _is_place(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image" and part.get("image") is None


def _shown(message: Mapping[str, Any], pictures: Iterator[Any]) -> Message:
    """A message with its text quoted, which leaves usual texts as they are. A system message stays as it is: it is an
    instruction, and may well name tokens such as `<think>`. Keys whose value is None, which Arrow adds, are left out.
    """
    kept = {key: value for key, value in message.items() if value is not None}
    quote = str if kept.get("role") == "system" else quote_headings
    content = kept.get("content")
    if isinstance(content, str):
        kept["content"] = quote(content)
    elif isinstance(content, list):
        parts = groupby([_part(part, pictures) for part in content], lambda part: isinstance(part, str))
        shown: list[Any] = [each for is_text, own in parts for each in ([quote("".join(own))] if is_text else own)]
        kept["content"] = shown if any(isinstance(each, Image) for each in shown) else "".join(shown)
    return kept


def _part(part: Any, pictures: Iterator[Any]) -> Any:
    """A part as a text or an `Image`; a place is given the next picture."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if kind not in ("image", "image_url"):
        raise ValueError(f"the prompt has a part of the type {kind!r}; expected 'text' or 'image'. Leave it out.")
    given = next(pictures) if _is_place(part) else part.get(kind)
    return Image.of_url(given.get("url") if isinstance(given, Mapping) else given)
