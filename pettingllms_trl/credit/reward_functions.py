"""Calls the user's reward functions, which have TRL's interface, for one decision at a time.

| given                              | what happens                                                                |
|------------------------------------|-----------------------------------------------------------------------------|
| a function                         | called with the candidates of a decision; calls are never concurrent        |
| an `async` function                | awaited concurrently with others and with other decisions' (`num_threads`)  |
| a sequence classifier, or its name | scores prompt and completion, formatted with its own chat template          |

Prompts and completions have the format that TRL gives them for a data set of the same kind:

| the agent observes | `prompts`                          | `completions`                                            |
|--------------------|------------------------------------|----------------------------------------------------------|
| a `str`            | strings (TRL's standard format)    | strings                                                  |
| a dict             | lists of messages (conversational) | one message each: `completion[0]["content"]` is the text |

An agent with `history="conversation"` has lists of messages from its second turn on. Where the environment says which
replies are judged (`pettingllms_envs.conversation`), the prompt is the row's own column `prompt`, in its format, with
the pictures of `image` or `images` in its messages.

A function is numbered (`format_2`) if its name is that of another one, or of a part of the environment's reward.
"""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from inspect import isclass
from itertools import chain, count
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.utils import (
    get_callable_name,
    get_config_model_id,
    is_async_callable,
    shutdown_event_loop_in_daemon,
    start_event_loop_in_daemon,
)

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.records import PendingDecision


RewardFunction: TypeAlias = Callable[..., Any] | nn.Module | str
"""`f(prompts, completions, completion_ids, **columns)` returning a number or `None` for each; a model, or its name."""
LogMetric = Callable[[str, float], None]
ARGUMENTS = ("prompts", "completions", "completion_ids", "trainer_state", "log_metric", "log_extra")
"""What a reward function is given besides the row's columns, none of which may have such a name."""
DECISION_ARGUMENTS = ("agent", "turn")
"""What it is given in place of the row's columns of that name."""
OWN_COLUMNS = (
    *("step", "prompt", "completion", "environment", "advantage"),
    *("agent", "instance", "episode", "turn", "chosen"),
)
"""Columns of the completions table that a reward function may not write."""


@dataclass(frozen=True, slots=True)
class RewardScores:
    """The rewards of one candidate from all reward functions.

    Args:
        parts: Reward times weight, by function, for the functions that apply.
        rewards: Unweighted reward by function; NaN if a function does not apply.
        columns: What the functions wrote into the completions table.
    """

    parts: Mapping[str, float]
    rewards: Mapping[str, float]
    columns: Mapping[str, Any]


