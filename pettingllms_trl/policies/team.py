"""`Layouts`: a `GRPOTrainer` that trains the weights of several policies, each with settings of its own.

| what                            | how                                                                            |
|---------------------------------|--------------------------------------------------------------------------------|
| one Trainer, one optimizer      | a `PeftModel` with adapters, or a `TeamModel` of full models (`weights.py`)    |
| tokenizer, special tokens, beta | attributes of `GRPOTrainer`, set when a policy becomes active (`voices.py`)    |
| temperature                     | of a role's sampling, and of the loss's logits with it (`sampling.py`)         |
| KL reference                    | of a fresh adapter the base, of any other policy a frozen copy of its weights  |
| learning rate, clipping, folder | each policy's own (`apart.py`)                                                 |

Where one model plays all (`policies="shared"`), all of this is TRL's own, and its weights are at the root.
`MultiAgentGRPOTrainer` says what is trained on; this class, which weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any, ClassVar

from accelerate.utils import set_seed
from peft import PeftConfig, PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.models.utils import prepare_deepspeed, prepare_fsdp
from trl.trainer.utils import add_fused_lm_head, disable_dropout_in_model

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.engines.prefill import noisy_modules, prompts_read_once
from pettingllms_trl.policies import profiles, sampling, weights
from pettingllms_trl.policies.adapters import Switch, acting_as
from pettingllms_trl.policies.loading import load_model, load_tokenizer, source_of
from pettingllms_trl.policies.multi_model import TeamModel
from pettingllms_trl.policies.optim import KeepsApart
from pettingllms_trl.policies.references import check_moving
from pettingllms_trl.policies.routing import BASE, Policy, Routing
from pettingllms_trl.policies.sampling import SamplingOverrides
from pettingllms_trl.policies.walks import Walks


class Layouts(KeepsApart):
    """See the head of this file.

    Args:
        model: As in [`MultiAgentGRPOTrainer`], as are the others.
        routing: Who is played by what.
        kwargs: The rest of `GRPOTrainer`'s.
    """

    _tag_names: ClassVar[list[str]]
    # Set by MultiAgentGRPOTrainer, and by the constructors of TRL and transformers.
    _environment_name: str
    _voices: dict[str, profiles.Voice]
    _active: str
    generation_kwargs: dict[str, Any]
    processing_class: Any
    ref_model: Any

    def __init__(
        self,
        model: str | PreTrainedModel | PeftModel | None,
        routing: Routing,
        *,
        args: MultiAgentGRPOConfig,
        processing_class: PreTrainedTokenizerBase | None,
        peft_config: PeftConfig | None,
        quantization_config: Any,
        **kwargs: Any,
    ) -> None:
        _check_settings(routing, args, processing_class)
        weights.check(routing, model, peft_config, quantization_config)
        check_moving(routing, args, has_adapter=peft_config is not None or isinstance(model, PeftModel))
        self.routing = routing
        self._walks = Walks()
        self._policies = {policy.name: policy for policy in routing.policies}
        self._is_plain = not (routing.adapters or routing.full)
        self._overrides = sampling.of_agents(sampling.parse(args.role_sampling), list(routing.of_agent))
        self._temperatures = sampling.temperatures(self._overrides, routing, args.temperature)
        betas = {policy.name: args.beta if policy.beta is None else policy.beta for policy in routing.trained}
        tokenizer_from = cache(partial(load_tokenizer, args, model))
        if routing.full and not routing.uses_model:
            processing_class = profiles.tokenizer_of(routing.full[0], None, tokenizer_from)
        elif routing.full and processing_class is None:
            processing_class = tokenizer_from(source_of(model))
        references: Mapping[str, weights.Reference] = {}
        # TRL makes one reference, from the model's path or of the adapter "default": right for a plain model alone.
        hidden: dict[str, Any] = {"beta": betas.get(BASE, 0.0) if self._is_plain else 0.0, "sync_ref_model": False}
        if self._is_plain:
            hidden["temperature"] = self._temperatures[BASE]
        if not self._is_plain:
            if any(isinstance(each, str) for each in (model, *(policy.model for policy in routing.full))):
                hidden["model_init_kwargs"] = None  # models are loaded with them here; TRL would say it ignores them
            # Seeded before adapters are drawn, or equal seeds start from different ones (huggingface/trl#6688).
            set_seed(args.seed)
            assembled = weights.assemble(
                routing,
                model,
                peft_config=peft_config,
                load=partial(load_model, args, model, quantization_config, several=bool(routing.full)),
                with_reference=[name for name, beta in betas.items() if beta],
                share_references=not args.sync_ref_model,
            )
            model, references = assembled.model, assembled.references
            peft_config = quantization_config = None
        with instead(args, **hidden):
            super().__init__(
                model=model,
                args=args,
                processing_class=processing_class,
                peft_config=peft_config,
                quantization_config=quantization_config,
                **kwargs,
            )
        if isinstance(self.model, TeamModel):
            # TRL has put a fused head on the container, which would scale every model's logits as the first one's.
            del self.model.forward
            for name, each in self.model.models.items():
                self._fuse(each, self._temperatures.get(name) or self.temperature, "log_probs", "entropy")
        self._heads = self._make_heads()
        ready = self._make_references(references)
        self._voices = {
            policy.name: self._voice_of(
                policy,
                profiles.tokenizer_of(policy, self.processing_class, tokenizer_from),
                beta=betas.get(policy.name, 0.0),
                ref_model=self.ref_model if self._is_plain else ready.get(policy.name),
            )
            for policy in routing.policies
            if policy.api is None
        }
        self._activate(next(iter(self._voices)))

    # ---- One policy at a time -------------------------------------------------------------------------------------

    def _activate(self, name: str) -> None:
        """Forward passes go to this policy from now on, and prompts are written and read as its model wants them."""
        self._active = name
        model, policy = self._bare_model, self._policies[name]
        weights.route_to(model, policy, lambda carrier: self._walks.of(carrier, self._switch_of))
        if self._heads and policy.adapter is not None:
            weights.weights_of(model, policy).get_base_model().forward = self._heads[self._temperatures[name]]
        self._speak_as(name)

    def _switch_of(self, model: PeftModel) -> Switch:
        return Switch(model, self.routing.trained_adapters)

    def _speak_as(self, name: str) -> None:
        """Of `_activate` all but the weights: what TRL reads from attributes."""
        voice = self._voices[name]
        self.processing_class, self._tokenizer = voice.processing_class, voice.tokenizer
        self.eos_token_ids, self.generation_config = voice.eos_token_ids, voice.generation_config
        self.beta, self.ref_model = voice.beta, voice.ref_model
        self.router_aux_loss_coef, self.aux_loss_enabled = voice.router_aux_loss_coef, voice.aux_loss_enabled

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        # accelerate gives training's precision to the forward of the outermost model, which an inner model's
        # `generate` never calls: it would sample from another distribution than is trained.
        # And ZeRO-3's weights are gathered once for all of a rollout (`processes.gathered`).
        own = weights.weights_of(self._bare_model, self._policies[self._active])
        reads_once = (
            self.args.shared_prefix
            and not self.use_transformers_continuous_batching
            and not any(module.training for module in self._walks.of(own, noisy_modules))
        )
        with (
            self.accelerator.autocast() if isinstance(self.model, TeamModel) else nullcontext(),
            instead(self.args, ds3_gather_for_generation=False),
            prompts_read_once(self._bare_model) if reads_once else nullcontext(),
        ):
            training = self.model.training
            generated = super()._generate_single_turn(*args, **kwargs)
        if self.use_transformers_continuous_batching:  # after which TRL trains, whatever was before
            self.model.train(training)
        return generated

    @contextmanager
    def _sampling_as(self, override: SamplingOverrides) -> Iterator[None]:
        """A role's own settings of `generate`, in the place of its policy's."""
        before, given = (self.generation_config, self.generation_kwargs), override.given()
        names = {"max_completion_length": "max_new_tokens"}
        own = {names.get(name, name): value for name, value in given.items() if name != "stop"}
        self.generation_config = copy.deepcopy(self.generation_config)
        self.generation_config.update(**own)
        self.generation_kwargs = {**self.generation_kwargs, **own}
        model = self._bare_model
        # What follows a stop word is cut off in any case (`generation.py`); here rows end that need go no further.
        ends = override.stop is not None and not self.use_transformers_continuous_batching  # which does not look
        if ends:
            self.generation_config.stop_strings = list(override.stop or ())
            model.generate = partial(model.generate, tokenizer=self._tokenizer)  # TRL does not give it
        try:
            yield
        finally:
            self.generation_config, self.generation_kwargs = before
            if ends:
                del model.generate

    @contextmanager
    def _as_it_is(self, policy: Policy) -> Iterator[None]:
        """A frozen partner plays without dropout; one that is the base, without the adapters of others."""
        training = self.model.training
        self.model.eval()
        try:
            if policy.is_base and self.routing.adapters:
                base = weights.weights_of(self._bare_model, policy)
                with acting_as(base, None, self.routing.trained_adapters):
                    yield
            else:
                yield
        finally:
            self.model.train(training)

    def _voice_of(self, policy: Policy, tokenizer: Any, **of_reference: Any) -> profiles.Voice:
        if tokenizer is self.processing_class and not isinstance(self.model, TeamModel):
            # TRL's constructor derived it from this very model and tokenizer.
            return profiles.Voice(
                processing_class=tokenizer,
                tokenizer=self._tokenizer,
                eos_token_ids=self.eos_token_ids,
                generation_config=self.generation_config,
                router_aux_loss_coef=self.router_aux_loss_coef,
                aux_loss_enabled=self.aux_loss_enabled,
                **of_reference,
            )
        profiles.check_chat_template(tokenizer)
        model = weights.weights_of(self.model, policy)
        eos_token_ids = profiles.eos_token_ids(model, tokenizer)
        if policy.tokenizer is None or policy.adapter is None:  # an adapter's own is not its base's
            profiles.agree(model, tokenizer)
        coefficient, enabled = profiles.router_loss(model, self.args.router_aux_loss_coef)
        return profiles.Voice(
            processing_class=tokenizer,
            tokenizer=tokenizer,
            eos_token_ids=eos_token_ids,
            generation_config=profiles.generation_config(self.args, self.generation_kwargs, tokenizer, eos_token_ids),
            router_aux_loss_coef=coefficient,
            aux_loss_enabled=enabled,
            **of_reference,
        )

    # ---- References -----------------------------------------------------------------------------------------------

    def _make_references(self, kept: Mapping[str, weights.Reference]) -> dict[str, Callable[..., Any]]:
        """What TRL takes each policy's KL divergence to: a function of a batch that it calls as a model."""
        ready: dict[tuple[int, float], Any] = {}
        taken: set[int] = set()
        references: dict[str, Callable[..., Any]] = {}
        for name, reference in kept.items():
            if not isinstance(reference, PreTrainedModel):
                references[name] = partial(self._forward_as, self._policies[name], reference)
                continue
            key = (id(reference), self._temperatures[name])
            if key not in ready:  # shared, but by policies of two temperatures
                own = copy.deepcopy(reference) if id(reference) in taken else reference
                ready[key] = self._make_ready(own, self._temperatures[name])
                taken.add(id(reference))
            references[name] = ready[key]
        return references

    def _make_ready(self, reference: PreTrainedModel, temperature: float) -> Any:
        """A copy of a full model, prepared as TRL's constructor does its reference."""
        if self.args.disable_dropout:
            disable_dropout_in_model(reference)
        self._fuse(reference, temperature, "log_probs")
        if self.is_deepspeed_enabled:
            return prepare_deepspeed(reference, self.accelerator)
        if self.is_fsdp_enabled:
            return prepare_fsdp(reference, self.accelerator)
        return self.accelerator.prepare_model(reference, evaluation_mode=True)

    def _forward_as(self, policy: Policy, adapter: str | None, **inputs: Any) -> Any:
        """A forward pass of an adapter's reference: another adapter, or the base without any."""
        model = weights.weights_of(self._bare_model, policy)
        with acting_as(model, adapter, self.routing.trained_adapters):
            return self.model(**inputs)

    def _make_heads(self) -> dict[float, Callable[..., Any]]:
        """The forward of the model that adapters share, for each temperature that they sample at; none where it is
        everywhere that of the configuration, for which TRL has made it."""
        standing = [policy for policy in self.routing.policies if policy.adapter is not None]
        temperatures = {self._temperatures[policy.name] for policy in standing}
        if temperatures <= {self.args.temperature}:
            return {}
        base = weights.weights_of(self.model, standing[0]).get_base_model()
        heads = {}
        for temperature in sorted(temperatures):  # each on top of those before, which it leaves unasked
            add_fused_lm_head(
                base,
                temperature=temperature,
                cast_lm_head_to_fp32=self.args.cast_lm_head_to_fp32,
                outputs=("log_probs", "entropy"),
            )
            heads[temperature] = base.forward
        return heads

    def _fuse(self, model: Any, temperature: float, *outputs: str) -> None:
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        add_fused_lm_head(base, temperature=temperature, outputs=outputs)


