"""Tensors of a model whose weights may be sharded over the processes (FSDP2, ZeRO-3), made whole one at a time.

An engine holds whole weights. To gather all of an 8B model at once takes 16 GB on every process; one tensor at a time
takes at most the embedding's 1.2 GB. To gather a tensor all processes must ask for it, so all of them iterate over all
of the tensors in one order, also one that needs none of them, and also one that fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping

from torch import Tensor
from torch.distributed.tensor import DTensor

from pettingllms_trl.processes.on_all import on_all
from pettingllms_trl.records import NamedTensors


def give_whole(tensors: Mapping[str, Tensor], take: Callable[[NamedTensors], object]) -> None:
    """Pass tensors to a function, each made whole when it is asked for. All processes must call it at the same point.

    Args:
        tensors: By name, in the same order on all processes: of `module.state_dict(keep_vars=True)`, because without
            `keep_vars` those that ZeRO-3 has partitioned are empty and do not say so.
        take: Takes the pairs. It may stop early.

    Raises:
        RuntimeError: `take` failed on another process. Where it failed itself, it raises what it raised.
    """
    _check_same_names(tensors)

    def work() -> None:
        whole = _whole(tensors)
        try:
            take(whole)
        finally:  # the others wait for this process in each of the rest
            for _ in whole:
                pass

    on_all(work)


def _whole(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors.items():
        if isinstance(tensor, DTensor):
            yield name, tensor.full_tensor().detach()
        elif hasattr(tensor, "ds_id"):
            yield name, _gathered_by_deepspeed(tensor)
        else:
            yield name, tensor.detach()


def _gathered_by_deepspeed(parameter: Tensor) -> Tensor:
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter]):
        return parameter.detach()  # DeepSpeed lets go of the memory at the end, and does not write over it


def _check_same_names(tensors: Mapping[str, Tensor]) -> None:
    names = list(tensors)
    digests = on_all(lambda: hashlib.sha256("\n".join(names).encode()).hexdigest())
    if len(set(digests)) == 1:
        return
    process = next(i for i, digest in enumerate(digests) if digest != digests[0])
    every = on_all(lambda: names)
    first, other = every[0], every[process]
    pairs = enumerate(zip(first, other, strict=False))
    place = next((i for i, (one, another) in pairs if one != another), min(len(first), len(other)))
    raise ValueError(
        f"the weights of process 0 and process {process} differ in name or order from tensor {place} on: "
        f"{first[place : place + 1] or 'no more'} and {other[place : place + 1] or 'no more'}, expected the same on "
        "every process, because they are gathered one by one. Make the model in the same way on each."
    )
