"""The user's reward functions, by TRL's interface, for one decision at a time.

| given                              | what happens                                                               |
|------------------------------------|----------------------------------------------------------------------------|
| a function                         | called with the candidates of a decision; never two at once                |
| an `async` function                | awaited beside the others, and beside other decisions' (`num_threads`)     |
| a sequence classifier, or its name | scores prompt and completion, written with its own chat template           |

Prompts and completions have the format that TRL gives them for a data set of the same kind:

| the agent observes | `prompts`                          | `completions`                                            |
|--------------------|------------------------------------|----------------------------------------------------------|
| a `str`            | strings (TRL's standard format)    | strings                                                  |
| a dict             | lists of messages (conversational) | one message each: `completion[0]["content"]` is the text |

An agent that remembers (`history="conversation"`) has lists of messages from its second turn on.
"""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import isclass
from typing import Any, TypeAlias

from torch import nn
from transformers import PreTrainedTokenizerBase
from trl.trainer.utils import (
    get_callable_name,
    get_config_model_id,
    is_async_callable,
    shutdown_event_loop_in_daemon,
    start_event_loop_in_daemon,
)

from pettingllms_trl.records import PendingDecision


RewardFunction: TypeAlias = Callable[..., Any] | nn.Module | str
"""`f(prompts, completions, completion_ids, **columns)` to a number or `None` for each; a model, or the name of one."""
LogMetric = Callable[[str, float], None]
OWN_COLUMNS = (
    *("step", "prompt", "completion", "environment", "advantage"),
    *("agent", "instance", "episode", "turn", "chosen"),
)
"""Of the completions table."""


@dataclass(frozen=True, slots=True)
class RewardScores:
    """What the reward functions said of one candidate.

    Args:
        parts: Reward times weight, by function, of those that apply.
        rewards: Reward by function, not weighted; NaN where it does not apply.
        columns: What they wrote into the completions table.
    """

    parts: Mapping[str, float]
    rewards: Mapping[str, float]
    columns: Mapping[str, Any]


class RewardFunctions:
    """Functions with their names and weights.

    Args:
        functions: One or several, or `None`.
        weights: As many; `None`: 1 each.
        tokenizers: Of models among them, as many as functions; `None`: their own.

    Raises:
        TypeError: One of them is a class, or cannot be called.
        ValueError: There are not as many weights or tokenizers as functions.
    """

    def __init__(
        self,
        functions: RewardFunction | list[RewardFunction] | None,
        weights: list[float] | None,
        tokenizers: PreTrainedTokenizerBase | list[PreTrainedTokenizerBase | None] | None = None,
    ) -> None:
        self._functions = [] if functions is None else list(functions) if isinstance(functions, list) else [functions]
        for function in self._functions:
            if isclass(function) or not (callable(function) or isinstance(function, str)):
                raise TypeError(
                    f"reward_funcs has {function!r}, expected functions of prompts and completions, sequence "
                    "classifiers, or names of such. Give an object, not its class."
                )
        given = [None] * len(self._functions) if tokenizers is None else tokenizers
        self.tokenizers = list(given) if isinstance(given, list) else [given]
        for what, values in (("reward_weights", weights), ("reward_processing_classes", self.tokenizers)):
            if values is not None and len(values) != len(self._functions):
                kind = "numbers" if what == "reward_weights" else "tokenizers"
                raise ValueError(
                    f"{what} has {len(values)} {kind} for {len(self._functions)} reward functions; give one each"
                )
        self._weights = weights or [1.0] * len(self._functions)
        self.names = _numbered([_name(function) for function in self._functions])
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        if any(map(_is_async, self._functions)):
            thread, self._loop, ready = start_event_loop_in_daemon(name="reward functions")
            ready.wait()
            weakref.finalize(self, _end, thread, self._loop)

    def __len__(self) -> int:
        return len(self._functions)

    def load(self, load: Callable[[str | nn.Module, PreTrainedTokenizerBase | None], Callable[..., Any]]) -> None:
        """Have models and names of models made into functions."""
        for i, function in enumerate(self._functions):
            if isinstance(function, str | nn.Module):
                self._functions[i] = load(function, self.tokenizers[i])

    def judge(self, choice: PendingDecision, *, trainer_state: Any, log_metric: LogMetric) -> list[RewardScores]:
        """What they say of a decision's candidates. May be called on several threads at once.

        Raises:
            ValueError: A function returned anything but a finite number or `None` for each, or wrote a column that is
                not its to write, or not as long.
            TypeError: A function returned no list.
        """
        width = len(choice.completions)
        columns: dict[str, list[Any]] = {}
        row = {**choice.row, "agent": choice.agent, "turn": choice.turn}
        arguments = {
            **_texts(choice),
            "completion_ids": [list(c.ids) for c in choice.completions],
            "trainer_state": trainer_state,
            "log_metric": log_metric,
            "log_extra": partial(_write, columns, width),
            **{name: [value] * width for name, value in row.items()},
        }
        awaited = {
            i: asyncio.run_coroutine_threadsafe(_awaited(function, arguments), self._loop)
            for i, function in enumerate(self._functions)
            if self._loop is not None and _is_async(function)
        }
        found: dict[int, Any] = {}
        with self._lock:
            for i, function in enumerate(self._functions):
                if i not in awaited:
                    found[i] = function(**arguments)  # type: ignore[operator]  # names are loaded by now
        found |= {i: future.result() for i, future in awaited.items()}
        rewards = [_checked(found[i], name, choice) for i, name in enumerate(self.names)]
        return [
            RewardScores(
                parts={
                    name: weight * values[k]
                    for name, weight, values in zip(self.names, self._weights, rewards, strict=True)
                    if not math.isnan(values[k])
                },
                rewards={name: values[k] for name, values in zip(self.names, rewards, strict=True)},
                columns={name: values[k] for name, values in columns.items()},
            )
            for k in range(width)
        ]


