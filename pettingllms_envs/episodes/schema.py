"""Types of the rows of `episodes.jsonl` and of the header `run.json`, and validation of files against them.

docs/records.md explains every field. A `NotRequired` field may be missing; unknown fields are ignored.
"""

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NotRequired, TypedDict, get_args, get_origin, get_type_hints, is_typeddict


class EnvironmentFields(TypedDict):
    """One of several environments of a training."""

    env: str
    settings: dict[str, Any]


class InstancesFields(TypedDict):
    """Where the problems of a benchmark come from."""

    source: str
    num: int
    digest: NotRequired[str]


class CreditFields(TypedDict, total=False):
    """How a training turned rewards into advantages."""

    name: str | None
    sums_to_zero: str | None
    judges_own_step: bool | None
    scale: str | None


class Config(TypedDict, total=False):
    """What determines the rows. Each kind of run has some of these fields, and others that nothing reads."""

    env: str | None
    settings: dict[str, Any] | None
    env_config: str | None
    environments: dict[str, EnvironmentFields] | None
    roles: dict[str, str] | None
    agents: dict[str, Any] | None
    instances: InstancesFields | None
    samples: int | None
    seed: int | None
    max_steps: int | None
    episode_tokens: int | None
    generated_tokens: int | None
    sampling: str | None
    num_generations: int | None
    temperature: float | None
    credit: CreditFields | None


class AgentFields(TypedDict):
    """What acted for an agent of a benchmark; the options of its kind are beside these."""

    kind: str
    target: str | None


class BenchConfig(TypedDict):
    """What a benchmark needs to be played again."""

    env: str
    settings: dict[str, Any]
    instances: InstancesFields
    samples: int
    seed: int
    max_steps: int
    episode_tokens: int | None
    agents: dict[str, AgentFields]


class DataFields(TypedDict):
    """The label of the data."""

    name: str
    note: str | None


class SandboxFields(TypedDict, total=False):
    """How programs were isolated."""

    level: str


class WrittenFields(TypedDict):
    """What a training has written: how many episodes, and SHA-256 of their digests."""

    episodes: int
    digest: str


class Header(TypedDict):
    """The content of `run.json`."""

    format: NotRequired[int]
    kind: str
    config: Config
    data: NotRequired[DataFields | None]
    versions: dict[str, Any]
    sandbox: NotRequired[SandboxFields | None]
    machine: dict[str, Any]
    written: NotRequired[WrittenFields]


class CountFields(TypedDict):
    """How many episodes a report is of."""

    ended: int


class Report(TypedDict):
    """What is read again of `report.json`."""

    episodes: CountFields


class InstanceFields(TypedDict):
    """The problem of an episode."""

    index: int
    env: str
    seed: int | None
    options: dict[str, Any]
    problem: str | None


class ErrorFields(TypedDict):
    """Why an episode could not be played to its end."""

    kind: str
    message: str
    agent: NotRequired[str | None]
    step: NotRequired[int]
    reply: NotRequired[str | None]


class PromptFields(TypedDict):
    """A prompt that consists of a system prompt and a text."""

    system: NotRequired[str]
    text: str


class PartFields(TypedDict):
    """A part of a message: a text, or an image, which is in the file `media/<digest>.png`."""

    type: str
    text: NotRequired[str]
    digest: NotRequired[str]
    alt: NotRequired[str]


class MessageFields(TypedDict):
    """A chat message of any other prompt."""

    role: str
    content: str | list[PartFields]
    name: NotRequired[str]
    tool_call_id: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]


class TokenFields(TypedDict):
    """Numbers of tokens; None if unknown."""

    prompt: float | None
    completion: float | None


class Timing(TypedDict, total=False):
    """The fields that would differ in a second run."""

    began: float
    seconds: float
    tries: int


class Step(TypedDict):
    """A decision: an agent's prompt, its reply, and the result."""

    agent: str
    turn: int
    state: str | None
    prompt: PromptFields
    messages: NotRequired[list[MessageFields] | None]
    tools: NotRequired[int]
    reply: str
    reasoning: NotRequired[str | None]
    tokens: TokenFields
    finish: str | None
    model: NotRequired[str | None]
    seed: NotRequired[int]
    tool_calls: NotRequired[int]
    rewards: dict[str, float]
    parts: dict[str, dict[str, float]] | None
    timing: NotRequired[Timing]


class TrainingFields(TypedDict, total=False):
    """Where an episode belongs in a training."""

    step: int
    before: int
    episodes: int
    environment: str


class EpisodeRow(TypedDict):
    """An episode: one line of `episodes.jsonl`."""

    format: NotRequired[int]
    instance: InstanceFields
    sample: int
    training: NotRequired[TrainingFields]
    tools: NotRequired[list[list[dict[str, Any]]]]
    steps: list[Step]
    end: NotRequired[str]
    turns: NotRequired[int]
    success: bool | None
    outcome: dict[str, Any] | None
    answer: NotRequired[str | None]
    returns: dict[str, float]
    state: str | None
    error: ErrorFields | None
    digest: NotRequired[str]
    timing: NotRequired[Timing]


WORDS = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}

Types = tuple[type, ...]

