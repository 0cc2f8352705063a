"""A row read in segments by one kernel gives the log-probabilities and gradients of each sequence alone.

The kernel is a reference in plain PyTorch here; `tests/accelerator/test_gpu.py` has the GPU's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch

import flash_reference
from packed_models import difference, gradients, made, one_by_one, together
from pettingllms_trl.update.packed_attention import Restriction, attend, attending
from pettingllms_trl.update.packing import segment_attention
from pettingllms_trl.update.packing.conversations import sizes_of
from pettingllms_trl.update.packing.cost import DEAR, Way, cheapest
from pettingllms_trl.update.packing.pack import pack


# "a b c" with answers "x y .", "z .", and one masked whole, and "d" with "z .".
IDS = torch.tensor([[1, 2, 3, 5, 6, 8], [0, 0, 4, 7, 8, 0], [1, 2, 3, 7, 8, 0], [1, 2, 3, 5, 5, 5]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]])


def batch(second: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Two prompts, of 9 and `second` tokens, with three and two completions of none to 7 tokens."""
    generator = torch.Generator().manual_seed(1)
    rows, lengths = torch.tensor([0, 1, 0, 0, 1]), (7, 3, 5, 0, 6)
    prompts = torch.randint(2, 97, (2, 9), generator=generator)
    ids = torch.cat([prompts[rows], torch.randint(2, 97, (5, 7), generator=generator)], dim=1)
    mask = torch.ones_like(ids)
    mask[rows == 1, : 9 - second] = 0
    for row, length in enumerate(lengths):
        mask[row, 9 + length :] = 0
    return ids, mask


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[mock.Mock]:
    """The kernel on the CPU, in float32, and how often it was called."""
    forward = mock.Mock(side_effect=flash_reference.forward)
    monkeypatch.setattr(segment_attention, "KINDS", {"cpu"})
    monkeypatch.setattr(segment_attention, "DTYPES", (torch.float32,))
    monkeypatch.setattr(flash_reference.KERNELS, "_flash_attention_forward", forward)
    monkeypatch.setattr(segment_attention, "aten", flash_reference.KERNELS)
    return forward


@pytest.mark.parametrize("way", ["rows", "prompts"])
def test_a_row_is_its_prompts_and_branches_in_their_order(way: Way) -> None:
    segments = pack(IDS, MASK, 3, way=way).layout.segments
    # a b | c x y | c z | c | d z; the prompt of d is d alone, which begins its branch.
    assert segments.queries_from.tolist() == [0, 2, 5, 7, 8, 10]
    assert segments.keys_from.tolist() == [0, 2, 7, 11, 14, 16]
    assert segments.keys.tolist() == [0, 1, 0, 1, 2, 3, 4, 0, 1, 5, 6, 0, 1, 7, 8, 9]
    assert (segments.most_queries, segments.most_keys) == (3, 5)
    assert (segments.queries_from.dtype, segments.keys_from.dtype) == (torch.int32, torch.int32)


@pytest.mark.parametrize("way", ["rows", "prompts", "conversations"])
@pytest.mark.parametrize("checkpointing", ["", "checkpointed"])
@pytest.mark.parametrize(("name", "second"), [("qwen3", 4), ("gpt2", 9), ("gemma3-windows", 4)])
def test_log_probabilities_entropies_and_gradients_are_those_of_each_row_alone(
    name: str, second: int, checkpointing: str, way: Way, calls: mock.Mock
) -> None:
    model = made(name, lora=False, checkpointing=checkpointing)
    ids, mask = batch(second)
    expected = one_by_one(model, ids, mask, 7)
    of_rows = gradients(model, expected)
    assert not calls.called
    with attending(model):
        found = together(model, pack(ids, mask, 7, way=way))
        of_row = gradients(model, found)
    assert calls.called
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-5)
    assert difference(of_row, of_rows) < 1e-5


def test_a_conversation_is_read_once_for_all_its_turns(calls: mock.Mock) -> None:
    draw = torch.Generator().manual_seed(2)
    first, *replies, observed = (torch.randint(2, 97, (number,), generator=draw) for number in (6, 4, 3, 4, 2, 2))
    later = torch.cat([first, replies[0], observed])
    rows = [(first, replies[0]), (later, replies[2]), (first, replies[1]), (later, replies[3])]
    ids, mask = torch.zeros(4, 12 + 4, dtype=torch.long), torch.zeros(4, 12 + 4, dtype=torch.long)
    for row, (prompt, reply) in enumerate(rows):
        ids[row, 12 - len(prompt) : 12 + len(reply)] = torch.cat([prompt, reply])
        mask[row, 12 - len(prompt) : 12 + len(reply)] = 1
    packed = pack(ids, mask, 4, way="conversations")
    assert packed.ids.size(1) == 11 + 4 + 3 + 2  # the first reply is inside the later prompt
    assert packed.layout.segments.queries_from.diff().tolist() == [11, 4, 3, 2]
    model = made("qwen3")
    expected = one_by_one(model, ids, mask, 4)
    of_rows = gradients(model, expected)
    with attending(model):
        found = together(model, packed)
        of_row = gradients(model, found)
    assert calls.called
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    assert difference(of_row, of_rows) < 1e-5


