"""Reads weights back after the first save: they are those held, and adapters name the base that they stand on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from huggingface_hub import try_to_load_from_cache
from peft import PeftModel, get_peft_model_state_dict
from safetensors import safe_open
from torch.distributed.tensor import DTensor

from pettingllms_trl.policies.adapters import changed_by
from pettingllms_trl.policies.optim import numbers
from pettingllms_trl.policies.team import Team


ROWS = 4
"""Rows of each of the base's tensors that are compared with its file: what changes a base changes all of them."""


def check_saved(team: Team, folder: Path) -> None:
    """Compare what was saved with what is held, tensor by tensor; weights in other files than safetensors are not.

    Warns if a base in memory is not the one that its adapters name, from which they would be loaded.

    Raises:
        RuntimeError: A saved tensor is not the one that is held.
    """
    bases: dict[int, tuple[PeftModel, str]] = {}
    for policy in team.routing.trained:
        place, model = folder if team.is_plain else folder / policy.name, team.weights_of(policy.name)
        held: Mapping[str, torch.Tensor] = model.state_dict()
        if isinstance(model, PeftModel):
            adapter = policy.adapter or model.active_adapters[0]
            place = place / adapter if team.is_plain and adapter != "default" else place
            held = get_peft_model_state_dict(model, adapter_name=adapter)
            config = model.peft_config[adapter]
            if changed_by(config) is None:  # such an adapter changes it in the same way when it is loaded
                bases[id(model)] = model, str(config.base_model_name_or_path)
        if wrong := _different(held, place):
            name, path = wrong[0]
            raise RuntimeError(
                f"{path} was saved, and its tensor {name} is not the one that is trained; expected equal ones. "
                f"{len(wrong)} tensors of policy {policy.name!r} differ. Save its model itself (save_pretrained)."
            )
    for model, name in bases.values():
        source = _folder_of(name)
        if source is not None and (wrong := _different(_of_base(model), source, rows=ROWS)):
            warnings.warn(
                f"the base in memory is not {name!r}, which the saved adapters name: {len(wrong)} tensors differ, "
                f"such as {wrong[0][0]}. Loaded from there they would play another policy. Save the base, too "
                "(model.get_base_model().save_pretrained), and load the adapters on that.",
                stacklevel=3,
            )


def _different(held: Mapping[str, torch.Tensor], folder: Path, *, rows: int | None = None) -> list[tuple[str, Path]]:
    """Tensors in the folder's files that differ from those held of their name, with their files.

    Names that only one side has are left out (tied, renamed). With `rows`, that many first rows are compared.
    """
    found = []
    for path in sorted(folder.glob("*.safetensors")):
        differ: dict[str, torch.Tensor | float] = {}
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 it is no dict
                own = held.get(name)
                if own is None or not own.numel() or isinstance(own, DTensor):  # spread over processes
                    continue
                part = slice(None) if rows is None or not own.dim() else slice(rows)
                saved = file.get_slice(name)[part] if own.dim() else file.get_tensor(name)
                own = own[part] if own.dim() else own
                same_shape = saved.shape == own.shape
                differ[name] = (saved.to(own, non_blocking=True) != own).any() if same_shape else 1.0
        # On a GPU the host waits once a file.
        found += [(name, path) for name, value in zip(differ, numbers([*differ.values()]), strict=True) if value]
    return found


def _of_base(model: PeftModel) -> dict[str, torch.Tensor]:
    """The tensors of a base, by their names in its files; none of a quantized one, whose files hold others."""
    base = model.get_base_model()
    if getattr(base, "is_quantized", False):
        return {}
    return {name.replace(".base_layer", ""): tensor for name, tensor in base.state_dict().items()}


def _folder_of(name: str) -> Path | None:
    """The folder of a model's files, on the disk or in the Hub's cache."""
    if Path(name).is_dir():
        return Path(name)
    cached = try_to_load_from_cache(name, "config.json") if name.count("/") <= 1 and name else None
    return Path(cached).parent if isinstance(cached, str) else None