NUMBER: Types = (int, float)


def of_run(value: Any) -> str | None:
    """A description of why a value is not a valid `run.json`; None if it is."""
    return next(_mismatches("", value, Header), None)


def of_bench_config(value: Any) -> str | None:
    """A description of what a benchmark's `config` lacks to be played again; None if nothing."""
    return next(_mismatches("config", value, BenchConfig), None)


def of_report(value: Any) -> str | None:
    """A description of why a value is not a valid `report.json`; None if it is."""
    return next(_mismatches("", value, Report), None)


def of_row(value: Any) -> str | None:
    """A description of why a value is not a valid row; None if it is."""
    return next(_of_row(value), None)


@cache
def required(fields: type) -> Mapping[str, Types]:
    """The required fields, in the order of their definition, with their JSON types."""
    needed: frozenset[str] = fields.__required_keys__  # type: ignore[attr-defined]  # of a TypedDict
    return {name: tuple(_json_types(hint)) for name, hint in _hints(fields).items() if name in needed}


@cache
def _hints(fields: type) -> Mapping[str, Any]:
    return get_type_hints(fields)


def _json_types(hint: Any) -> Iterator[type]:
    if isinstance(hint, types.UnionType):
        for each in get_args(hint):
            yield from _json_types(each)
    elif hint is float:
        yield from NUMBER
    elif isinstance(hint, type) and issubclass(hint, dict):  # a TypedDict, too
        yield dict
    else:
        yield get_origin(hint) or hint


def _mismatches(name: str, value: Any, hint: Any) -> Iterator[str]:
    """Where a value is not of a type, in order, down to the values of its objects. Only the first one is reliable."""
    if hint is Any:
        return
    expected = tuple(_json_types(hint))
    if not isinstance(value, expected):
        yield f"{name} is not {' or '.join(WORDS[each] for each in expected)}" if name else "it is no object"
    if not isinstance(value, dict):
        return
    for each in get_args(hint) if isinstance(hint, types.UnionType) else (hint,):
        if is_typeddict(each):
            for field, of_field in _hints(each).items():
                if field in value:
                    yield from _mismatches(_inner(name, field), value[field], of_field)
                elif field in required(each):
                    yield f"it has no {_inner(name, field)}"
        elif get_origin(each) is dict:
            for field, of_field in value.items():
                yield from _mismatches(_inner(name, field), of_field, get_args(each)[1])


def _inner(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


def _of_row(row: Any) -> Iterator[str]:
    """The errors of a row, in order. Only the first one is reliable: later checks assume that there was none."""
    yield from _wrong("", row, required(EpisodeRow))
    yield from _wrong("instance", row["instance"], required(InstanceFields))
    yield from _numbers("returns", row["returns"])
    yield from _mismatches("training", row.get("training", {}), TrainingFields)
    yield from _mismatches("digest", row.get("digest", ""), str)
    if row["error"] is not None:
        yield from _wrong("error", row["error"], required(ErrorFields))
    for number, step in enumerate(row["steps"]):
        name = f"steps[{number}]"
        yield from _wrong(name, step, required(Step))
        yield from _wrong(f"{name}.prompt", step["prompt"], required(PromptFields))
        if "messages" in step:
            yield from _wrong(name, step, {"messages": (list, type(None))})
        for at, message in enumerate(step.get("messages") or ()):
            yield from _wrong(f"{name}.messages[{at}]", message, required(MessageFields))
            if isinstance(message["content"], list):
                yield from _of_parts(f"{name}.messages[{at}].content", message["content"])
        if "tools" in step and not _is_index(step["tools"], row.get("tools")):
            yield f"{name}.tools is no index of the row's tools"
        yield from _wrong(f"{name}.tokens", step["tokens"], required(TokenFields))
        yield from _numbers(f"{name}.rewards", step["rewards"])
        for scope, parts in (step["parts"] or {}).items():
            yield from _wrong(f"{name}.parts", step["parts"], {scope: (dict,)})
            yield from _numbers(f"{name}.parts.{scope}", parts)


def _of_parts(name: str, parts: list[Any]) -> Iterator[str]:
    for at, part in enumerate(parts):
        yield from _wrong(f"{name}[{at}]", part, required(PartFields))
        needed = _PARTS.get(part["type"])
        if needed is None:
            yield f"{name}[{at}].type is {part['type']!r}"
        else:
            yield from _wrong(f"{name}[{at}]", part, dict.fromkeys(needed, (str,)))


_PARTS = {"text": ("text",), "image": ("digest", "alt")}


def _is_index(value: Any, values: Any) -> bool:
    return isinstance(value, int) and isinstance(values, list) and 0 <= value < len(values)


def _numbers(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    yield from _wrong(name, found, dict.fromkeys(found, NUMBER))


def _wrong(name: str, found: Any, fields: Mapping[str, Types]) -> Iterator[str]:
    if not isinstance(found, dict):
        yield f"{name or 'it'} is no object"
        return
    for field, expected in fields.items():
        full = _inner(name, field)
        if field not in found:
            yield f"it has no {full}"
        elif not isinstance(found[field], expected):
            yield f"{full} is not {' or '.join(WORDS[each] for each in expected)}"
