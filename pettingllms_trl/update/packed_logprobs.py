"""`PackedScorer`: log-probabilities of sequences whose prompts are read once for all that begin with them.

TRL's losses, and its old and reference log-probabilities, ask one method for what the model makes of rows of prompt
and completion. Here that method lays them in one row without padding (`packing.py`), so that a decision's K
candidates have their prompt in common, forward and backward; what it returns has TRL's shape, and all else is TRL's.

Whether a model can is tried, on a few tokens, before anything is trained: one that mixes tokens elsewhere than in its
attention, or whose attention is no option of transformers, would give other numbers. Then TRL's own path is taken, as
it is with `shared_prefix=False`, and where a loss is over the tokens as they stand in the batch (a router's). On it, a
model with learned positions is given them (`positions.py`), unless the user wants what TRL computes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, gather_object
from peft import PeftModel
from torch import nn

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies import weights
from pettingllms_trl.policies.team import Team
from pettingllms_trl.update.packed_attention import attending, configs_of
from pettingllms_trl.update.packing import pack
from pettingllms_trl.update.positions import counts_padding, takes_positions, with_positions


Scores = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Log-probabilities and entropies of completions' tokens, (B, C) each; a router's loss."""

EXACT_TOLERANCE = 1e-4
"""Of float32: largest mean difference of log-probabilities, in parts of their mean size."""
LOOSE_TOLERANCE = 0.1
"""Largest mean difference, in parts of what it is where candidates see each other. In 16 bits all that can be said."""
FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""How a model may fail that was not made for keyword arguments to its attention, or for one row."""


class PackedScorer:
    """Log-probabilities of the active policy's sequences, with prompts shared where its model allows it.

    Args:
        team: The policies.
        args: The trainer's.
        accelerator: The trainer's.
        model: The trainer's, which accelerate may put others around.
        activate: Makes a policy active.
        score: TRL's own way: a model, ids, mask, and the number of completion tokens to [`Scores`].
    """

    def __init__(
        self,
        team: Team,
        args: MultiAgentGRPOConfig,
        accelerator: Accelerator,
        *,
        model: Callable[[], nn.Module],
        activate: Callable[[str], None],
        score: Callable[..., Scores],
    ) -> None:
        self._team, self._args, self._accelerator = team, args, accelerator
        self._model, self._activate, self._score = model, activate, score
        self.packable: dict[str, bool] = {}
        """Policies whose models were tried, and whether they share prompts."""
        self.with_positions: set[str] = set()
        """Policies whose models are given their positions on TRL's path."""
        self.chunks: Sequence[Sequence[int]] | None = None
        """Rows of the batch in progress whose log-probabilities are taken together."""

    def try_all(self) -> None:
        """Each trained policy's model, unless its weights are spread over processes: those are tried when they are
        first used."""
        plugin = self._accelerator.state.deepspeed_plugin
        is_spread = self._accelerator.distributed_type == DistributedType.FSDP
        if not is_spread and not (plugin is not None and plugin.zero_stage == 3):
            active = self._team.active
            for policy in self._team.routing.trained:
                self.is_packable(policy.name)
            self._activate(active)

    def is_packable(self, name: str) -> bool:
        """Whether a policy's sequences are laid in one row. Makes it active."""
        self._activate(name)
        if name not in self.packable:
            # All processes do the same, also where one of them rounds otherwise.
            why = next((found for found in gather_object([self._reason_not_packable()]) if found is not None), None)
            self.packable[name] = why is None
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
        """Why the active policy's model does not share prompts; empty where the user does not want it, `None` where it
        does."""
        if not self._args.shared_prefix:
            return ""
        if self._team.profiles[self._team.active].aux_loss_enabled:
            return "has a router whose loss is over all tokens of a batch (router_aux_loss_coef), prompts K times"
        if self._args.torch_compile:
            return "is compiled (torch_compile), and rows are of every length"
        return self._probe()

    def _probe(self) -> str | None:
        """Try a few tokens both ways. Draws no random numbers."""
        model = self._model()
        vocabulary = self._own().config.get_text_config().vocab_size
        ids, mask = probe_batch(vocabulary, self._accelerator.device)
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                expected, _, _ = self._score(model, ids, mask, PROBE_LENGTH)
                try:
                    shared, _ = self._packed(model, ids, mask, PROBE_LENGTH)
                    mixed, _ = self._packed(model, ids, mask, PROBE_LENGTH, isolated=False)
                except FAILURES as failure:
                    return f"cannot share prompts ({type(failure).__name__}: {failure})"
        finally:
            model.train(training)
        error, size = (
            float(each.abs().sum() / mask[:, -PROBE_LENGTH:].sum()) for each in (shared - expected, expected)
        )
        unlike = float((mixed - expected).abs().sum() / mask[:, -PROBE_LENGTH:].sum())
        is_exact = expected.dtype == torch.float32 and self._is_in_float32(model)
        if error <= LOOSE_TOLERANCE * unlike and (not is_exact or error <= EXACT_TOLERANCE * size):
            return None
        return f"would give other log-probabilities, by {error:.2g} at {size:.2g}"

    def _check_positions(self, name: str) -> None:
        """On TRL's path: a model with learned positions is given them, unless the user wants what TRL computes."""
        own, model = self._own(), self._model()
        training = model.training
        model.eval()
        score = partial(self._score, model, logits_to_keep=1)
        try:
            if not counts_padding(own, score, self._accelerator.device):
                return
        finally:
            model.train(training)
        if self._args.shared_prefix and takes_positions(own.get_base_model() if isinstance(own, PeftModel) else own):
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
    def attending(self, name: str) -> Iterator[None]:
        """For a pass of a policy's sequences, to the end of its backward, in which checkpoints compute layers anew.

        A run that resumes inside a generation uses here first what is spread over processes."""
        if self.is_packable(name):
            with attending(self._team.module_cache.of(self._team.weights_of(name), configs_of)):
                yield
        else:
            yield

    def _own(self) -> weights.Model:
        return self._team.weights_of(self._team.active)

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
        """What TRL asks of a model for rows of prompt and completion.

        Args:
            model: The policy's, its reference, or a function that calls one.
            ids, mask: (B, P + C).
            width: C.
            batch_size, compute_entropy, compute_aux_loss, of_images: TRL's.
        """
        active = self._team.active
        if active in self.with_positions:
            model = with_positions(model)
        is_plain = all(given is None for given in of_images.values())
        if not (self.packable.get(active, False) and is_plain and not compute_aux_loss):
            return self._score(
                model,
                ids,
                mask,
                width,
                batch_size=batch_size,
                compute_entropy=compute_entropy,
                compute_aux_loss=compute_aux_loss,
                **of_images,
            )
        if batch_size is None or self.chunks is None:
            scores, entropies = self._packed(model, ids, mask, width)
            return scores, entropies if compute_entropy else None, None
        found = [self._packed(model, ids[chunk], mask[chunk], width)[0] for chunk in self.chunks]
        dtype = found[0].dtype if found else torch.float32
        scores = torch.full((len(ids), width), math.nan, dtype=dtype, device=ids.device)
        for chunk, own in zip(self.chunks, found, strict=True):
            scores[chunk] = own
        return scores, None, None

    def _packed(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int, *, isolated: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Rows in one forward pass: log-probabilities and entropies of their completions, (B, C), 0 where masked; no
        entropies of a reference.

        Args:
            model: The policy's, its reference, or a function that calls one.
            ids, mask: (B, P + C).
            width: C.
            isolated: `False`: every token sees all before it in the row, other candidates, too.
        """
        packed = pack(ids, mask, width)
        own = self._own()
        models = [own, model] if isinstance(model, nn.Module) else [own]
        configs = chain.from_iterable(self._team.module_cache.of(each, configs_of) for each in models)
        with attending(configs), self._accelerator.autocast():
            outputs = model(
                input_ids=packed.ids,
                attention_mask=torch.ones_like(packed.ids),
                position_ids=packed.positions,
                shift_labels=packed.labels,
                shared_prefix=packed.layout if isolated else packed.layout.as_single_sequence(),
                fused_lm_head=True,
            )
        entropies = None if outputs.entropy is None else packed.of_completions(outputs.entropy)
        return packed.of_completions(outputs.log_probs), entropies


PROBE_LENGTH = 6
"""Tokens of the longest completion of `probe_batch`."""


def probe_batch(vocabulary: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Five sequences with two prompts of eight tokens, and their mask: (5, 8 + PROBE_LENGTH) each."""
    lengths = torch.tensor([6, 3, 1, 5, 4], device=device)
    prompt_of = torch.tensor([0, 1, 0, 1, 0], device=device)
    prompts = torch.arange(16, device=device).view(2, 8)[prompt_of]
    completions = 16 + torch.arange(5 * PROBE_LENGTH, device=device).view(5, PROBE_LENGTH)
    ids = (torch.cat([prompts, completions], dim=1) * 7919 + 13) % vocabulary  # any that differ
    seen = torch.arange(PROBE_LENGTH, device=device) < lengths[:, None]
    return ids, torch.cat([torch.ones_like(prompts), seen.to(prompts.dtype)], dim=1)
