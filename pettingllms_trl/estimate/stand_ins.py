"""What stands in on the simulated device for files that a machine need not have, and for work that repeats.

A model is made of its configuration, without weights; a tokenizer that cannot be loaded is one of bytes; `generate`
runs its first steps and the last, and counts those between; one of nearly equal passes is run; no weights are written.
TRL's Triton kernels of the head are one operation for each of their tiles. Checks that compare values are left out:
floats have none here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn
from transformers import AutoConfig, AutoProcessor, AutoTokenizer, GenerationMixin, PreTrainedModel, Trainer
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from trl.kernels import chunked_logprob

from pettingllms_trl.byte_tokenizers import byte_tokenizer
from pettingllms_trl.engines import factory
from pettingllms_trl.estimate.simulated_device import NAME
from pettingllms_trl.estimate.simulated_shapes import META, ShapesDevice, Work
from pettingllms_trl.policies import adapters
from pettingllms_trl.update.micro_batches import rows_on_host
from pettingllms_trl.update.packed_logprobs import PackedScorer
from pettingllms_trl.update.packing import segment_attention
from pettingllms_trl.update.packing.pack import pack


UNCHECKED = (
    "that packed rows have the log-probabilities of rows alone, and that the head is one that TRL's computes",
    "that adapters begin at the base and references at their policies",
    "that losses, gradients and weights are finite",
    "that an engine has the trainer's weights",
)
"""Checks of values that a training makes and an estimate cannot."""


@contextmanager
def standing_in(
    device: ShapesDevice, note: Callable[[str], None], passing: Callable[[], Any]
) -> Iterator[Callable[[Any, Callable[[], Any]], Any]]:
    """Within, a training is made and run of what is on this machine; what is given runs one of equal calls.

    Args:
        note: Is told what stands in.
        passing: A context of a forward and backward pass.
    """
    passes = _Passes(device, note, passing)
    kinds = tuple(kind if kind.make is None else kind._replace(make=_no_engines, package="") for kind in factory.KINDS)
    by_name: Mapping[tuple[Any, str], Any] = {
        (PreTrainedModel, "from_pretrained"): classmethod(partial(_of_configuration, device)),
        (PreTrainedModel, "save_pretrained"): _not_written,
        (AutoProcessor, "from_pretrained"): partial(_tokenizer, AutoProcessor.from_pretrained, note),
        (AutoTokenizer, "from_pretrained"): partial(_tokenizer, AutoTokenizer.from_pretrained, note),
        (GenerationMixin, "generate"): _counted_generation(device, GenerationMixin.generate),
        (Trainer, "training_step"): passes.training_step,
        (PackedScorer, "_packed"): passes.packed,
        (PackedScorer, "_compared"): lambda *_: _Equal,
        (PackedScorer, "_why_not_exact"): _price_of_a_gpu,
        (PackedScorer, "_check_positions"): lambda *_: None,
        (adapters, "check_layers"): lambda *_: None,
        (adapters, "check_equal"): lambda *_, **__: None,
        (factory, "KINDS"): kinds,
        (segment_attention, "KINDS"): {NAME},
        (chunked_logprob, "_forward_tile"): lambda tile, *_, **__: device.add(0.0, [tile.held], []),
        (chunked_logprob, "_backward_tile"): lambda tile, *_, **__: device.add(0.0, [tile.held], [tile.held]),
    }
    with ExitStack() as stack:
        for (owner, name), new in by_name.items():
            stack.enter_context(mock.patch.object(owner, name, new))
        yield passes.run


class _Equal:
    """What a comparison of a miniature finds where there is no difference."""

    head = packed = None


def _price_of_a_gpu(scorer: Any) -> None:
    scorer.token_prices[scorer._team.active] = scorer.token_price()


def _of_configuration(device: ShapesDevice, cls: Any, source: Any, *_: Any, **given: Any) -> PreTrainedModel:
    """A model on the device, of its configuration alone."""
    config, names = given.get("config"), ("revision", "trust_remote_code", "num_labels", "subfolder")
    if config is None:
        config = AutoConfig.from_pretrained(source, **{name: given[name] for name in names if name in given})
    dtype = given.get("dtype") or torch.float32
    dtype = (config.dtype or torch.float32) if dtype == "auto" else dtype
    with torch.device("meta"):
        own = {} if given.get("attn_implementation") is None else {"attn_implementation": given["attn_implementation"]}
        model: PreTrainedModel = cls._from_config(config, dtype=dtype, **own)
    put_on_device(model, device)
    return model.eval()


def put_on_device(model: nn.Module, device: ShapesDevice) -> None:
    """Replace parameters and buffers without storage by such on the device; tied ones stay tied."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, own in module._parameters.items():
            if own is not None and own.device == META:
                if id(own) not in made:
                    made[id(own)] = nn.Parameter(device.hold(own.detach()), requires_grad=own.requires_grad)
                module._parameters[name] = made[id(own)]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.device == META:
                held = buffer if buffer.is_floating_point() else torch.zeros(buffer.shape, dtype=buffer.dtype)
                module._buffers[name] = device.hold(held)


