"""Weights for engines: which version of them the trainer holds, and the folder in which an engine finds them.

A `WeightsVersion` counts every change of the trainer's weights. The number of optimizer steps is no such version: the
best checkpoint is loaded after the last step, a second `train()` counts from 0 again, and a user may change weights
between two steps.

A `WeightStore` writes each update to a new folder, which is never overwritten. vLLM identifies an adapter by name and
path, and caches under both: keys and values of prompts (`vllm/v1/core/kv_cache_utils.py`), and the weights it has
read. New weights under an old name would therefore be silently stale, in part or whole. So a new version has a new
name and a new path.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor, zeros_like
from transformers import TrainerCallback

from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.processes.on_all import on_all
from pettingllms_trl.records import NamedTensors, PolicyEngine


class StaleWeights(RuntimeError):
    """Other weights than the current ones were used, or would have been."""


@dataclass(frozen=True, slots=True)
class AdapterVersion:
    """One version of an adapter's or a full model's weights on disk.

    Args:
        path: Folder with `adapter_config.json` and `adapter_model.safetensors`, or with `model-*.safetensors`.
    """

    policy: str
    name: str
    path: Path


PREFIX = f"adapters-{platform.node()}-"  # a lock may be known on its own machine alone
_STORE, _VERSION = re.compile(rf"{re.escape(PREFIX)}\w{{8}}"), re.compile(r".+-(v\d+|zero)")


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _remove_abandoned(root: Path) -> None:
    """Remove the stores of processes that have ended without removing them; a live one holds its folder's lock.

    A folder with anything but versions in it is somebody else's.
    """
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):  # locked, or removed meanwhile
            if not _STORE.fullmatch(folder.name) or not all(
                _VERSION.fullmatch(path.name) for path in folder.iterdir()
            ):
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


class WeightStore:
    """A folder of adapter versions, removed when the store is closed or garbage-collected, or the process ends.

    That of a process that was killed is removed by the next store in the same place, which may be memory (`/dev/shm`).

    Args:
        root: Folder in which the store creates its own, with a unique name.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(root)
        draft = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=root))
        draft.chmod(0o755)  # a server may run as somebody else
        lock = os.open(draft, os.O_RDONLY)
        with suppress(OSError):  # on a file system without locks nothing is ever taken for abandoned
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.folder = draft.rename(root / draft.name.removeprefix("."))  # visible once it is locked
        self.close = weakref.finalize(self, _remove, self.folder, lock)

    def write(self, policy: str, number: int, config: PeftConfig, state: Mapping[str, Tensor]) -> AdapterVersion:
        """Write a new version of a policy's adapter.

        Args:
            number: Number of the version; it must be new.
            config: Configuration as PEFT resolved it: `model.peft_config[adapter]`.
            state: `peft.get_peft_model_state_dict(model, adapter_name=adapter)`, as `in_host_memory` returns it.
        """
        return self._write_adapter(policy, f"{policy}-v{number}", config, state)

    def write_whole(self, policy: str, number: int, state: NamedTensors, *, most_bytes: int = 2**30) -> AdapterVersion:
        """Write a new version of a policy that is a full model.

        Only one file's tensors are in memory at once.

        Args:
            number: Number of the version; it must be new.
            state: `model.state_dict().items()`. Tied weights are written under each of their names: vLLM's kernels for
                CPUs have their own copies, and one that is not named would stay old.
            most_bytes: Bytes of a file, but for a tensor that is larger.
        """
        with self._new(policy, f"{policy}-v{number}") as (version, draft):
            for number_of_file, part in enumerate(_parts(state, most_bytes), start=1):
                save_file(part, draft / f"model-{number_of_file:05}.safetensors")  # vLLM reads all of *.safetensors
        return version

    @contextmanager
    def _new(self, policy: str, name: str) -> Iterator[tuple[AdapterVersion, Path]]:
        """A version, and the folder to write it to, which is renamed when it is complete."""
        version, draft = AdapterVersion(policy, name, self.folder / name), self.folder / f".{name}"
        for path in (draft, version.path):  # what an attempt that failed has left
            shutil.rmtree(path, ignore_errors=True)
        draft.mkdir()
        yield version, draft
        draft.rename(version.path)  # a server that looks meanwhile sees nothing, or all

    def write_zero(self, policy: str, config: PeftConfig, like: Mapping[str, Tensor]) -> AdapterVersion:
        """Write an adapter of zeros in the shape of another, to serve the base together with adapters.

        On a CPU, vLLM computes rows without an adapter with that of other rows in the same batch
        (vllm-project/vllm#48421).
        """
        zeros = {name: zeros_like(tensor) for name, tensor in like.items()}
        return self._write_adapter(policy, f"{policy}-zero", config, zeros)

    def _write_adapter(
        self, policy: str, name: str, config: PeftConfig, state: Mapping[str, Tensor]
    ) -> AdapterVersion:
        with self._new(policy, name) as (version, draft):
            config.save_pretrained(str(draft))
            save_file(dict(state), draft / "adapter_model.safetensors")
        return version

    def remove(self, version: AdapterVersion) -> None:
        """Remove a version that no request uses any more."""
        shutil.rmtree(version.path)


