"""`SyncedEngines`: the engines of a run, which sample every rollout with the weights that the trainer holds now.

With several processes each has engines of its own, and all open a rollout together: sharded weights are gathered for
the engines, and for the canary's forward pass. Within it nobody waits for another.

Before a rollout each engine is given what changed since it was last given weights, by version (`weight_store.py`), and
the canary compares its log-probabilities with the trainer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.engines.factory import EngineSet, kind_of
from pettingllms_trl.engines.weight_store import WeightsVersion
from pettingllms_trl.pixels import ImageInputs
from pettingllms_trl.policies.codecs import PolicyCodec
from pettingllms_trl.policies.team import Team
from pettingllms_trl.processes.distributed import is_fsdp
from pettingllms_trl.processes.on_all import entered_on_all
from pettingllms_trl.records import Engine, Prompt


if TYPE_CHECKING:
    from pettingllms_trl.engines.canary import Array, Canary, Own


CANARY_STEPS = 10
"""Optimizer steps from one comparison to the next; frozen policies are compared once, and after a load."""


class SyncedEngines:
    """The engines of a run, which sample each rollout with the weights that the trainer holds now.

    Args:
        images: What makes the inputs of pictures, of each policy whose agents are shown images.
        whole_weights: A context in which weights that are sharded over processes are gathered on each.
        scoring: A context in which all processes can run the same forward pass.
    """

    def __init__(
        self,
        args: MultiAgentGRPOConfig,
        team: Team,
        engines: EngineSet,
        codecs: Mapping[str, PolicyCodec],
        accelerator: Accelerator,
        *,
        images: Mapping[str, ImageInputs],
        whole_weights: Callable[[], AbstractContextManager[None]],
        scoring: Callable[[], AbstractContextManager[None]],
        activate: Callable[[str], None],
    ) -> None:
        self._args, self._team, self._accelerator = args, team, accelerator
        self._codecs, self._images, self._kind = codecs, images, kind_of(args)
        self._whole_weights, self._scoring, self._activate = whole_weights, scoring, activate
        self.engine_set = engines
        self.version = WeightsVersion()
        """Of the weights that the trainer holds."""
        self.canary = self._make_canary()

    @contextmanager
    def rollout(self, seed: str, *, step: int, report: Callable[[str, float], None]) -> Iterator[Engine]:
        """The engine for a rollout of this name, with the current weights; `report` takes metrics."""
        self.sync()
        whole = nullcontext() if self._kind.has_weights else self._whole_weights()
        of_agent, policies = self._team.routing.of_agent, self._team.policies
        engine = self.engine_set.engine
        engine.versions = {agent: step if policies[name].is_trained else 0 for agent, name in of_agent.items()}
        with whole, entered_on_all(engine.rollout(seed)):
            if self.canary is not None:
                for name, difference in self.canary.check(self.version, step).items():
                    report(f"canary/{name}/difference", difference)
            yield engine

    def sync(self) -> None:
        """Give the engines the weights that have changed since they were last given any, on all processes."""
        self.engine_set.sync_weights(self._team.model, self.version)

    def after_step(self) -> None:
        self.version = self.version.after_step()

    def after_load(self) -> None:
        self.version = self.version.after_load()

    def after_change_by_hand(self) -> None:
        """Any weights may have changed."""
        self.version = self.version.after_change_by_hand()

    def _make_canary(self) -> Canary | None:
        args = self._args
        if not self._kind.has_weights or args.canary is None:
            return None
        from pettingllms_trl.engines.canary import LARGEST_AT_START, Canary  # only engines with weights of their own

        is_here = "server" not in self._kind.places(self._team.routing, args)
        is_exact = is_here and not (args.bf16 or args.fp16)
        return Canary(
            self.engine_set,
            self._team.policies,
            text_of=self.scored_text,
            score=self.own_logprobs,
            action=args.canary,
            every=CANARY_STEPS,
            largest_at_start=LARGEST_AT_START["float32" if is_exact else "other"],
        )

    def scored_text(self, name: str) -> Prompt:
        """The text that the canary compares a policy by, after a picture if its agents are shown some."""
        from pettingllms_trl.engines.canary import MAX_TOKENS, TEXT, picture

        prompt, longest = Prompt([{"role": "user", "content": TEXT}]), MAX_TOKENS
        if name in self._images:
            image = picture()
            prompt = Prompt([{"role": "user", "content": [image, TEXT]}], images=(image,))
            longest += sum(self._images[name].num_tokens(prompt.images))
        return replace(prompt, ids=tuple(self._codecs[name].encode([prompt])[0][:longest]))

    @torch.no_grad()
    def own_logprobs(self, name: str, text: Prompt) -> Own:
        """A policy's log-probabilities of a text by the weights that the trainer holds, at temperature 1.

        With sharded weights a forward pass gathers them layer by layer, on all processes.
        """
        from pettingllms_trl.engines.canary import Own

        team, args = self._team, self._args
        policy, model = team.policies[name], team.model
        tokens = torch.tensor([text.ids], device=self._accelerator.device)
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if text.images:
            inputs |= self._images[name].of_batch(tokens, [text.images], width=0)
            del inputs["num_images"]  # TRL's, for its splits of batches
        with self._scoring(), team.in_eval_mode(), nullcontext() if policy.is_trained else team.as_frozen(policy):
            self._activate(name)
            with self._accelerator.autocast():
                working = _scores(model(**inputs).logits, tokens)
            is_mixed = args.bf16 or args.fp16
            # FSDP rounds in any pass, with or without autocasting.
            if (is_mixed and is_fsdp(self._accelerator)) or any(
                p.dtype != torch.float32 for p in team.weights_of(name).parameters()
            ):
                return Own(working, None)
            if not is_mixed:
                return Own(working, working)
            # accelerate puts autocasting into `forward`, and keeps the one without.
            forward = model.__dict__.get("_original_forward", model)
            return Own(working, _scores(forward(**inputs).logits, tokens))


def _scores(logits: torch.Tensor, tokens: torch.Tensor) -> Array:
    """(1, T + 1, V) logits and (1, T + 1) token ids to (T,) log-probabilities of all tokens but the first."""
    logprobs = logits[0, :-1].float().log_softmax(-1).gather(-1, tokens[0, 1:, None])
    scores: Array = logprobs[:, 0].double().cpu().numpy()
    return scores
