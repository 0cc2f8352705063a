"""What the simulated device does, in a child process: each function here is a claim, and `main` writes which hold."""

from __future__ import annotations

import io
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import dropout, linear, scaled_dot_product_attention

from pettingllms_trl.estimate.simulated_autocast import LOWER_PRECISION, PROMOTED
from pettingllms_trl.update.micro_batches import split, with_copies
from watched_device import WatchedDevice


DEVICE = WatchedDevice()
"""The one that is installed."""
TWO = "same device"
CAST = {
    *("matmul", "mm", "mv", "bmm", "addmm", "addmv", "addr", "addbmm", "baddbmm", "linear", "einsum"),
    *("linalg_vecdot", "linalg_multi_dot", "chain_matmul", "scaled_dot_product_attention", "prelu"),
    *("_convolution", "_convolution.deprecated", "convolution", "conv1d", "conv2d", "conv3d", "conv_tbc"),
    *("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "_thnn_fused_lstm_cell"),
    *("_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
}
"""`AT_FORALL_LOWER_PRECISION_FP` of `ATen/autocast_mode.h`."""
WIDEST = {
    *("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put"),
    *("tensordot", "scatter_add"),
}
"""`AT_FORALL_PROMOTE`."""
NOT_HERE = {
    *("cudnn_convolution", "cudnn_convolution_transpose", "_scaled_dot_product_flash_attention"),
    "binary_cross_entropy",
}


def on(*values: Any, **options: Any) -> torch.Tensor:
    return torch.tensor(values, **options).to("mlu", non_blocking=True)


def waits(call: Callable[[], Any]) -> list[str]:
    """Kinds of the waits of a call; all of them are in this file."""
    DEVICE.waits.clear()
    call()
    assert all(wait.place.startswith(f"{__file__}:") for wait in DEVICE.waits)
    return [wait.kind for wait in DEVICE.waits]


def a_result_is_on_the_device_and_has_the_values_of_a_cpu() -> None:
    found = (on(1.0, 2.0) @ on(3.0, 4.0)) * 2
    assert found.device == torch.device("mlu", 0)
    assert found.cpu().item() == 22.0
    assert torch.zeros(2, device="mlu").device == torch.arange(3, device="mlu").device == found.device
    assert torch.arange(3, device="mlu").shape == (3,)
    assert torch.eye(2, device="mlu").shape == (2, 2)


def gradients_are_those_of_a_cpu() -> None:
    weight = on(1.0, 2.0).requires_grad_()
    (weight**2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.device.type == "mlu"
    assert weight.grad.tolist() == [2.0, 4.0]


def inference_mode_changes_nothing() -> None:
    with torch.inference_mode():
        found = linear(on(1.0, 2.0).to(torch.device("mlu"), torch.float64), on([3.0, 4.0]).to(torch.float64))
    assert (found.device.type, found.tolist()) == ("mlu", [11.0])


def attention_is_that_of_a_cpu() -> None:
    query = torch.arange(64.0).view(1, 2, 4, 8).cos()
    found = scaled_dot_product_attention(*[query.to("mlu")] * 3, is_causal=True).cpu()
    assert (found - scaled_dot_product_attention(query, query, query, is_causal=True)).abs().max() < 1e-6


def a_change_in_place_and_a_view_share_memory() -> None:
    whole = on(1.0, 2.0, 3.0)
    whole[1:].add_(1)
    whole[0] = 5
    assert whole.tolist() == [5.0, 3.0, 4.0]


def random_numbers_follow_the_seed_of_a_cpu() -> None:
    torch.manual_seed(3)
    found = torch.rand(4, device="mlu").tolist()
    torch.manual_seed(3)
    assert found == torch.rand(4).tolist()
    torch.manual_seed(3)
    assert dropout(torch.ones(100, device="mlu"), 0.5).sum().item() > 0


def two_devices_in_one_operation_raise() -> None:
    here, there = on(1.0, 2.0), torch.ones(2)
    for call in (
        lambda: here + there,
        lambda: there * here,
        lambda: torch.cat([here, there]),
        lambda: here @ there,
        lambda: torch.where(here > 0, here, there),
        lambda: there.add_(here),
        lambda: there.index_select(0, on(0)),
        lambda: there[on(0)],
        lambda: nn.Embedding(4, 2)(on(1)),
        lambda: nn.Embedding(4, 2).to("mlu")(torch.tensor([1])),
        lambda: torch.ones(()).add_(here.sum()),
        lambda: torch.cat([here, torch.ones(())[None]]),
    ):
        with pytest.raises(RuntimeError, match=TWO):
            call()


def a_number_on_the_cpu_goes_with_the_device() -> None:
    assert (on(1.0, 2.0) * torch.tensor(3.0) + 1).tolist() == [4.0, 7.0]


def what_only_host_memory_has_raises() -> None:
    here = on(1.0)
    for call in (here.numpy, lambda: np.asarray(here)):
        with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
            call()
    with pytest.raises(RuntimeError, match="cannot pin"):
        here.pin_memory()
    with pytest.raises(RuntimeError, match="'mlu' device type for generator"):
        torch.rand(2, device="mlu", generator=torch.Generator())
    assert torch.rand(2, device="mlu", generator=torch.Generator("mlu").manual_seed(1)).shape == (2,)


def each_wait_is_counted_where_it_is() -> None:
    here, mask, places = on(1.0, 2.0, 2.0), on(True, False, True), on(0, 1)
    for kind, call in (
        ("item", lambda: here.sum().item()),
        ("item", lambda: bool(mask.any())),
        ("item", lambda: int(places.max())),
        ("item", lambda: f"{float(here[0])}"),
        ("to the host", here.tolist),
        ("to the host", here.cpu),
        ("to the host", lambda: torch.empty(3).copy_(here)),
        ("to the host", lambda: f"{here}"),
        ("to the host", lambda: torch.save(here, io.BytesIO())),
        ("from the host", lambda: torch.ones(2).to("mlu")),
        ("from the host", lambda: here.copy_(torch.ones(3))),
        ("from the host", lambda: torch.tensor([1, 2], device="mlu")),
        ("from the host", lambda: torch.as_tensor([1, 2], device="mlu")),
        ("from the host", lambda: here.new_tensor([1.0])),
        ("from the host", lambda: here[[0, 1]]),
        ("nonzero", lambda: mask.nonzero()),
        ("nonzero", lambda: torch.where(mask)),
        ("unique", lambda: here.unique()),
        ("unique", lambda: torch.unique(here[:, None], dim=0)),
        ("mask", lambda: here[mask]),
        ("mask", lambda: here.masked_select(mask)),
        ("index on the CPU", lambda: here[torch.tensor([0, 1])]),
        ("equal", lambda: torch.equal(here, here)),
        ("equal", lambda: torch.allclose(here, here)),
        ("repeat_interleave", lambda: here.repeat_interleave(on(1, 2, 1))),
        ("synchronize", lambda: torch.mlu.synchronize()),
    ):
        assert waits(call) == [kind], kind


def what_does_not_wait_is_not_counted() -> None:
    here, mask = on(1.0, 2.0, 2.0), on(True, False, True)

    def fill() -> None:
        here[mask] = 0.0

    for call in (
        lambda: torch.ones(2).to("mlu", non_blocking=True),
        lambda: here[on(0, 1)],
        lambda: here[1:].sum() * 2 + torch.full((), 3.0, device="mlu"),
        lambda: here.masked_fill(mask, 0.0),
        fill,
        lambda: here.topk(2).values.sort(),
        lambda: torch.multinomial(here + 1, 1),
        lambda: here.to("cpu", non_blocking=True),
        lambda: nn.utils.clip_grad_norm_([nn.Parameter(here)], 1.0),
    ):
        assert waits(call) == []


def a_module_moves_with_its_tied_parameters_and_an_optimizer_trains_it() -> None:
    model = nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 4, bias=False))
    model[1].weight = own = model[0].weight
    model.to("mlu")
    assert model[1].weight is model[0].weight is own
    assert isinstance(own, nn.Parameter)
    before, optimizer = own.detach().clone(), torch.optim.SGD(model.parameters(), lr=0.5)
    model(on(1)).sum().backward()
    assert own.grad is not None
    expected = (before - 0.5 * own.grad).tolist()
    assert waits(optimizer.step) == []
    assert own.tolist() == expected
    own.data = on(*[[0.0] * 2] * 4)
    assert own.tolist() == [[0.0] * 2] * 4


def what_is_saved_is_loaded_where_it_is_told() -> None:
    file = io.BytesIO()
    torch.save({"x": on(1, 2)}, file)
    for place in ("cpu", "mlu"):
        file.seek(0)
        found = torch.load(file, map_location=place)["x"]
        assert (found.device.type, found.tolist()) == (place, [1, 2])


def a_batch_of_more_rows_than_a_pass_is_split_with_a_single_wait() -> None:
    ones = torch.ones(6, 3, dtype=torch.long).to("mlu", non_blocking=True)
    ids = {"prompt_ids": ones, "prompt_mask": ones, "completion_ids": ones, "completion_mask": ones}
    DEVICE.waits.clear()
    (passes,) = split(with_copies({**ids, "advantages": on(*range(6))}), num_steps=1, max_rows=2, token_mean=False)
    assert [(wait.kind, "micro_batches" in wait.place) for wait in DEVICE.waits] == [("to the host", True)]
    assert [each["advantages"].tolist() for each in passes] == [[0, 1], [2, 3], [4, 5]]
    assert [each["num_tokens"] for each in passes] == [6, 6, 6]


def autocast_has_the_lists_of_cuda() -> None:
    def registered(key: str) -> set[str]:
        return {n.removeprefix("aten::") for n in torch._C._dispatch_get_registrations_for_dispatch_key(key)}

    of_cuda = registered("AutocastCUDA")
    assert {name for name in of_cuda if LOWER_PRECISION.fullmatch(name)} == CAST
    assert {name for name in of_cuda if PROMOTED.fullmatch(name)} == WIDEST
    assert of_cuda - registered("AutocastPrivateUse1") == NOT_HERE


def autocast_casts_products_and_keeps_reductions_in_float32() -> None:
    rows, weight = on([1.0, 2.0], [3.0, 4.0]), on([1.0, 0.5], [2.0, 1.0]).requires_grad_()
    half = rows.bfloat16()
    with torch.autocast("mlu", dtype=torch.bfloat16):
        found = linear(rows, weight)
        types = {
            "product": found.dtype,
            "attention": scaled_dot_product_attention(rows[None], rows[None], rows[None]).dtype,
            "softmax": half.softmax(-1).dtype,
            "sum": half.sum().dtype,
            "exp": half.exp().dtype,
            "mean": half.mean().dtype,  # in no list: as it is
            "sum of two types": torch.add(half, rows).dtype,
        }
    bf16, f32 = torch.bfloat16, torch.float32
    assert list(types.values()) == [bf16, bf16, f32, f32, f32, bf16, f32]
    found.float().sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert linear(rows, weight).dtype == torch.float32


CHECKS = {
    name: check
    for name, check in list(globals().items())
    if callable(check) and getattr(check, "__module__", "") == __name__ and name not in ("on", "waits")
}


def main(device: WatchedDevice, file: str) -> None:
    global DEVICE
    DEVICE, found = device, {}
    for name, check in CHECKS.items():
        try:
            check()
        except BaseException:  # noqa: BLE001  # reported; pytest's own is one
            found[name] = traceback.format_exc()
    Path(file).write_text(json.dumps(found))
