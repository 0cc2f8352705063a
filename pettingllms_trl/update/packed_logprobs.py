"""`PackedScorer`: computes log-probabilities of sequences with each prompt processed once for all its candidates, and
each conversation once for all its turns.

TRL's losses, and its old and reference log-probabilities, call one method to score rows of prompt and completion. Here
that method packs them into one row without padding (`packing/pack.py`), so that a decision's K candidates share their
prompt, forward and backward. Its result has TRL's shape, and everything else is TRL's.

Whether a model supports this is looked up (`structure/properties.py`) and then tried (`packing_checks.py`): one that
mixes tokens outside its attention, or does not use transformers' attention interface, would give other numbers. Such a
model falls back to TRL's own path, which is also used with `shared_prefix=False`. On that path a model with learned
positions is given them (`positions.py`), unless the user wants exactly what TRL computes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from peft import PeftModel
from torch import nn
from transformers import PreTrainedTokenizerBase

from pettingllms_envs.observations import Image
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.pixels import ImageInputs
from pettingllms_trl.policies.team import Team
from pettingllms_trl.structure.miniature import EXACT, FAILURES, NoMiniature
from pettingllms_trl.structure.properties import base_of, check_switch, rope_switch, takes_positions, why_not_packed
from pettingllms_trl.update import packing_checks
from pettingllms_trl.update.micro_batches import Batch, rows_on_host
from pettingllms_trl.update.packed_attention import attending
from pettingllms_trl.update.packing.cost import DEAR, token_price_of
from pettingllms_trl.update.packing.pack import pack
from pettingllms_trl.update.packing.segment_attention import is_for
from pettingllms_trl.update.positions import counts_padding, with_positions


Scores = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Log-probabilities and entropies of completion tokens, (B, C) each, and the router loss."""

Rows = tuple[torch.Tensor, torch.Tensor]
"""Ids and mask of prompts and completions, (B, P + C) each."""
Pictures = Sequence[Sequence[Image]]
"""The images of each row."""


