"""Whether what a file says is a run, as far as this package's readers need it (docs/records.md has all fields)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


Types = tuple[type, ...]

OBJECT, LIST, TEXT, WHOLE, NUMBER = (dict,), (list,), (str,), (int,), (int, float)
NOTHING = (type(None),)

RUN: Mapping[str, Types] = {"kind": TEXT, "config": OBJECT, "versions": OBJECT, "machine": OBJECT}
ROW: Mapping[str, Types] = {
    "instance": OBJECT,
    "sample": WHOLE,
    "steps": LIST,
    "success": (bool, *NOTHING),
    "outcome": (*OBJECT, *NOTHING),
    "returns": OBJECT,
    "state": (*TEXT, *NOTHING),
    "error": (*OBJECT, *NOTHING),
}
INSTANCE: Mapping[str, Types] = {
    "index": WHOLE,
    "env": TEXT,
    "seed": (*WHOLE, *NOTHING),
    "options": OBJECT,
    "problem": (*TEXT, *NOTHING),
}
ERROR: Mapping[str, Types] = {"kind": TEXT, "message": TEXT}
STEP: Mapping[str, Types] = {
    "agent": TEXT,
    "turn": WHOLE,
    "state": (*TEXT, *NOTHING),
    "prompt": OBJECT,
    "reply": TEXT,
    "tokens": OBJECT,
    "finish": (*TEXT, *NOTHING),
    "rewards": OBJECT,
    "parts": (*OBJECT, *NOTHING),
}
PROMPT: Mapping[str, Types] = {"text": TEXT}
MESSAGE: Mapping[str, Types] = {"role": TEXT, "content": TEXT}
TOKENS: Mapping[str, Types] = {"prompt": (*NUMBER, *NOTHING), "completion": (*NUMBER, *NOTHING)}

WORDS = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def of_run(value: Any) -> str | None:
    """What keeps a value from being the `run.json` of a run, in words; None if nothing does."""
    return next(_wrong("", value, RUN), None)


def of_row(value: Any) -> str | None:
    """What keeps a value from being a row of a run, in words; None if nothing does."""
    return next(_of_row(value), None)


def _of_row(row: Any) -> Iterator[str]:
    """What is wrong, the first first. To be asked for no more than that: what comes after takes it for granted."""
    yield from _wrong("", row, ROW)
    yield from _wrong("instance", row["instance"], INSTANCE)
    yield from _numbers("returns", row["returns"])
    if row["error"] is not None:
        yield from _wrong("error", row["error"], ERROR)
    for number, step in enumerate(row["steps"]):
        name = f"steps[{number}]"
        yield from _wrong(name, step, STEP)
        yield from _wrong(f"{name}.prompt", step["prompt"], PROMPT)
        if "messages" in step:
            yield from _wrong(name, step, {"messages": (*LIST, *NOTHING)})
        for at, message in enumerate(step.get("messages") or ()):
            yield from _wrong(f"{name}.messages[{at}]", message, MESSAGE)
        yield from _wrong(f"{name}.tokens", step["tokens"], TOKENS)
        yield from _numbers(f"{name}.rewards", step["rewards"])
        for scope, parts in (step["parts"] or {}).items():
            yield from _wrong(f"{name}.parts", step["parts"], {scope: OBJECT})
            yield from _numbers(f"{name}.parts.{scope}", parts)


def _numbers(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    yield from _wrong(name, found, dict.fromkeys(found, NUMBER))


def _wrong(name: str, found: Any, fields: Mapping[str, Types]) -> Iterator[str]:
    if not isinstance(found, dict):
        yield f"{name or 'it'} is no object"
        return
    for field, types in fields.items():
        full = f"{name}.{field}" if name else field
        if field not in found:
            yield f"it has no {full}"
        elif not isinstance(found[field], types):
            yield f"{full} is not {' or '.join(WORDS[each] for each in types)}"
