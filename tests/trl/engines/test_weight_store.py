"""Adapters on disk for vLLM, and which of them it serves."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file

from pettingllms_trl.engines.weight_store import WeightStore


PLAIN = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], task_type="CAUSAL_LM")
STATE = {
    "base_model.model.q_proj.lora_A.weight": torch.ones(4, 2),
    "base_model.model.q_proj.lora_B.weight": torch.ones(2, 4),
}


def test_every_version_is_a_folder_of_its_own_with_what_vllm_reads(tmp_path: Path) -> None:
    store = WeightStore(tmp_path)
    first = store.write("opener", 1, PLAIN, STATE)
    second = store.write("opener", 2, PLAIN, {name: 2 * tensor for name, tensor in STATE.items()})
    other = store.write("closer", 1, PLAIN, STATE)
    assert [v.name for v in (first, second, other)] == ["opener-v1", "opener-v2", "closer-v1"]
    for version, value in ((first, 1.0), (second, 2.0), (other, 1.0)):
        assert sorted(p.name for p in version.path.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
        assert json.loads((version.path / "adapter_config.json").read_text())["r"] == 4
        found = load_file(version.path / "adapter_model.safetensors")
        assert found.keys() == STATE.keys()
        assert all(torch.equal(tensor, torch.full_like(tensor, value)) for tensor in found.values())
    store.remove(first)
    assert sorted(p.name for p in store.folder.iterdir()) == ["closer-v1", "opener-v2"]


def test_a_whole_model_is_written_in_files_of_bounded_size_of_which_one_is_in_memory(tmp_path: Path) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    held_at_most = 0

    def made() -> Iterator[tuple[str, torch.Tensor]]:
        nonlocal held_at_most
        for name, length in (("a", 2), ("b", 2), ("c", 9), ("d", 1)):
            tensor = torch.arange(length, dtype=torch.float32)
            held.append(weakref.ref(tensor))
            yield name, tensor
            del tensor
            held_at_most = max(held_at_most, sum(ref() is not None for ref in held))

    store = WeightStore(tmp_path)
    version = store.write_whole("shared", 1, made(), most_bytes=16)
    found = [load_file(path) for path in sorted(version.path.iterdir())]
    assert [list(part) for part in found] == [["a", "b"], ["c"], ["d"]]
    assert found[1]["c"].tolist() == list(range(9))
    assert held_at_most == 1  # the one that was just asked for


def test_tied_and_transposed_weights_are_written_under_each_name(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    state = {"embed": weight, "head": weight, "turned": weight.T}
    store = WeightStore(tmp_path)
    version = store.write_whole("shared", 1, state.items())
    found = load_file(version.path / "model-00001.safetensors")
    assert all(torch.equal(found[name], state[name]) for name in state)


def test_an_adapter_of_zeros_has_the_names_and_shapes_of_another(tmp_path: Path) -> None:
    store = WeightStore(tmp_path)
    version = store.write_zero("partner", PLAIN, STATE)
    found = load_file(version.path / "adapter_model.safetensors")
    assert {name: tuple(t.shape) for name, t in found.items()} == {name: tuple(t.shape) for name, t in STATE.items()}
    assert not any(tensor.any() for tensor in found.values())


def test_stores_in_one_place_keep_apart_and_leave_nothing_behind(tmp_path: Path) -> None:
    one, other = WeightStore(tmp_path / "run"), WeightStore(tmp_path / "run")
    assert one.write("opener", 1, PLAIN, STATE).path != other.write("opener", 1, PLAIN, STATE).path
    one.close()
    assert [p.name for p in (tmp_path / "run").iterdir()] == [other.folder.name]
    del other
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.slow
def test_what_a_killed_process_has_left_is_removed_by_the_next_store_and_a_live_one_is_kept(tmp_path: Path) -> None:
    head = "import os, sys; from pathlib import Path; from pettingllms_trl.engines.weight_store import WeightStore; "
    made = "store = WeightStore(Path(sys.argv[1])); (store.folder / 'opener-v1').mkdir(); os.kill(os.getpid(), 9)"
    alive = WeightStore(tmp_path)
    assert subprocess.run([sys.executable, "-c", head + made, tmp_path], check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 2
    own = [tmp_path / "adapters-final", tmp_path / f"adapters-{platform.node()}-backup_1"]
    for folder in own:
        (folder / "opener").mkdir(parents=True)
    following = WeightStore(tmp_path)
    assert {*tmp_path.iterdir()} == {alive.folder, following.folder, *own}
