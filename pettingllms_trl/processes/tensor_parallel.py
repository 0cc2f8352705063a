"""Engines over several processes, each of which has a part of every weight: for models larger than a card's memory.

vLLM computes such an engine in lock-step: every process of its group has to add the same requests and take the same
steps. One process of each group, its leader, plays. Before each step it sends the others the requests that are new;
they play nothing, and take each of its steps with it until it has finished. A rollout does not know: to it this is an
`Engine`, and a process without instances of its own asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from torch import distributed
from transformers import TrainingArguments


Step = tuple[int, Sequence[Any]]
"""The number of an engine that is stepped, and its new requests."""


class FollowingEngine(Protocol):
    """An engine of which this process has a part."""

    def follow(self, requests: Sequence[Any]) -> None:
        """Add the leader's requests and take a step, as the leader does."""


class TensorParallelGroup:
    """The processes over which engines are split; each of them creates one, and the same engines in the same order.

    Args:
        broadcast: Called by all processes of the group together; returns what the leader called it with.
    """

    def __init__(self, *, size: int, is_leader: bool, broadcast: Callable[[Step | None], Step | None]) -> None:
        self.size, self.is_leader, self._broadcast = size, is_leader, broadcast
        self._engines: list[FollowingEngine] = []

    def add(self, engine: FollowingEngine) -> Callable[[Sequence[Any]], None]:
        """Add an engine. Returns what the leader calls before each of its steps, with the new requests."""
        number = len(self._engines)
        self._engines.append(engine)

        def announce(requests: Sequence[Any]) -> None:
            assert self.is_leader, "a request of a process that does not play"
            self._broadcast((number, requests))

        return announce

    @contextmanager
    def rollout(self) -> Iterator[None]:
        """Play inside the block; at its end the others take the leader's steps until it has finished, or failed.

        A process that fails before it follows still does: the leader would wait for it in its next step. What fails in
        a step does so on the leader, too, as a rule, and then the others hear of its end before they raise.
        """
        try:
            yield
        finally:
            if self.is_leader:
                self._broadcast(None)
            else:
                self._follow()

    def _follow(self) -> None:
        failed: Exception | None = None
        while (step := self._broadcast(None)) is not None:
            engine, requests = step
            if failed is None:
                try:
                    self._engines[engine].follow(requests)
                except Exception as error:  # noqa: BLE001  # raised again below
                    failed = error
        if failed is not None:
            raise failed


def leader_of(process: int, size: int) -> int:
    """The leader of a process's group: groups are consecutive processes, as vLLM makes them."""
    return process // size * size


def tensor_parallel_group(args: TrainingArguments, size: int) -> TensorParallelGroup:
    """This process's group of `size` processes, which divides their number. All call this at the same point."""
    groups = [list(range(first, first + size)) for first in range(0, args.world_size, size)]
    own, _ = distributed.new_subgroups_by_enumeration(  # type: ignore[no-untyped-call]
        groups, timeout=args.ddp_timeout_delta, backend="gloo"
    )
    leader = leader_of(args.process_index, size)

    def broadcast(step: Step | None) -> Step | None:
        box: list[Any] = [step]
        distributed.broadcast_object_list(box, src=leader, group=own)
        sent: Step | None = box[0]
        return sent

    return TensorParallelGroup(size=size, is_leader=args.process_index == leader, broadcast=broadcast)
