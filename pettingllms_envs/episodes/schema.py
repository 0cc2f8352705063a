"""Types of the rows of `episodes.jsonl` and of the header `run.json`, and validation of files against them.

docs/records.md explains every field. A `NotRequired` field may be missing or null; unknown fields are ignored.
"""

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, NotRequired, TypedDict, get_args, get_origin, get_type_hints, is_typeddict


class EnvironmentFields(TypedDict):
    """One of several environments of a training."""

    env: str
    settings: dict[str, Any]


class InstancesFields(TypedDict):
    """Where the problems of a benchmark come from."""

    source: str
    num: int
    digest: NotRequired[str]
    content: NotRequired[str]


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
    started: NotRequired[str]
    command: NotRequired[str]


class CountFields(TypedDict):
    """How many episodes a report is of."""

    ended: int
    planned: NotRequired[int]


class SuccessFields(TypedDict):
    """A success rate; `least` and `most` where episodes have no result."""

    mean: float
    low: float
    high: float
    least: NotRequired[float]
    most: NotRequired[float]


class UsageFields(TypedDict):
    """The tokens of an agent, if they are known."""

    prompt_tokens: int | None
    completion_tokens: int | None


class SpanFields(TypedDict, total=False):
    """When a run began, in seconds since 1970, and its wall time in seconds."""

    began: float
    seconds: float


class Report(TypedDict):
    """What is read again of `report.json`."""

    episodes: CountFields
    success: NotRequired[SuccessFields | None]
    agents: dict[str, UsageFields]
    timing: NotRequired[SpanFields | None]


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
    step: NotRequired[int | None]
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
    name: NotRequired[str | None]
    tool_call_id: NotRequired[str | None]
    tool_calls: NotRequired[list[dict[str, Any]] | None]


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
    usage_note: NotRequired[str | None]
    finish: str | None
    model: NotRequired[str | None]
    seed: NotRequired[int | None]
    tool_calls: NotRequired[int | None]
    rewards: dict[str, float]
    parts: dict[str, dict[str, float]] | None
    reading: NotRequired[str | None]
    timing: NotRequired[Timing | None]


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
    end: NotRequired[str | None]
    turns: NotRequired[int | None]
    success: bool | None
    outcome: dict[str, Any] | None
    answer: NotRequired[str | None]
    returns: dict[str, float]
    state: str | None
    state_form: NotRequired[int | None]
    states: NotRequired[str | None]
    error: ErrorFields | None
    digest: NotRequired[str]
    timing: NotRequired[Timing | None]


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
    """A description of why a value is not a valid `run.json`; None if it is."""
    return next(_mismatches("", value, Header), None)


def of_bench_config(value: Any) -> str | None:
    """A description of what a benchmark's `config` lacks to be played again; None if nothing."""
    return next(_mismatches("config", value, BenchConfig), None)


def of_report(value: Any) -> str | None:
    """A description of why a value is not a valid `report.json`; None if it is."""
    if (fault := next(_mismatches("", value, Report), None)) is not None:
        return fault
    success = value.get("success") or {}
    is_partial = not success.keys().isdisjoint(("least", "most"))
    return (
        "success has only one of least and most"
        if is_partial and None in map(success.get, ("least", "most"))
        else None
    )


def of_row(value: Any) -> str | None:
    """A description of why a value is not a valid row; None if it is."""
    return next(_mismatches("", value, EpisodeRow), None) or next(_beyond_types(value), None)


class _Kind(NamedTuple):
    """How values of an annotation are checked.

    Args:
        types: Their types as JSON has them; empty for any.
        fields: Of an object with known fields, the kind of each and whether it must be there.
        inner: Of the values of another object, or of a list.
    """

    types: tuple[type, ...] = ()
    fields: "Mapping[str, tuple[_Kind, bool]]" = {}  # noqa: RUF012  # read only
    inner: "_Kind | None" = None


@cache
def _kind(hint: Any) -> _Kind:
    if hint is Any:
        return _Kind()
    if hint is float:
        return _Kind((int, float))
    if is_typeddict(hint):
        needed = hint.__required_keys__
        return _Kind((dict,), {name: (_kind(own), name in needed) for name, own in get_type_hints(hint).items()})
    if isinstance(hint, types.UnionType):
        each = [_kind(own) for own in get_args(hint)]
        known = next((kind for kind in each if kind.fields or kind.inner), _Kind())
        return known._replace(types=tuple(own for kind in each for own in kind.types))
    return _Kind((get_origin(hint) or hint,), inner=_kind(get_args(hint)[-1]) if get_args(hint) else None)


def _mismatches(name: str, value: Any, hint: Any) -> Iterator[str]:
    """Where a value is not of a type, in order, down to the values of its objects and lists."""
    return _of_kind(name, value, _kind(hint))


def _of_kind(name: str, value: Any, kind: _Kind) -> Iterator[str]:
    if kind.types and not isinstance(value, kind.types):
        yield f"{name} is not {' or '.join(WORDS[each] for each in kind.types)}" if name else "it is no object"
    elif isinstance(value, dict):
        for field, (own, is_needed) in kind.fields.items():
            if field not in value and is_needed:
                yield f"it has no {_inner(name, field)}"
            elif is_needed or value.get(field) is not None:
                yield from _of_kind(_inner(name, field), value[field], own)
        if kind.inner is not None:
            for field, each in value.items():
                yield from _of_kind(_inner(name, field), each, kind.inner)
    elif isinstance(value, list) and kind.inner is not None:
        for at, each in enumerate(value):
            yield from _of_kind(f"{name}[{at}]", each, kind.inner)


def _inner(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


def _beyond_types(row: EpisodeRow) -> Iterator[str]:
    """What types do not say: a message's part has the fields of its type, and a step's tools are some of the row's."""
    for number, step in enumerate(row["steps"]):
        if (tools := step.get("tools")) is not None and not 0 <= tools < len(row.get("tools") or ()):
            yield f"steps[{number}].tools is no index of the row's tools"
        for at, message in enumerate(step.get("messages") or ()):
            for place, part in enumerate(message["content"] if isinstance(message["content"], list) else ()):
                name, needed = f"steps[{number}].messages[{at}].content[{place}]", _PARTS.get(part["type"])
                if needed is None:
                    yield f"{name}.type is {part['type']!r}"
                elif lacking := next((field for field in needed if part.get(field) is None), None):
                    yield f"it has no {name}.{lacking}"


_PARTS = {"text": ("text",), "image": ("digest", "alt")}