@contextmanager
def instead(args: MultiAgentGRPOConfig, **values: Any) -> Iterator[None]:
    """Other arguments for a while: to hide from TRL's constructor what is not left to it."""
    before = {name: getattr(args, name) for name in values}
    for name, value in values.items():
        setattr(args, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(args, name, value)


def _check_settings(routing: Routing, args: MultiAgentGRPOConfig, processing_class: Any) -> None:
    used = routing.uses_model or any(policy.tokenizer is processing_class for policy in routing.full)
    if processing_class is not None and not used:
        raise ValueError(
            "processing_class is the tokenizer of the trainer's model, but every policy has a model of its own. Give "
            "it to those it is for: Policy(model=..., tokenizer=...)."
        )
    for policy in routing.trained:
        if policy.max_grad_norm is not None and not args.max_grad_norm:
            raise ValueError(
                f"policy {policy.name!r} has max_grad_norm={policy.max_grad_norm}, but args.max_grad_norm is "
                f"{args.max_grad_norm}, which switches clipping off for all. Set args.max_grad_norm, too."
            )
    if routing.full and args.cast_lm_head_to_fp32:
        raise ValueError(
            "cast_lm_head_to_fp32=True and several models, expected one: TRL casts one head. Leave it False; to have "
            "heads in float32, load the models so (args.model_init_kwargs)."
        )