def of_no_use(judgements: Collection[Sequence[RewardScores]]) -> list[str]:
    """Warnings for functions that tell no candidate of a generation from another: of one value, or of none at all.

    Args:
        judgements: Of the candidates of each agent and turn. A function that gives 1 to some of these and `None` to
            others tells them apart, for `None` adds 0.
    """
    found = []
    every = [judged for own in judgements for judged in own]
    for name in every[0].rewards if every else ():
        given = [judged.rewards[name] for judged in every if not math.isnan(judged.rewards[name])]
        tells = any(len({math.isnan(judged.rewards[name]) for judged in own}) > 1 for own in judgements)
        if not given:
            found.append(
                f"the reward function {name!r} returned None for every candidate of the first generation, so it adds "
                "nothing. Return a number where it applies."
            )
        elif len(set(given)) == 1 and not (given[0] and tells):
            found.append(
                f"the reward function {name!r} gave {given[0]} to all {len(given)} candidates that it judged in the "
                "first generation, so nothing is learnt from it. If that is no rare success, look at what it reads: "
                "completions are strings where the agent observes a str, and lists of messages "
                "(completion[0]['content'] is the text) where it observes a dict."
            )
    return found


def _texts(choice: PendingDecision) -> dict[str, list[Any]]:
    """Prompts and completions, in the format that the top of this file says."""
    texts = [completion.text for completion in choice.completions]
    if choice.is_text:
        return {"prompts": [choice.prompt[0]["content"]] * len(texts), "completions": texts}
    return {
        "prompts": [list(choice.prompt)] * len(texts),
        "completions": [[{"role": "assistant", "content": text}] for text in texts],
    }


def _end(thread: threading.Thread, loop: asyncio.AbstractEventLoop) -> None:
    shutdown_event_loop_in_daemon(thread, loop)
    loop.close()


async def _awaited(function: Any, arguments: Mapping[str, Any]) -> Any:
    return await function(**arguments)


def _is_async(function: Any) -> bool:
    return not isinstance(function, str | nn.Module) and is_async_callable(function)


def _checked(given: Any, name: str, choice: PendingDecision) -> list[float]:
    width = len(choice.completions)
    try:
        values = list(given)
    except TypeError:
        raise TypeError(
            f"the reward function {name!r} returned {given!r} for {width} candidates of {choice.agent!r}, expected a "
            f"list of {width} numbers: return one for each of `completions`, None where it does not apply."
        ) from None
    if len(values) != width or not all(value is None or math.isfinite(value) for value in values):
        raise ValueError(
            f"the reward function {name!r} returned {values!r} for {width} candidates of {choice.agent!r}, expected "
            f"{width} finite numbers (or None where it does not apply)"
        )
    return [math.nan if value is None else float(value) for value in values]


def _write(columns: dict[str, list[Any]], width: int, column: str, values: Sequence[Any]) -> None:
    """TRL's `log_extra`, for the candidates of one decision."""
    if column in OWN_COLUMNS or len(values) != width:
        raise ValueError(
            f"log_extra({column!r}, ...) has {len(values)} values for {width} candidates; expected one each, in a "
            f"column other than {', '.join(OWN_COLUMNS)}. Rename the column, or write a value for each completion."
        )
    columns[column] = list(values)


def _name(function: RewardFunction) -> str:
    if isinstance(function, str):
        return function.split("/")[-1]
    if isinstance(function, nn.Module):
        return str(get_config_model_id(function.config)).split("/")[-1]
    return str(get_callable_name(function))


def _numbered(names: Sequence[str]) -> list[str]:
    """The second of a name becomes name_2, and so on: under one name the rewards of both would be one."""
    seen = Counter(OWN_COLUMNS)
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique
