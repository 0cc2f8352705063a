"""A learning rate and gradient clipping for each policy, within one optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pettingllms_trl.policies.adapters import ParametersOf
from pettingllms_trl.policies.routing import Policy


def check_rates(given: torch.optim.Optimizer | None, trained: Sequence[Policy], *, has_factors: bool) -> None:
    """Raise `ValueError` for an optimizer of the user's where policies or a schedule set learning rates: its parameter
    groups are not split by policy."""
    own = [each for each in trained if each.learning_rate is not None]
    found = [f"policy {each.name!r} has learning_rate={each.learning_rate}" for each in own]
    found += ["the schedule has factors"] if has_factors else []
    if given is not None and found:
        raise ValueError(
            f"optimizers has a {type(given).__name__}, whose learning rates hold, but {' and '.join(found)}; expected "
            "one of them. Leave optimizers out, or set each policy's rate ('lr') in its parameter groups, and not by "
            "learning_rate= of Policy or rest= of Alternate."
        )


def split_groups(
    optimizer: torch.optim.Optimizer,
    trained: Sequence[Policy],
    parameters_of: ParametersOf,
    learning_rate: float,
    factors: Callable[[], Mapping[str, float]] | None = None,
) -> None:
    """Split an optimizer's parameter groups by policy, each with its own learning rate, where they differ.

    Args:
        optimizer: An optimizer not yet prepared by accelerate.
        trained: All policies whose parameters it has.
        learning_rate: Learning rate of policies without one of their own.
        factors: Called at each optimizer step: by what the learning rate of a policy is multiplied in that step.
    """
    if factors is None and all(policy.learning_rate is None for policy in trained):
        return
    groups, names = [], []
    for policy in trained:
        own = {id(p) for p in parameters_of(policy)}
        rate = learning_rate if policy.learning_rate is None else policy.learning_rate
        for group in optimizer.param_groups:
            if params := [p for p in group["params"] if id(p) in own]:  # torch loads one empty group of FSDP2 at most
                groups.append({**group, "params": params, "lr": rate})
                names.append(policy.name)
    optimizer.param_groups = groups
    if factors is None:
        return
    rates = list[float]()

    def scale(*_: object) -> None:
        rates[:] = [group["lr"] for group in optimizer.param_groups]
        of_step = factors()
        for group, name in zip(optimizer.param_groups, names, strict=True):
            group["lr"] *= of_step.get(name, 1.0)

    def restore(*_: object) -> None:  # what the scheduler goes on from
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    optimizer.register_step_pre_hook(scale)
    optimizer.register_step_post_hook(restore)


def clip_by_policy(
    trained: Sequence[Policy], parameters_of: ParametersOf, *, max_grad_norm: float
) -> dict[str, torch.Tensor]:
    """Clip each policy's gradients by their own norm.

    Args:
        max_grad_norm: Largest norm for policies without one of their own.

    Returns:
        The norms before clipping, of the policies with gradients in this step.
    """
    norms = {}
    for policy in trained:
        parameters = [p for p in parameters_of(policy) if p.grad is not None]
        if not parameters:  # a norm of 0 would dilute what is logged
            continue
        limit = max_grad_norm if policy.max_grad_norm is None else policy.max_grad_norm
        norm = nn.utils.clip_grad_norm_(parameters, limit)
        norms[policy.name] = norm.full_tensor() if isinstance(norm, DTensor) else norm
    return norms


def numbers(values: Sequence[torch.Tensor | float]) -> list[float]:
    """What tensors of no dimension hold, for which the host waits once; numbers as they are."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    whole = [each.full_tensor() if isinstance(each, DTensor) else each for each in tensors]
    found = iter(torch.stack([each.to(whole[0].device).float() for each in whole]).tolist() if whole else [])
    return [next(found) if isinstance(value, torch.Tensor) else value for value in values]