def _tokenizer(load: Callable[..., Any], note: Callable[[str], None], source: Any, *args: Any, **given: Any) -> Any:
    has_none = Path(source).is_dir() and not any(Path(source).glob("*token*"))  # transformers would make an empty one
    try:
        if not has_none:
            return load(source, *args, **given)
    except (OSError, ValueError):
        pass
    note(f"The tokenizer of {source} is not on this machine: one of bytes stands in.")
    return byte_tokenizer()


def _not_written(model: Any, folder: Any, *_: Any, **__: Any) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)


def _no_engines(groups: Any, args: Any, codecs: Any, parallel: Any) -> list[Any]:
    return [SimpleNamespace(can_load_base=False, is_batched=False, is_remote=False) for _ in groups]


def _counted_generation(device: ShapesDevice, generate: Callable[..., Any]) -> Callable[..., Any]:
    """`generate` of as many tokens as it may: the prompt is read, the first token and the last are run, and the steps
    between take as much as the mean of the two."""

    def generated(self: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, **given: Any) -> Any:
        config = given.pop("generation_config", None) or self.generation_config
        most = given.get("max_new_tokens") or config.max_new_tokens
        if most is None or most <= 2:
            return generate(
                self, input_ids=input_ids, attention_mask=attention_mask, generation_config=config, **given
            )
        given.pop("max_new_tokens", None)

        def run(ids: torch.Tensor, number: int, cache: Any) -> tuple[Any, Work]:
            before, mask = device.since(Work()), torch.ones_like(ids)
            mask[:, : input_ids.shape[1]] = attention_mask
            short = type(config).from_dict({**config.to_dict(), "max_new_tokens": number, "min_new_tokens": number})
            short.return_dict_in_generate = True
            more = {} if cache is None else {"past_key_values": cache}
            found = generate(self, input_ids=ids, attention_mask=mask, generation_config=short, **given, **more)
            return found, device.since(before)

        read, _ = run(input_ids, 1, given.pop("past_key_values", None))
        cache = read.past_key_values
        _, first = run(read.sequences, 1, cache)
        rest = torch.full((len(input_ids), most - 1), int(read.sequences[0, -1]), device=input_ids.device)
        whole = torch.cat([input_ids, rest], dim=1)
        for layer in (each for each in cache.layers if isinstance(each, DynamicLayer)):
            width = whole.shape[1] - 1
            if isinstance(layer, DynamicSlidingWindowLayer):
                layer.cumulative_length, width = width, min(width, layer.sliding_window - 1)
            parts = (layer.keys, layer.values)
            layer.keys, layer.values = (each.new_empty((*each.shape[:2], width, each.shape[3])) for each in parts)
        _, last = run(whole, 1, cache)
        between = Work().plus(first, (most - 3) / 2).plus(last, (most - 3) / 2)
        device.work = device.work.plus(between)
        return torch.cat([whole, rest[:, :1]], dim=1)

    return generated


def alike(team: Any, policy: str) -> Any:
    """Equal for policies of which a pass takes the same: adapters on one model."""
    return "adapter" if team.policies[policy].adapter is not None else policy


class _Passes:
    """Of passes of nearly as many tokens runs the first and those with more, and counts the others by their tokens."""

    def __init__(self, device: ShapesDevice, note: Callable[[str], None], passing: Callable[[], Any]) -> None:
        self._device, self._note = device, note
        self._seen: dict[Any, tuple[int, Work, Any]] = {}
        step, packed = Trainer.training_step, PackedScorer._packed

        def training_step(trainer: Any, model: Any, batch: Mapping[str, Any], *more: Any) -> Any:
            name, rows = batch["policy"], rows_on_host(dict(batch))
            assert rows is not None
            tokens = rows[0].numel() or 1
            if trainer.scorer.packable.get(name, False) and len(rows[0]):
                tokens = _tokens_read(trainer.scorer, name, *rows, batch["completion_ids"].shape[1])
            with passing():
                return self.run((alike(trainer.team, name),), lambda: step(trainer, model, batch, *more), tokens)

        def scored(scorer: Any, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int, *more: Any) -> Any:
            if torch.is_grad_enabled():
                return packed(scorer, model, ids, mask, width, *more)
            name = scorer._team.active
            key, tokens = (alike(scorer._team, name), model), _tokens_read(scorer, name, ids, mask, width)
            found = self.run(key, lambda: packed(scorer, model, ids, mask, width, *more), tokens)
            return [each if each is None else device.hold(each.held.new_empty((len(ids), width))) for each in found]

        self.training_step, self.packed = training_step, scored

    def run(self, key: Any, call: Callable[[], Any], tokens: int = 1) -> Any:
        """What the last call has returned that was run of those with an equal key and nearly as many tokens."""
        key = (*key, round(4 * math.log2(tokens)))
        ran, work, found = self._seen.get(key, (0, Work(), None))
        if tokens > ran:
            before = self._device.since(Work())
            found = call()
            self._seen[key] = tokens, self._device.since(before), found
            return found
        if tokens < ran:
            self._note("Of passes of nearly as many tokens one is run, and the others are counted by their tokens.")
        self._device.work = self._device.work.plus(work, tokens / ran)
        return found


def _tokens_read(scorer: PackedScorer, name: str, ids: torch.Tensor, mask: torch.Tensor, width: int) -> int:
    """Of these rows in one packed row, (1, T)."""
    return pack(ids, mask, width, token_price=scorer.token_prices[name]).ids.numel()
