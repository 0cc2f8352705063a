"""`Team`: owns the weights of all policies of a run, and routes forward passes to one of them.

| what                            | how                                                                              |
|---------------------------------|----------------------------------------------------------------------------------|
| one Trainer, one optimizer      | a `PeftModel` with adapters, or a `MultiPolicyModel` of full models              |
| tokenizer, special tokens, beta | attributes of `GRPOTrainer`, set when a policy becomes active (`profiles.py`)    |
| temperature                     | the same for a role's sampling and for the loss's logits (`sampling.py`)         |
| KL reference                    | the base for a new adapter, a frozen copy of the weights for other policies      |
| learning rate, clipping         | one for each policy (`optim.py`)                                                 |
| folder                          | `<dir>/<policy>/`, which `from_pretrained` loads alone, with its tokenizer       |

With one model for all agents (`policies="shared"`) all of this is TRL's own, and its weights are at the root.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, set_seed
from peft import PeftConfig, PeftModel
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin
from transformers.conversion_mapping import get_model_conversion_mapping
from trl.models.utils import prepare_deepspeed, prepare_fsdp
from trl.trainer.utils import add_fused_lm_head, disable_dropout_in_model

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies import adapters, profiles, sampling, weights
from pettingllms_trl.policies.multi_model import MultiPolicyModel
from pettingllms_trl.policies.profiles import PolicyProfile
from pettingllms_trl.policies.references import check_moving
from pettingllms_trl.policies.routing import BASE, Policy, Routing
from pettingllms_trl.policies.weights import load_model, load_tokenizer, source_of
from pettingllms_trl.role_sampling import SamplingOverrides, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class ForTRL:
    """Arguments for TRL's constructor.

    Args:
        hidden: Fields of the configuration that TRL must not see, with the values that it sees instead.
    """

    model: Any
    processing_class: Any
    peft_config: PeftConfig | None
    quantization_config: Any
    hidden: Mapping[str, Any] = field(default_factory=dict)


class Trainer(Protocol):
    """The trainer of TRL whose model the team is."""

    model: Any
    """May be wrapped by accelerate, and replaced when training begins."""
    accelerator: Accelerator


class Team:
    """The policies of a run and their weights.

    It is created before TRL's trainer: `prepare` returns the arguments of TRL's constructor, and `attach` takes the
    trainer that TRL has made.
    """

    def __init__(self, routing: Routing, args: MultiAgentGRPOConfig) -> None:
        self.routing = routing
        self.policies: dict[str, Policy] = {policy.name: policy for policy in routing.policies}
        self.is_plain = not (routing.adapters or routing.full)
        """Whether one model plays all agents."""
        self.overrides = sampling.of_agents(parse(args.role_sampling), list(routing.of_agent))
        """Each agent's sampling overrides, now: of training, or within `as_evaluated` of evaluations."""
        evaluated = sampling.of_agents(
            parse(args.role_sampling_eval, "role_sampling_eval"), list(routing.of_agent), option="role_sampling_eval"
        )
        self.evaluated = {agent: own.over(self.overrides[agent]) for agent, own in evaluated.items()}
        """Each agent's sampling overrides of evaluations."""
        self.temperatures = sampling.temperatures(self.overrides, routing, args.temperature)
        self.profiles: Mapping[str, PolicyProfile] = {}
        """The profile of each policy with weights here."""
        self.active = ""
        """Name of the policy that forward passes go to."""
        self._args = args
        self._betas = {policy.name: args.beta if policy.beta is None else policy.beta for policy in routing.trained}
        self._tokenizer_from: Callable[[str], PreTrainedTokenizerBase]
        self._kept: Mapping[str, weights.Reference] = {}
        self._heads: Mapping[float, Callable[..., Any]] = {}
        self._trainer: Trainer

    # ---- Before and after TRL's constructor -----------------------------------------------------------------------

    def prepare(
        self,
        model: str | PreTrainedModel | PeftModel | None,
        *,
        processing_class: PreTrainedTokenizerBase | None,
        peft_config: PeftConfig | None,
        quantization_config: Any,
    ) -> ForTRL:
        """Load the models that TRL does not load, and assemble adapters and models.

        The arguments are those of [`MultiAgentGRPOTrainer`].
        """
        routing, args = self.routing, self._args
        _check_settings(routing, args, processing_class)
        self._source = model if isinstance(model, str) else None
        with_reference = [name for name, beta in self._betas.items() if beta]
        weights.check(routing, model, peft_config, quantization_config, with_reference)
        if args.sync_ref_model:
            check_moving(routing, args.beta, has_adapter=peft_config is not None or isinstance(model, PeftModel))
        self._tokenizer_from = cache(partial(load_tokenizer, args, model))
        if routing.full and not routing.uses_model:
            processing_class = profiles.tokenizer_of(routing.full[0], None, self._tokenizer_from)
        elif routing.full and processing_class is None:
            processing_class = self._tokenizer_from(source_of(model))
        # TRL makes one reference, from the model's path or of the adapter "default": right for a plain model alone.
        hidden: dict[str, Any] = {
            "beta": self._betas.get(BASE, 0.0) if self.is_plain else 0.0,
            "sync_ref_model": False,
        }
        if self.is_plain:
            hidden["temperature"] = self.temperatures[BASE]
            if isinstance(model, PeftModel) and self._betas.get(BASE) is not None:
                hidden["beta"] = 0.0  # TRL would copy the adapter "default", active or not
                adapters.make_ready(model)
                adapter = adapters.train_active(model)
                if with_reference:
                    with adapters.unchanged(model):
                        self._kept = {BASE: adapters.keep_reference(model, adapter)}
        else:
            if any(isinstance(each, str) for each in (model, *(policy.model for policy in routing.full))):
                hidden["model_init_kwargs"] = None  # used here to load models; TRL would warn that it ignores them
            # Seeded before adapters are initialized, or equal seeds would differ (huggingface/trl#6688).
            set_seed(args.seed)
            assembled = weights.assemble(
                routing,
                model,
                peft_config=peft_config,
                load=partial(load_model, args, model, quantization_config, several=bool(routing.full)),
                with_reference=with_reference,
                share_references=not args.sync_ref_model,
            )
            model, self._kept = assembled.model, assembled.references
            peft_config = quantization_config = None
        return ForTRL(
            model=model,
            processing_class=processing_class,
            peft_config=peft_config,
            quantization_config=quantization_config,
            hidden=hidden,
        )

    def attach(self, trainer: Trainer, *, of_trl: PolicyProfile, generation_kwargs: dict[str, Any]) -> None:
        """Attach the team to the trainer that TRL has made.

        Args:
            of_trl: The profile that TRL derived from its model and tokenizer.
            generation_kwargs: TRL's arguments of `generate`.
        """
        self._trainer = trainer
        model = trainer.model
        if isinstance(model, MultiPolicyModel):
            # TRL has put a fused head on the container, which would use the first model's temperature for all.
            del model.forward
            for name, each in model.models.items():
                _fuse(each, self.temperatures.get(name) or self._args.temperature, "log_probs", "entropy")
        self._heads = self._make_heads()
        ready = self._make_references()
        self.profiles = {
            policy.name: self._profile_of(
                policy,
                of_trl,
                generation_kwargs,
                beta=self._betas.get(policy.name, 0.0),
                ref_model=ready.get(policy.name, of_trl.ref_model) if self.is_plain else ready.get(policy.name),
            )
            for policy in self.routing.policies
            if policy.api is None
        }
        kwargs = self._args.model_init_kwargs or {}
        for policy in self.routing.policies:
            source = self._source if policy.model is None else policy.model
            if isinstance(source, str) and policy.api is None:  # read where the model is loaded again
                revision = kwargs.get("revision") if source == self._source else None
                commit = weights.commit_of(source, revision, kwargs.get("cache_dir"))
                self.weights_of(policy.name).config._commit_hash = commit

    def _profile_of(
        self, policy: Policy, of_trl: PolicyProfile, generation_kwargs: dict[str, Any], **of_reference: Any
    ) -> PolicyProfile:
        processing_class = profiles.tokenizer_of(policy, of_trl.processing_class, self._tokenizer_from)
        reads_images = isinstance(processing_class, ProcessorMixin)
        if processing_class is of_trl.processing_class and not isinstance(self.wrapped, MultiPolicyModel):
            # Derived from this very model and tokenizer.
            return replace(of_trl, reads_images=reads_images, **of_reference)
        profiles.check_chat_template(processing_class)
        tokenizer = processing_class.tokenizer if reads_images else processing_class
        model = weights.weights_of(self.wrapped, policy)
        eos_token_ids = profiles.eos_token_ids(model, tokenizer)
        if policy.tokenizer is None or policy.adapter is None:  # an adapter's own is not its base's
            profiles.set_special_tokens(model, tokenizer)
        suppressed = [model.config.image_token_id] if reads_images else []  # as TRL for its one model
        coefficient, enabled = profiles.router_loss(model, self._args.router_aux_loss_coef)
        return PolicyProfile(
            processing_class=processing_class,
            tokenizer=tokenizer,
            eos_token_ids=eos_token_ids,
            generation_config=profiles.generation_config(
                generation_kwargs, self._args.generation_kwargs, tokenizer, eos_token_ids, suppressed
            ),
            reads_images=reads_images,
            router_aux_loss_coef=coefficient,
            aux_loss_enabled=enabled,
            **of_reference,
        )

    @property
    def is_loaded_by_trl(self) -> bool:
        """Whether transformers' trainer can read a checkpoint: one model plays all agents, whose parameters have
        the same names in files. Others, as of a whole model with vision, it does not find, and leaves as they are."""
        is_whole = isinstance(self.model, PreTrainedModel)
        is_renamed = is_whole and bool(get_model_conversion_mapping(self.model, add_legacy=False))
        return self.is_plain and not is_renamed

    # ---- One policy at a time -------------------------------------------------------------------------------------

    @property
    def wrapped(self) -> Any:
        """The trainer's model, which accelerate may have wrapped."""
        return self._trainer.model

    @property
    def model(self) -> weights.Model:
        """The trainer's model without accelerate's wrappers. Unwrapping traverses all modules, so it is avoided."""
        model = self._trainer.model
        is_bare = isinstance(model, PreTrainedModel | PeftModel)
        return model if is_bare else self._trainer.accelerator.unwrap_model(model)

    def activate(self, name: str) -> PolicyProfile:
        """Route forward passes to this policy from now on. Returns its profile."""
        self.active = name
        model, policy = self.model, self.policies[name]
        if isinstance(model, MultiPolicyModel):
            model.active = BASE if policy.model is None else policy.name
        if policy.adapter is not None:
            own = weights.weights_of(model, policy)
            adapters.activate(own, policy.adapter, self.routing.trained_adapters)
            if self._heads:
                own.get_base_model().forward = self._heads[self.temperatures[name]]
        return self.profiles[name]

    def weights_of(self, name: str) -> weights.Model:
        """The model of a policy; for an adapter, the model that carries it."""
        return weights.weights_of(self.model, self.policies[name])

    def parameters_of(self, policy: Policy) -> list[nn.Parameter]:
        return weights.parameters_of(self.model, policy)

    @contextmanager
    def in_eval_mode(self) -> Iterator[None]:
        """Temporarily put the trainer's model into evaluation mode, without dropout."""
        wrapped = self.wrapped
        training = wrapped.training
        wrapped.eval()
        try:
            yield
        finally:
            wrapped.train(training)

    def overrides_of(self, agent: str) -> SamplingOverrides:
        """An agent's sampling overrides, now."""
        return self.overrides[agent]

    @contextmanager
    def as_evaluated(self) -> Iterator[None]:
        """Temporarily sample as `role_sampling_eval` says."""
        in_training, self.overrides = self.overrides, self.evaluated
        try:
            yield
        finally:
            self.overrides = in_training

    @contextmanager
    def as_frozen(self, policy: Policy) -> Iterator[None]:
        """Play a frozen policy: without dropout and, if it is the base, without the adapters of others."""
        with self.in_eval_mode():
            if policy.is_base and self.routing.adapters:
                with adapters.acting_as(self.weights_of(policy.name), None, self.routing.trained_adapters):
                    yield
            else:
                yield

    def check_start(self, *, is_sharded: bool) -> None:
        """Validate what each policy starts from and what is trained; the policy that is active may be another then.

        Args:
            is_sharded: The weights are, or will be when training begins. Nothing is compared then.

        Raises:
            ValueError: A policy has nothing to train, its KL divergence would not begin at 0, or a new adapter does
                not start from the base.
        """
        if is_sharded or adapters.is_sharded(self.wrapped):
            self._trainer.accelerator.print("Weights are sharded: what policies start from is not compared.")
            return
        adapters.check_trained(self.routing.trained, self.parameters_of)
        with self.in_eval_mode():
            for policy in self.routing.trained:
                self._check_start_of(policy)

    def _check_start_of(self, policy: Policy) -> None:
        reference, own = self.activate(policy.name).ref_model, self.weights_of(policy.name)
        accelerator, vocabulary = self._trainer.accelerator, own.config.get_text_config().vocab_size
        score = partial(adapters.scores, vocabulary=vocabulary, device=accelerator.device)
        if isinstance(own, PeftModel):
            base = partial(self._forward_as, policy.name, None)
            adapters.check_layers(own, partial(score, base))
            reference = reference or base  # as TRL has it, of an adapter of its own making
        elif not self.is_plain or accelerator.distributed_type == DistributedType.DEEPSPEED:
            return  # a copy, or prepared otherwise
        if reference is None or self._betas[policy.name] == 0.0:
            return
        with nullcontext() if isinstance(own, PeftModel) else accelerator.autocast():  # as the reference is
            start, expected = score(self.wrapped), score(reference)
        is_exact = all(p.dtype == torch.float32 for p in own.parameters())
        adapters.check_equal(start, expected, policy=policy.name, is_exact=is_exact)

    # ---- References -----------------------------------------------------------------------------------------------

    def keeps_start_of(self, policy: Policy) -> bool:
        """Whether a policy's KL divergence is to the weights that it started from, all through the run."""
        return bool(self._betas.get(policy.name)) and not self._args.sync_ref_model

    def reference_adapter_of(self, policy: Policy) -> str | None:
        """The name of the frozen copy of an adapter that was given; `None`: its reference is the base."""
        kept = self._kept.get(policy.name)
        return kept if isinstance(kept, str) else None

    def take_over_reference(self) -> None:
        """Make a loaded adapter `ref` the reference of the one policy: TRL calls it so in its checkpoints."""
        kept, model = self._kept.get(BASE), self.model
        if isinstance(kept, str) and isinstance(model, PeftModel) and "ref" in model.peft_config:
            adapters.copy_adapter(model, "ref", kept)
            model.delete_adapter("ref")

    def _make_references(self) -> dict[str, Callable[..., Any]]:
        """The reference model of each policy's KL divergence, as TRL calls it."""
        ready: dict[tuple[int, float], Any] = {}
        taken: set[int] = set()
        references: dict[str, Callable[..., Any]] = {}
        for name, reference in self._kept.items():
            if not isinstance(reference, PreTrainedModel):
                references[name] = partial(self._forward_as, name, reference)
                continue
            key = (id(reference), self.temperatures[name])
            if key not in ready:  # a reference may be shared by policies with different temperatures
                own = copy.deepcopy(reference) if id(reference) in taken else reference
                ready[key] = self._make_ready(own, self.temperatures[name])
                taken.add(id(reference))
            references[name] = ready[key]
        return references

    def _make_ready(self, reference: PreTrainedModel, temperature: float) -> Any:
        """Prepare the copy of a full model as TRL's constructor prepares its reference."""
        if self._args.disable_dropout:
            disable_dropout_in_model(reference)
        _fuse(reference, temperature, "log_probs")
        if self._trainer.accelerator.distributed_type == DistributedType.DEEPSPEED:
            return prepare_deepspeed(reference, self._trainer.accelerator)
        if self._trainer.accelerator.distributed_type == DistributedType.FSDP:
            return prepare_fsdp(reference, self._trainer.accelerator)
        return self._trainer.accelerator.prepare_model(reference, evaluation_mode=True)

    def _forward_as(self, name: str, adapter: str | None, **inputs: Any) -> Any:
        """A forward pass of an adapter's reference: another adapter, or the base without any."""
        own = self.weights_of(name)
        with adapters.acting_as(own, adapter, self.routing.trained_adapters or own.active_adapters):
            return self.wrapped(**inputs)

    def _make_heads(self) -> dict[float, Callable[..., Any]]:
        """The forward method of the model that adapters share, by sampling temperature; empty if TRL's one will do."""
        standing = [policy for policy in self.routing.policies if policy.adapter is not None]
        temperatures = {self.temperatures[policy.name] for policy in standing}
        if temperatures <= {self._args.temperature}:
            return {}
        base = weights.weights_of(self.wrapped, standing[0]).get_base_model()
        heads = {}
        for temperature in sorted(temperatures):  # each wraps the previous one, which it does not call
            add_fused_lm_head(
                base,
                temperature=temperature,
                cast_lm_head_to_fp32=self._args.cast_lm_head_to_fp32,
                outputs=("log_probs", "entropy"),
            )
            heads[temperature] = base.forward
        return heads


def _fuse(model: Any, temperature: float, *outputs: str) -> None:
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    add_fused_lm_head(base, temperature=temperature, outputs=outputs)


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
