"""How the weights of a whole model reach its servers: `vllm_weight_transfer`. For the main process alone.

|                  | `"files"`, the default                    | `"nccl"`                                           |
|------------------|-------------------------------------------|----------------------------------------------------|
| the main process | writes them to `output_dir`               | broadcasts them to a process group per server      |
| a server         | reads them from there (`reload_weights`)  | receives them tensor by tensor                     |
| needs            | a folder that all of them see             | CUDA on both sides, `--weight-transfer-config`     |
| after a restart  | it is given the weights again             | `StaleWeights`: there is no copy to send           |

Adapters always go by files, because vLLM loads an adapter from a path only.

`NcclTransfer` was never run on a GPU: a test on a fake server checks the order of the calls, and the names, dtypes and
shapes that are announced.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import torch

from pettingllms_trl.engines.vllm.replica import VllmReplica, served_name
from pettingllms_trl.engines.weight_store import AdapterVersion, StaleWeights, WeightStore
from pettingllms_trl.records import NamedTensors


if TYPE_CHECKING:
    from trl.generation.vllm_client import VLLMClient


class WeightTransfer(Protocol):
    """How the weights of a whole model are sent to its servers."""

    @property
    def name(self) -> str | None:
        """The name of the weights that were sent last, also where a replica did not take them. `None`: none were."""
        ...

    def send(self, policy: str, number: int, state: NamedTensors) -> None: ...

    def restore(self, replica: VllmReplica) -> None:
        """Give a replica that was restarted the weights that were sent last."""
        ...


class FileTransfer:
    """By files that every replica reads; see `WeightTransfer`."""

    def __init__(self, store: WeightStore, on_each: Callable[[Callable[[VllmReplica], None]], object]) -> None:
        self._store, self._on_each = store, on_each
        self._last: AdapterVersion | None = None

    @property
    def name(self) -> str | None:
        return None if self._last is None else served_name(self._last)

    def send(self, policy: str, number: int, state: NamedTensors) -> None:
        before, self._last = self._last, self._store.write_whole(policy, number, state)
        self._on_each(self.restore)
        if before not in (None, self._last):  # which an attempt that failed has left
            self._store.remove(before)

    def restore(self, replica: VllmReplica) -> None:
        assert self._last is not None, "no weights were sent"
        replica.reload(self._last)


class NcclTransfer:
    """Over a process group with each replica, by TRL's client; see `WeightTransfer`.

    Args:
        ports: Of this process, one for the process group with each replica.
        patience: Seconds for which a server that does not answer is waited for.
    """

    def __init__(
        self, replicas: Sequence[VllmReplica], *, device: torch.device, ports: Iterator[int], patience: float
    ) -> None:
        from trl.generation.vllm_client import VLLMClient  # takes seconds to import: it imports vLLM

        self._replicas, self._device = replicas, device
        self._run = f"nccl-{secrets.token_hex(4)}"  # other runs have policies of the same names
        self._last: str | None = None
        self._clients: list[VLLMClient] = []
        for replica in replicas:
            client = VLLMClient(replica.url, group_port=next(ports), connection_timeout=patience)
            client.init_communicator(device)
            self._clients.append(client)

    @property
    def name(self) -> str | None:
        return self._last

    def send(self, policy: str, number: int, state: NamedTensors) -> None:
        """See `WeightTransfer`. Each tensor goes to one replica after the other, so that none is kept."""
        self._last = new = f"{self._run}/{policy}-v{number}"
        with ExitStack() as updates:
            for client in self._clients:
                updates.enter_context(client.weight_update())
            for name, tensor in state:
                on_device = self._on_device(tensor)
                for client in self._clients:
                    client.update_named_param(name, on_device)
        for replica in self._replicas:
            replica.name_weights(new)

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        there = tensor.to(self._device)
        if there.is_cuda:  # vLLM packs it on another stream, which does not wait for what gathers it on this one
            torch.cuda.current_stream(there.device).synchronize()
        return there

    def restore(self, replica: VllmReplica) -> None:
        """See `WeightTransfer`; always raises `StaleWeights`."""
        raise StaleWeights(
            f"{replica.url} no longer has the weights {self._last!r}: it was restarted, and has left its process "
            "group with the trainer. Resume from the last checkpoint, or use vllm_weight_transfer='files', which "
            "gives a server that was restarted its weights again."
        )