class PackedScorer:
    """Log-probabilities of the active policy's sequences, with prompts shared where its model allows it.

    Args:
        score: TRL's own method: from a model, ids, mask and number of completion tokens to [`Scores`].
        images: What makes the inputs of pictures, of each policy that reads them.
        only_vision: Policies whose vision part alone is trained: rows without a picture have no gradient.
    """

    def __init__(
        self,
        team: Team,
        args: MultiAgentGRPOConfig,
        accelerator: Accelerator,
        *,
        activate: Callable[[str], None],
        score: Callable[..., Scores],
        images: Mapping[str, ImageInputs],
        only_vision: Collection[str] = (),
    ) -> None:
        self._team, self._args, self._accelerator = team, args, accelerator
        self._activate, self._score, self._images = activate, score, images
        self.only_vision = only_vision
        self.packable: dict[str, bool] = {}
        """Whether a policy's model supports packing, for the policies that were checked."""
        self.token_prices: dict[str, float] = {}
        """What a token costs in the model of each of these, by which the way to pack sequences is chosen."""
        self.with_positions: set[str] = set()
        """Policies whose models are given position ids on TRL's path."""
        self._differences: dict[str, packing_checks.Differences] = {}
        self._switching: set[str] = set()
        self._pictures: Pictures | None = None
        self._chunks: Sequence[Sequence[int]] | None = None
        self._host: Rows | None = None

    def try_all(self) -> None:
        """Check each trained policy's model, which is else done when it is first used."""
        active = self._team.active
        for policy in self._team.routing.trained:
            self.is_packable(policy.name)
        self._activate(active)

    def is_packable(self, name: str) -> bool:
        """Whether a policy's sequences can be packed into one row. Activates the policy when it is first asked.

        Raises:
            ValueError: TRL would compute other log-probabilities than those of the model's logits, or completions
                are longer than where its RoPE changes.
        """
        if name not in self.packable:
            self._activate(name)
            weights, longest = self._team.weights_of(name), self._args.max_completion_length or 0
            if rope_switch(base_of(weights).config.get_text_config()) is not None:
                check_switch(weights, name, 1 + longest, f"max_completion_length={longest}")
                self._switching.add(name)
            # All processes must agree, even if one of them rounds differently.
            found = gather_object([(self._reason_not_packable(), self.token_prices.get(name))])
            why = next((reason for reason, _ in found if reason is not None), None)
            self.packable[name] = why is None
            if prices := [price for _, price in found if price is not None]:  # rows are dealt by it, on all alike
                self.token_prices[name] = max(prices)
            if why is not None:
                self._check_positions(name)
            if why:
                warnings.warn(
                    f"shared_prefix=True, but the model of policy {name!r} {why}. Its prompts are read once for each "
                    "candidate, as TRL does; set shared_prefix=False to have it so without this warning.",
                    stacklevel=2,
                )
        return self.packable[name]

    def _reason_not_packable(self) -> str | None:
        """Why the active policy's sequences are not packed; empty if the user does not want it, `None` if they are."""
        weights, profile = self._team.weights_of(self._team.active), self._team.profiles[self._team.active]
        by_structure = why_not_packed(weights, self._args, aux_loss_enabled=profile.aux_loss_enabled)
        try:
            found = self._compared(weights, profile.tokenizer)
        except NoMiniature as error:
            cause = f"{type(error.__cause__).__name__}: {error.__cause__}"
            undecided = f"is not known to read packed rows: its class does not take smaller sizes ({cause})"
            return by_structure or undecided if self._args.shared_prefix else ""
        if found.head is not None:
            raise ValueError(
                f"the model of policy {self._team.active!r}, a {type(base_of(weights)).__name__}, has a head that "
                f"TRL's fused one does not compute ({found.head}); expected the log-probabilities of its "
                "logits, with which tokens are sampled. Train another model."
            )
        if not self._args.shared_prefix:
            return ""
        return by_structure or found.packed or self._why_not_exact()

    def _compared(self, weights: Any, tokenizer: PreTrainedTokenizerBase) -> packing_checks.Differences:
        """Of a miniature. Policies with the same kind of model, adapter and template have the same."""
        adapter = weights.active_peft_config.to_dict() if isinstance(weights, PeftModel) else None
        config = base_of(weights).config.get_text_config()
        rows = packing_checks.template_rows(
            tokenizer, rope_switch(config) or getattr(config, "max_position_embeddings", None)
        )
        key = repr((type(base_of(weights)), base_of(weights).config.to_dict(), adapter, rows))
        if key not in self._differences:
            self._differences[key] = packing_checks.compare(weights, *rows)
        return self._differences[key]

    def _why_not_exact(self) -> str | None:
        """How packed rows of the model itself differ from rows alone, beyond its own noise: what the padding of a
        batch makes of the same row. Draws no random numbers."""
        model = self._team.wrapped
        config = self._team.weights_of(self._team.active).config.get_text_config()
        self.token_prices[self._team.active] = self.token_price()
        numbers = [(7919 * number + 13) % config.vocab_size for number in range(37)]  # any that differ
        prompts = {8: numbers[:8], 5: numbers[8:13]}
        rows = [(prompts[start], numbers[13 + 6 * row :][:size]) for row, (start, size) in enumerate(PROBE)]
        ids, mask, most = packing_checks.padded(rows, self._accelerator.device)
        with self._team.in_eval_mode(), torch.no_grad():
            in_batch, _, _ = self._score(model, ids, mask, most)
            try:
                packed, _ = self._packed(model, ids, mask, most, ids.device)
            except FAILURES as failure:
                return packing_checks.why_failed(failure)
            noise, error = torch.zeros(2, device=ids.device)
            for row in ALONE:
                own = mask[row].bool()
                width = int(own[-most:].sum())
                alone, _, _ = self._score(model, ids[row : row + 1, own], mask[row : row + 1, own], width)
                noise = noise + (in_batch[row, :width] - alone[0]).abs().mean()
                error = error + (packed[row, :width] - alone[0]).abs().mean()
        least = EXACT if self._is_in_float32(model) else torch.finfo(torch.bfloat16).eps * float(in_batch.abs().max())
        if float(error) <= max(NOISES * float(noise), len(ALONE) * least):
            return None
        off, by = float(error) / len(ALONE), float(noise) / len(ALONE)
        return f"would give other log-probabilities, by {off:.2g} nats where padding changes them by {by:.2g}"

    def token_price(self) -> float:
        """What a token costs in the active policy's model here."""
        weights, device = self._team.weights_of(self._team.active), self._accelerator.device
        own = next(each.dtype for each in weights.parameters() if each.is_floating_point())
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self._accelerator.mixed_precision, own)
        width = weights.config.get_text_config().hidden_size
        return DEAR if is_for(device, dtype) else token_price_of(device.type, width)

    def _check_positions(self, name: str) -> None:
        """Check whether a model needs position ids on TRL's path; warn if it does and does not get them."""
        own = self._team.weights_of(self._team.active)
        with self._team.in_eval_mode():
            score = partial(self._score, self._team.wrapped, logits_to_keep=1)
            if not counts_padding(own, score, self._accelerator.device):
                return
        if self._args.shared_prefix and takes_positions(base_of(own)):
            self.with_positions.add(name)
            return
        warnings.warn(
            f"the model of policy {name!r} has learned positions, and TRL's update, which pads prompts on the left, "
            "reads every prompt but the longest of a batch at wrong ones: its log-probabilities, importance ratios "
            "and gradients are not those of the tokens sampled. With "
            f"shared_prefix={self._args.shared_prefix} this is as in TRL. Set shared_prefix=True and train a model "
            "that can share prompts, as GPT-2 can, or one with rotary positions.",
            stacklevel=2,
        )

    def _is_in_float32(self, model: nn.Module) -> bool:
        full = all(p.dtype == torch.float32 for p in model.parameters() if p.is_floating_point())
        is_highest = self._accelerator.device.type == "cpu" or not torch.backends.cuda.matmul.allow_tf32
        return full and is_highest and self._accelerator.mixed_precision == "no"

    @contextmanager
    def scoring(self, *, pictures: Pictures | None, chunks: Sequence[Sequence[int]] | None = None) -> Iterator[None]:
        """Within, a batch is scored.

        Args:
            chunks: Rows that are scored together; `None`: as many as TRL asks for.
        """
        self._pictures, self._chunks = pictures, chunks
        try:
            yield
        finally:
            self._pictures = self._chunks = self._host = None

    @contextmanager
    def attending(self, name: str, batch: Batch | None = None) -> Iterator[None]:
        """Score a pass of a policy's sequences with their `pictures`; use packed attention for one without any. Until
        its backward pass is over, since gradient checkpointing recomputes layers there.

        In a run that resumes inside a generation, this is the first use of weights partitioned over processes.

        Args:
            batch: Of the pass. The host waits inside it for the ids and mask of one without copies on the host.
        """
        pictures = None if batch is None else batch.get("pictures")
        is_packed = pictures is None and self.is_packable(name)
        with self.scoring(pictures=pictures), attending(self._team.weights_of(name)) if is_packed else nullcontext():
            self._host = None if batch is None else rows_on_host(batch)
            yield

    def score(
        self,
        model: Any,
        ids: torch.Tensor,
        mask: torch.Tensor,
        width: int,
        *,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **of_images: Any,
    ) -> Scores:
        """Score rows of prompt and completion, with TRL's arguments and result.

        Args:
            model: The policy's model, its reference, or a function that calls one.
            ids, mask: (B, P + C).
            width: C.
        """
        active = self._team.active
        if active in self._switching:
            longest = int(self._on_host(ids, mask)[1].sum(dim=1).max())
            check_switch(self._team.weights_of(active), active, longest, "a decision")
        if active in self.with_positions:
            model = with_positions(model)
        options = {"compute_entropy": compute_entropy, "compute_aux_loss": compute_aux_loss}
        is_plain = self._pictures is None and all(given is None for given in of_images.values())
        is_packed = self.packable.get(active, False) and is_plain and not compute_aux_loss
        if batch_size is not None and self._chunks is not None:
            return self._of_chunks(model, ids, mask, width, is_packed=is_packed), None, None
        if self._pictures is not None:
            return self._seen(model, ids, mask, width, size=batch_size or len(ids), **options)
        if not is_packed:
            return self._score(model, ids, mask, width, batch_size=batch_size, **options, **of_images)
        scores, entropies = self._packed(model, *self._on_host(ids, mask), width, ids.device)
        return scores, entropies if compute_entropy else None, None

    def _of_chunks(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int, *, is_packed: bool
    ) -> torch.Tensor:
        """Log-probabilities of the rows, each chunk in a forward pass of its own; NaN for those in none."""
        self._host = host = self._on_host(ids, mask)
        scores = torch.full((len(ids), width), math.nan, device=ids.device)
        for chunk in self._chunks or ():
            own, of_mask = host[0][chunk], host[1][chunk]
            if is_packed:
                found, _ = self._packed(model, own, of_mask, width, ids.device)
            else:  # as a pass of the loss, without columns that are padding in all of its rows
                used, num_prompt = of_mask.any(dim=0).nonzero(), ids.size(1) - width
                columns = slice(int(used[0]), max(int(used[-1]), num_prompt) + 1)
                own, of_mask, kept = own[:, columns], of_mask[:, columns], columns.stop - num_prompt
                pictures = self._pictures and [self._pictures[row] for row in chunk]
                inputs = self._images.get(self._team.active) if pictures else None
                pixels = inputs.of_batch(own, pictures or (), kept, ids.device) if inputs else {}
                found, _, _ = self._score(model, own.to(ids.device), of_mask.to(ids.device), kept, **pixels)
                found = nn.functional.pad(found, (0, width - kept))
            rows = torch.tensor(chunk).to(ids.device, non_blocking=True)
            scores = scores.to(found.dtype).index_copy(0, rows, found)
        return scores

    def _on_host(self, ids: torch.Tensor, mask: torch.Tensor) -> Rows:
        """Ids and mask of the rows that are scored now; the host waits unless it has them."""
        if self._host is not None and self._host[0].shape == ids.shape:
            return self._host
        copied, of_mask = torch.stack((ids, mask)).cpu()
        return copied, of_mask

    @torch.no_grad()
    def totals(self, name: str, rows: Sequence[Sequence[Sequence[int]]], pictures: Pictures) -> list[float]:
        """Log-probability of each completion, its tokens together. Each process scores some, and is given all."""
        self._activate(name)
        first, step = self._accelerator.process_index, self._accelerator.num_processes
        own, size, found = rows[first::step], self._args.per_device_train_batch_size, list[float]()
        with self._team.in_eval_mode():
            for start in range(0, len(own), size):
                ids, mask, width = packing_checks.padded(own[start : start + size], self._accelerator.device)
                with self.scoring(pictures=pictures[first::step][start : start + size]):
                    scores, _, _ = self.score(self._team.wrapped, ids, mask, width)
                found += (scores * mask[:, -width:]).sum(dim=1).tolist()
        totals = [0.0] * len(rows)
        for process, part in enumerate(gather_object([found])):
            totals[process::step] = part
        return totals

    def _seen(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int, *, size: int, **options: Any
    ) -> Scores:
        """Score rows with their pictures as TRL does, which is given the pixels of `size` rows at a time."""
        assert self._pictures is not None
        inputs, found, (host, _) = self._images[self._team.active], list[Scores](), self._on_host(ids, mask)
        for start in range(0, len(ids), size):
            rows = slice(start, start + size)
            own = inputs.of_batch(host[rows], self._pictures[rows], width, ids.device)
            found.append(self._score(model, ids[rows], mask[rows], width, **options, **own))
        if len(found) > 1:
            return torch.cat([scores for scores, _, _ in found]), None, None
        scores, *rest = found[0]
        if torch.is_grad_enabled() and not scores.requires_grad:  # no picture in a pass that trains vision alone
            own = self._team.weights_of(self._team.active).parameters()
            scores = scores + 0.0 * next(parameter for parameter in own if parameter.requires_grad).sum()
        return scores, rest[0], rest[1]

    def _packed(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Score rows in one packed forward pass: log-probabilities and entropies of their completions, (B, C), 0 where
        masked; `None` for the entropies of a reference.

        Args:
            model: The policy's model, its reference, or a function that calls one.
            ids, mask: (B, P + C), on the host.
            width: C.
        """
        packed = pack(ids, mask, width, device=device, token_price=self.token_prices[self._team.active])
        own = self._team.weights_of(self._team.active)
        models = (own, model) if isinstance(model, nn.Module) else (own,)
        with attending(*models), self._accelerator.autocast():
            outputs = model(**packed.inputs)
        entropies = None if outputs.entropy is None else packed.of_completions(outputs.entropy)
        return packed.of_completions(outputs.log_probs), entropies


PROBE = ((8, 6), (5, 3), (8, 4), (5, 5))
"""Tokens of the prompt and the completion of each row that a model itself reads; as long prompts are the same."""
ALONE = (1, 3)
"""Rows that are read alone: padded on both sides in a batch."""
NOISES = 3.0
"""The most by which packed rows may differ, in differences between a row alone and in TRL's batch."""