def test_a_window_that_is_shorter_than_a_sequence_goes_the_other_way(calls: mock.Mock) -> None:
    model = made("mistral-window")
    ids, mask = batch()
    expected = one_by_one(model, ids, mask, 7)
    with attending(model):
        found = together(model, pack(ids, mask, 7))
    assert not calls.called
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)


def in_reach(_: Any, __: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return query - key < 4


@pytest.mark.parametrize(
    ("needs", "is_taken"),
    [
        ({}, True),
        ({"attention_mask": Restriction(in_reach, 5)}, True),  # the longest sequence is of 5 keys
        ({"attention_mask": Restriction(in_reach, 4)}, False),
        ({"attention_mask": Restriction(in_reach, None)}, False),
        ({"softcap": 5.0}, False),
        ({"dropout": 0.1}, False),
    ],
)
def test_a_layer_is_read_by_the_kernel_unless_it_has_dropout_a_cap_or_a_shorter_window(
    needs: dict[str, Any], is_taken: bool, calls: mock.Mock
) -> None:
    heads = torch.ones(1, 2, 10, 8)
    given = {"attention_mask": None, "shared_prefix": pack(IDS, MASK, 3).layout, **needs}
    found, _ = attend(torch.nn.Identity(), heads, heads, heads, **given)
    assert found.shape == (1, 10, 2, 8)
    assert calls.called is is_taken


def test_the_kernel_takes_halves_in_eights_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def heads(size: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.zeros(3, 2, size, dtype=dtype)

    assert not segment_attention.takes(heads(64), heads(64))  # on a CPU
    monkeypatch.setattr(segment_attention, "KINDS", {"cpu"})
    assert segment_attention.takes(heads(64), heads(64))
    for query, value in (
        (heads(64, torch.float32), heads(64, torch.float32)),
        (heads(12), heads(12)),
        (heads(264), heads(264)),
        (heads(64), heads(32)),
    ):
        assert not segment_attention.takes(query, value)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert segment_attention.takes(heads(64, torch.float32), heads(64, torch.float32))
        monkeypatch.setattr(segment_attention, "aten", flash_reference.KERNELS)  # which needs one type
        segments = pack(IDS[2:3, :4], MASK[2:3, :4], 2).layout.segments  # a | b c
        mixed = heads(64, torch.float32), heads(64), heads(64, torch.float32)
        assert segment_attention.attend_by_segments(*mixed, segments, None).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("hip", "has_kernel", "capability", "is_right", "expected"),
    [
        (None, True, (8, 0), True, True),
        ("7.0", True, (8, 0), True, False),
        (None, False, (8, 0), True, False),
        (None, True, (7, 5), True, False),
        (None, True, (9, 0), False, False),
    ],
)
def test_a_gpu_s_kernel_is_taken_where_there_is_one_for_it_that_is_right(
    hip: str | None,
    has_kernel: bool,
    capability: tuple[int, int],
    is_right: bool,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: has_kernel)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(segment_attention, "is_right", lambda *_: is_right)
    segment_attention._is_right.cache_clear()
    assert segment_attention.is_for(torch.device("cuda"), torch.float16) is expected
    assert not segment_attention.is_for(torch.device("cuda"), torch.float32)
    segment_attention._is_right.cache_clear()


def test_a_kernel_that_is_wrong_forward_or_backward_or_absent_is_not_taken(
    calls: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu, exact = torch.device("cpu"), torch.float32

    def aligned_at_the_beginning(query: Any, key: Any, value: Any, *more: Any, **given: Any) -> Any:
        return flash_reference.forward(query, key.flip(0), value.flip(0), *more, **given)

    def of_keys_alone(*given: Any, **more: Any) -> Any:
        queries, keys, values = flash_reference.backward(*given, **more)
        return queries, keys, torch.zeros_like(values)

    assert segment_attention.is_right(cpu, exact)
    for within in (torch.no_grad(), torch.inference_mode()):
        with within:
            assert segment_attention.is_right(cpu, exact)
    with monkeypatch.context() as patch:
        patch.setattr(flash_reference.KERNELS, "_flash_attention_forward", aligned_at_the_beginning)
        assert not segment_attention.is_right(cpu, exact)
    with monkeypatch.context() as patch:
        patch.setattr(flash_reference.KERNELS, "_flash_attention_backward", of_keys_alone)
        assert not segment_attention.is_right(cpu, exact)
    monkeypatch.setattr(segment_attention, "aten", torch.ops.aten)  # which has none for a CPU
    assert not segment_attention.is_right(cpu, exact)


def test_where_attention_is_in_segments_the_fewest_tokens_cost_least_then_pairs_and_no_mask_is_made() -> None:
    ids = torch.ones(4, 64 + 8, dtype=torch.long)
    layout = pack(ids, ids, 8, token_price=DEAR).layout
    assert "visible" not in vars(layout)
    # A layer without the kernel: 63**2 / 2 + 4 * 8 * 71 pairs; sequence by sequence 4 * 71 * (71 + 64) / 2.
    assert layout.prompts is not None
    first = [*range(1, 31)]  # the second prompt goes on from it and its reply
    sizes = sizes_of([first, [*first, *[40] * 900, 41]], [[40] * 900, [50] * 900])
    assert cheapest(sizes, DEAR)[0] == "conversations"
