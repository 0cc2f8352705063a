"""Replays recorded episodes without a model, to check that they repeat or to score them with another grader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms_envs.branching import check_replayable
from pettingllms_envs.episodes.difference import difference
from pettingllms_envs.episodes.episode import EpisodeRecorder, Instance, RunLimits
from pettingllms_envs.episodes.files import JsonObject, digest, write_line
from pettingllms_envs.episodes.observing import has_states_of, state_hash
from pettingllms_envs.failures import EpisodeRestart
from pettingllms_envs.observations import Image


UNTIL_THE_END = RunLimits(max_steps=2**62)

OPTIONAL = ("messages", "tools")
"""Fields of a step that only some prompts have."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between a replayed episode and its record.

    Args:
        step: Number of the step from 0; None: after the last step.
    """

    instance: int
    sample: int
    step: int | None
    agent: str | None
    what: str

    def __str__(self) -> str:
        where = "after the last step" if self.step is None else f"step {self.step} ({self.agent})"
        return f"instance {self.instance}, sample {self.sample}, {where}: {self.what}"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A replayed episode.

    Args:
        row: The new row; what only a model can know is taken from the record.
        first: The first difference from the record, or None.
        off_prompt: Number of steps at which the agent's prompt is now another one.
        has_states: Whether states were compared, as they are where the record's have the form of the environment's.
            If not, those of the record are kept.
    """

    row: dict[str, Any]
    first: Difference | None
    off_prompt: int
    has_states: bool = True


def replay(env: Any, row: JsonObject, *, keep: Callable[[Image], object] = lambda image: None) -> ReplayResult:
    """Play an episode's replies again.

    If the environment ends sooner now, or another agent acts, the remaining replies are dropped and the row ends.

    Args:
        env: The environment of the row, made as in its `run.json`, or another version of it.
        keep: Called with every image of a prompt.
    """
    check_replayable(env)
    instance = Instance.of(row)
    recorder = EpisodeRecorder(env, instance, keep)
    differences: list[Difference] = []
    off_prompt = 0
    is_training = "training" in row  # which knows the rewards of the agent that acted, and no outcome of some

    def differ(step: int | None, agent: str | None, what: str | None) -> None:
        if what is not None:
            differences.append(Difference(instance.index, row["sample"], step, agent, what))

    number, agent, over = -1, None, ""
    state: str | None = None
    has_states = True
    try:
        recorder.reset()
        has_states = has_states_of(row, env.metadata)
        over = recorder.end(UNTIL_THE_END)
        for number, was in enumerate(row["steps"]):
            agent = was["agent"]
            if over or env.agent_selection != agent:
                now = f"the episode is over ({over})" if over else f"{env.agent_selection} is to act"
                differ(number, agent, f"expected the reply of {agent}, but {now}")
                break
            again = recorder.prompt_fields(agent) | {"reply": was["reply"]}
            again |= {} if has_states else {"state": was["state"]}
            if is_training and "messages" in was:  # of an agent that remembers, of whose earlier turns env is unaware
                again.setdefault("messages", was["messages"])
            off_prompt += any(again.get(name) != was.get(name) for name in ("prompt", *OPTIONAL))
            recorder.play(was["reply"], {k: v for k, v in (was | again).items() if k in again or k not in OPTIONAL})
            if "reading" not in was:  # as of earlier versions
                recorder.steps[-1].pop("reading", None)
            state = state_hash(env)
            for name in OPTIONAL:
                differ(number, agent, difference(was.get(name), again.get(name), name))
            for name in ("prompt", "turn", "state", "rewards", "parts"):
                found: Any = recorder.steps[-1].get(name)
                differ(number, agent, difference(was[name], _as_far(found, was[name]) if is_training else found, name))
            over = recorder.end(UNTIL_THE_END)
    except EpisodeRestart:
        return replay(env, row, keep=keep)
    except Exception as error:  # noqa: BLE001  # another version of an environment may raise anything
        differ(number, agent, _raised(error, number, instance))
    again_row = _finished(recorder, row, over)
    if not has_states:
        again_row |= {"state": row["state"]}
        again_row |= {"digest": digest(again_row)} if "digest" in row else {}
    elif is_training:
        again_row["state"] = state  # as it was before everybody took their leave
    of_bench = () if is_training else ("turns",)  # a training has counted its decisions' turns, not the environment's
    for name in ("instance", "tools", "end", *of_bench, "success", "outcome", "answer", "returns", "state"):
        if name in row and not (is_training and row[name] is None):
            now = again_row[name]
            differ(None, None, difference(row[name], _as_far(now, row[name]) if is_training else now, name))
    return ReplayResult(again_row, differences[0] if differences else None, off_prompt, has_states)


def same_bytes(row: JsonObject, again: JsonObject) -> bool:
    """Whether a replayed row equals the recorded line byte for byte."""
    return write_line(row) == write_line(again)


def changed(before: Sequence[JsonObject], after: Iterable[JsonObject]) -> Mapping[str, int]:
    """How many episodes changed their success, `gained` or `lost`."""
    pairs = [(was["success"], now["success"]) for was, now in zip(before, after, strict=True)]
    return {
        "gained": sum(was is False and now is True for was, now in pairs),
        "lost": sum(was is True and now is False for was, now in pairs),
    }


def _raised(error: Exception, number: int, instance: Instance) -> str:
    """What an environment raised at a step; -1 is before the first, where nothing can be compared."""
    what = f"the environment raised {type(error).__name__}: {error}"
    if number < 0:
        raise ValueError(
            f"instance {instance.index} cannot be started again: {what} Replay it with the version that recorded it."
        ) from error
    return what


def _as_far(now: Any, was: Any) -> Any:
    """The new value, restricted to the fields that the record has."""
    if was is None:
        return None
    if isinstance(now, Mapping) and isinstance(was, Mapping):
        return {name: _as_far(value, was[name]) for name, value in now.items() if name in was}
    return now


def _finished(recorder: EpisodeRecorder, row: JsonObject, over: str) -> dict[str, Any]:
    """The replayed row, with keys in the order of the record."""
    end = over or (row["end"] if row["end"] in ("cut", "budget", "error") else "cut")
    made = recorder.row(row["sample"], end, row["error"] if end == "error" else None)
    again = {key: made.get(key, value) for key, value in row.items()}
    return again | {"digest": digest(again)} if "digest" in row else again