class RewardFunctions:
    """The user's reward functions with their names and weights.

    Args:
        weights: A weight for each; `None`: 1 each.
        tokenizers: A tokenizer for each, used for models; `None`: the models' own.
    """

    def __init__(
        self,
        functions: RewardFunction | list[RewardFunction] | None,
        weights: list[float] | None,
        tokenizers: PreTrainedTokenizerBase | list[PreTrainedTokenizerBase | None] | None = None,
        *,
        parts: Collection[str] = (),
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
        self.names = _numbered([_name(function) for function in self._functions], taken=(*OWN_COLUMNS, *parts))
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        if any(map(_is_async, self._functions)):
            thread, self._loop, ready = start_event_loop_in_daemon(name="reward functions")
            ready.wait()
            weakref.finalize(self, _end, thread, self._loop)

    def __len__(self) -> int:
        return len(self._functions)

    @property
    def by_name(self) -> dict[str, RewardFunction]:
        """The functions by their names; a model is one once it is loaded."""
        return dict(zip(self.names, self._functions, strict=True))

    def load(self, args: MultiAgentGRPOConfig, device: torch.device) -> None:
        """Turn models and names of models into functions."""
        for i, function in enumerate(self._functions):
            if isinstance(function, str | nn.Module):
                from pettingllms_trl.credit.reward_models import load_reward_model

                self._functions[i] = load_reward_model(function, self.tokenizers[i], args=args, device=device)

    def score(self, decision: PendingDecision, *, trainer_state: Any, log_metric: LogMetric) -> list[RewardScores]:
        """Score a decision's candidates. May be called on several threads concurrently."""
        check_columns(decision.row)
        width = len(decision.completions)
        columns: dict[str, list[Any]] = {}
        row = {**decision.row, "agent": decision.agent, "turn": decision.turn}
        arguments = {
            **_texts(decision),
            "completion_ids": [list(c.ids) for c in decision.completions],
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
        functions: list[Any] = self._functions  # names are loaded by now
        with self._lock:
            found = {i: function(**arguments) for i, function in enumerate(functions) if i not in awaited}
        found |= {i: future.result() for i, future in awaited.items()}
        rewards = [_checked(found[i], name, decision) for i, name in enumerate(self.names)]
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


def check_columns(columns: Collection[str]) -> None:
    """Raise `ValueError` for columns of rows that would replace arguments of reward functions."""
    taken = [column for column in columns if column in ARGUMENTS]
    if taken:
        raise ValueError(
            f"the data set's rows have the columns {taken}; expected other names than those of the arguments that "
            f"reward functions are given ({', '.join(ARGUMENTS)}), which they would replace. Rename them: "
            f"dataset.rename_column({taken[0]!r}, 'row_{taken[0]}')."
        )


def warnings_of_constant_rewards(groups: Collection[Sequence[RewardScores]]) -> list[str]:
    """Warnings for functions that do not distinguish the candidates of a generation: all rewards equal, or all `None`.

    Groups are the candidates of each agent and turn. A function that gives 1 to some of a group and `None` to others
    does distinguish them, since `None` adds 0.
    """
    found = []
    every = [scores for group in groups for scores in group]
    for name in every[0].rewards if every else ():
        given = [scores.rewards[name] for scores in every if not math.isnan(scores.rewards[name])]
        differs = any(len({math.isnan(scores.rewards[name]) for scores in group}) > 1 for group in groups)
        if not given:
            found.append(
                f"the reward function {name!r} returned None for every candidate of the first generation, so it adds "
                "nothing. Return a number where it applies."
            )
        elif len(set(given)) == 1 and not (given[0] and differs):
            found.append(
                f"the reward function {name!r} gave {given[0]} to all {len(given)} candidates that it judged in the "
                "first generation, so nothing is learnt from it. If that is no rare success, look at what it reads: "
                "completions are strings where the agent observes a str, and lists of messages "
                "(completion[0]['content'] is the text) where it observes a dict."
            )
    return found


def _texts(decision: PendingDecision) -> dict[str, list[Any]]:
    """Prompts and completions, in the format described at the top of this file."""
    texts = [completion.text for completion in decision.completions]
    messages = decision.prompt.messages
    prompt: Any = messages[0]["content"] if decision.is_text else list(messages)
    if decision.is_of_team:
        prompt = decision.row.get("prompt", prompt)
        if not isinstance(prompt, str) and {"image", "images"} & decision.row.keys():
            pictures = decision.row.get("images") or [decision.row.get("image")]
            prompt = prepare_multimodal_messages(prompt, [each for each in pictures if each is not None])  # as in TRL
    messages_of = [[{"role": "assistant", "content": text}] for text in texts]
    return {"prompts": [prompt] * len(texts), "completions": texts if isinstance(prompt, str) else messages_of}


def _end(thread: threading.Thread, loop: asyncio.AbstractEventLoop) -> None:
    shutdown_event_loop_in_daemon(thread, loop)
    loop.close()


async def _awaited(function: Any, arguments: Mapping[str, Any]) -> Any:
    return await function(**arguments)


def _is_async(function: Any) -> bool:
    return not isinstance(function, str | nn.Module) and is_async_callable(function)


def _checked(given: Any, name: str, decision: PendingDecision) -> list[float]:
    width = len(decision.completions)
    is_list = isinstance(given, Iterable) and not isinstance(given, Mapping | Set | str | bytes)
    values: list[Any] = list(given) if is_list else []
    if not is_list or not all(value is None or hasattr(value, "__float__") for value in values):
        raise TypeError(
            f"the reward function {name!r} returned {given!r} for {width} candidates of {decision.agent!r}, expected "
            f"a list of {width} numbers. Return one for each of `completions`, None where it does not apply."
        )
    if len(values) != width or not all(value is None or math.isfinite(value) for value in values):
        raise ValueError(
            f"the reward function {name!r} returned {values!r} for {width} candidates of {decision.agent!r}, expected "
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


def _numbered(names: Sequence[str], *, taken: Collection[str]) -> list[str]:
    """Make names unique: the second of a name becomes name_2, and so on."""
    unique: list[str] = []
    for name in names:
        candidates = chain([name], (f"{name}_{i}" for i in count(2)))
        unique.append(next(each for each in candidates if each not in (*taken, *unique)))
    return unique
