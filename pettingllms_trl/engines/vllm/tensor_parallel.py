"""`TensorParallelVllm`: vLLM over a group of the trainer's processes, see `processes/tensor_parallel.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pettingllms_trl.engines.vllm.colocated import ColocatedVllm
from pettingllms_trl.engines.vllm.params import VllmRequest
from pettingllms_trl.engines.weight_store import AdapterVersion
from pettingllms_trl.processes.tensor_parallel import TensorParallelGroup
from pettingllms_trl.records import POLL_SECONDS, Answer


class TensorParallelVllm(ColocatedVllm):
    """Samples for every agent of a team, with a part of the weights in each process of a group.

    Weights are loaded, and texts are scored, by all processes of the group at the same point.
    """

    def __init__(self, arguments: Mapping[str, Any], *, group: TensorParallelGroup, **options: Any) -> None:
        super().__init__(arguments, **options)
        self._announce = group.add(self)
        self._new: list[VllmRequest] = []

    @property
    def num_in_flight(self) -> int:
        return super().num_in_flight + len(self._new)

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        with super().rollout(name):
            try:
                yield
            finally:
                self._new.clear()

    def _send(self, asked: VllmRequest, served: AdapterVersion | None) -> None:
        self._new.append(asked)  # added when all processes are about to step

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Answer]]:
        """One forward pass for all that are in flight, on all processes of the group: see `Engine`."""
        new, self._new = self._new, []
        self._announce(new)
        self._add_all(new)
        return super().step(timeout)

    def follow(self, requests: Sequence[VllmRequest]) -> None:
        self._add_all(requests)
        super().step()  # the answers are the leader's

    def _add_all(self, requests: Sequence[VllmRequest]) -> None:
        for asked in requests:
            super()._send(asked, self._serving.get(self._of_agent[asked.agent]))
