"""The user's reward functions, by TRL's interface, for one decision at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import isclass, iscoroutinefunction
from typing import Any

from pettingllms_trl.run import Choice


RewardFunction = Callable[..., Sequence[float | None]]
Weighted = tuple[RewardFunction, float]


def weighted(functions: RewardFunction | list[RewardFunction] | None, weights: list[float] | None) -> list[Weighted]:
    """Each reward function with its weight, 1 where none is given.

    Raises:
        TypeError: One of them is a model, the name of one, a class, or async.
        ValueError: There are not as many weights as functions.
    """
    functions = [] if functions is None else functions if isinstance(functions, list) else [functions]
    for function in functions:
        if (
            not callable(function)
            or isclass(function)
            or hasattr(function, "forward")
            or iscoroutinefunction(function)
        ):
            raise TypeError(
                f"reward_funcs has {function!r}, expected plain functions of prompts and completions. Reward models "
                "and async functions are not supported yet."
            )
    if weights is not None and len(weights) != len(functions):
        raise ValueError(
            f"reward_weights has {len(weights)} numbers for {len(functions)} reward functions; give one each"
        )
    return list(zip(functions, weights or [1.0] * len(functions), strict=True))


def judge(choice: Choice, functions: Sequence[Weighted], *, trainer_state: Any) -> list[dict[str, float]]:
    """Per candidate of a decision, what each function gave for it times its weight, by the function's name.

    Raises:
        ValueError: A function returned anything but a finite number or None for each candidate.
    """
    width = len(choice.completions)
    columns = {**choice.row, "agent": choice.agent, "turn": choice.turn}
    rewards: list[dict[str, float]] = [{} for _ in range(width)]
    for function, weight in functions:
        values = function(
            prompts=[list(choice.prompt)] * width,
            completions=[[{"role": "assistant", "content": c.text}] for c in choice.completions],
            completion_ids=[list(c.ids) for c in choice.completions],
            trainer_state=trainer_state,
            **{name: [value] * width for name, value in columns.items()},
        )
        if len(values) != width or not all(value is None or math.isfinite(value) for value in values):
            raise ValueError(
                f"the reward function {function.__name__!r} returned {values!r} for {width} candidates of "
                f"{choice.agent!r}, expected {width} finite numbers (or None where it does not apply)"
            )
        for reward, value in zip(rewards, values, strict=True):
            if value is not None:
                reward[function.__name__] = weight * float(value)
    return rewards