def in_host_memory(state: NamedTensors) -> dict[str, Tensor]:
    """Copies of all tensors, none of which share memory (tied weights may), as safetensors writes them."""
    return {name: _copied(tensor) for name, tensor in state}


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _parts(state: NamedTensors, most_bytes: int) -> Iterator[dict[str, Tensor]]:
    """Copies of the tensors, as many at once as have `most_bytes` together, and at least one."""
    part: dict[str, Tensor] = {}
    size = 0
    for name, tensor in state:
        if part and size + tensor.nbytes > most_bytes:
            yield part
            part, size = {}, 0
        part[name] = _copied(tensor)
        size += tensor.nbytes
    yield part


@dataclass(frozen=True, slots=True)
class WeightsVersion:
    """How often a trainer's weights have changed, counted for those that a change can concern.

    | what changes them                                     | `trained` | `frozen` | `base` |
    |-------------------------------------------------------|-----------|----------|--------|
    | an optimizer step, the beginning of `train()`         | + 1       |          |        |
    | a checkpoint that is loaded                           | + 1       | + 1      |        |
    | by hand (`MultiAgentGRPOTrainer.weights_changed`)     | + 1       | + 1      | + 1    |

    Args:
        trained: Of the policies that are trained.
        frozen: Of frozen adapters, and of frozen models that were given as objects.
        base: Of frozen models that were loaded by name, as an engine loads them itself. No checkpoint holds them.
    """

    trained: int = 0
    frozen: int = 0
    base: int = 0

    def after_step(self) -> WeightsVersion:
        return replace(self, trained=self.trained + 1)

    def after_load(self) -> WeightsVersion:
        return replace(self, trained=self.trained + 1, frozen=self.frozen + 1)

    def after_change_by_hand(self) -> WeightsVersion:
        """The version after anything may have changed."""
        return WeightsVersion(self.trained + 1, self.frozen + 1, self.base + 1)

    def of(self, policy: Policy) -> int:
        """The version of one policy's own weights: of its adapter, or of its model."""
        if policy.is_trained:
            return self.trained
        return self.base if policy.adapter is None else self.frozen


def check_one_version(version: WeightsVersion) -> None:
    """Check that all processes hold the same version, so that they give the same weights to their engines.

    Raises:
        StaleWeights: They do not.
    """
    versions = on_all(lambda: version)
    if len(set(versions)) > 1:
        raise StaleWeights(
            f"the processes hold different versions of the weights: {', '.join(map(str, versions))}; expected one. "
            "Change weights by hand, load them and call weights_changed() on every process."
        )


class ServedPolicies:
    """Policies of one engine, whose weights follow the trainer's.

    Args:
        policies: A full model, or all that stand on the trainer's.
        adapters: Per policy that is an adapter, its name in the trainer's model.
        is_in_memory: The model was given to the trainer as an object, and its name may load another.
    """

    def __init__(
        self, policies: tuple[Policy, ...], engine: PolicyEngine, adapters: Mapping[str, str], *, is_in_memory: bool
    ) -> None:
        self.policies, self.engine = policies, engine
        self._adapters, self._is_in_memory = adapters, is_in_memory
        trains_base = any(policy.is_trained and policy.name not in adapters for policy in policies)
        self._follows_base = engine.can_load_base and not trains_base
        self._base_version = None if is_in_memory else 0  # what is loaded by name the engine has loaded itself
        self._given: dict[str, int] = {}  # on every process: an engine may have loaded where another has failed

    def version_of(self, policy: str) -> int:
        """The version of a policy's weights that the engine has. 0: at most what it loaded itself."""
        return self._given.get(policy, self._base_version or 0)

    def sync_weights(self, weights: Any, version: WeightsVersion) -> None:
        """Give the engine what it has another version of. All processes must call it at the same point."""
        from pettingllms_trl.processes.whole_weights import give_whole

        base_version = version.frozen if self._is_in_memory else version.base
        if self._follows_base and self._base_version != base_version:
            give_whole(_base_state(weights), partial(self.engine.load_base, version=base_version))
            self._base_version = base_version
        for policy in self.policies:
            number, adapter = version.of(policy), self._adapters.get(policy.name)
            if self._given.get(policy.name) == number or (adapter is None and not policy.is_trained):
                continue
            state = weights.state_dict(keep_vars=True)
            if adapter is not None:
                state = get_peft_model_state_dict(weights, state, adapter_name=adapter)
            give_whole(state, partial(self.engine.load, policy.name, version=number))
            self._given[policy.name] = number


def _base_state(weights: Any) -> dict[str, Tensor]:
    """A model's weights without its adapters, by the names that they have on disk."""
    return {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): tensor
        for name, tensor in weights.state_dict(keep_vars=True).items()
        if ".lora_" not in name
    }


class CountsSteps(TrainerCallback):
    """Calls a function after each optimizer step, before any other callback can sample."""

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._count()
