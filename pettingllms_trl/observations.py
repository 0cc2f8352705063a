"""What an agent observes, as the messages that a policy is asked with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingllms_trl.records import Message


CARRIED = ("system", "text", "followup")
"""What an observation may have."""


def prompt_of(observation: Any, *, agent: str) -> list[Message]:
    """An observation as chat messages: `{"text": ..., "system": ...}` (system optional), or a plain string.

    Lone surrogates, which a partner's reply or a data set may have brought in, and which no tokenizer takes, are
    U+FFFD in them.

    Raises:
        TypeError: It is neither, or has something else besides, such as an image, which the model would not be shown.
    """
    if isinstance(observation, str):
        return [{"role": "user", "content": _encodable(observation)}]
    if isinstance(observation, Mapping) and isinstance(observation.get("text"), str):
        _check_carried(observation, agent)
        system = observation.get("system")
        lead = [{"role": "system", "content": system}] if system else []
        return [*lead, {"role": "user", "content": _encodable(observation["text"])}]
    given = type(observation).__name__
    if isinstance(observation, Mapping):
        given = f"a mapping with the keys {sorted(observation)}"
    raise TypeError(
        f"agent {agent!r} observes {given}, expected text: a str, or a dict with a str under 'text' and, if you like, "
        "one under 'system'. Wrap the environment so that observe() returns what the model shall read."
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
