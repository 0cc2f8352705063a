"""The parts of a trainer, made once TRL's constructor has loaded the models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from accelerate import Accelerator
from peft import PeftConfig
from pettingzoo import AECEnv
from transformers import PreTrainedModel

from pettingllms_trl.checkpoints import descriptions, recorder
from pettingllms_trl.checkpoints.configuration import ARGUMENTS, RunConfiguration
from pettingllms_trl.checkpoints.publishing import Publisher
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.credit import name_of
from pettingllms_trl.engines.factory import EngineSet, kind_of, recorded_fields
from pettingllms_trl.engines.kinds import PromptCodec, setting
from pettingllms_trl.engines.synced_engines import SyncedEngines
from pettingllms_trl.engines.transformers import LocalSampler, context_length
from pettingllms_trl.imitation.rounds import Rounds
from pettingllms_trl.pixels import ImageInputs, PixelCache
from pettingllms_trl.policies.codecs import CANNOT_SEE, PolicyCodec
from pettingllms_trl.policies.references import MovingReferences
from pettingllms_trl.policies.routing import Routing
from pettingllms_trl.policies.team import Team
from pettingllms_trl.processes.distributed import gathered, is_deepspeed, is_fsdp, scoring, shards_weights
from pettingllms_trl.records import Stateful
from pettingllms_trl.role_sampling import SamplingOverrides
from pettingllms_trl.rollout.env_checks import agents_with_images, agents_with_tools
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT
from pettingllms_trl.rollout.prompts import ExtendPrompt, agents_with_history
from pettingllms_trl.trainer.dataloading import GenerationPlan, RoundPlan
from pettingllms_trl.trainer.setup import Setup
from pettingllms_trl.update.schedule import rate_factors
from pettingllms_trl.update.token_budget import TokenBudget


def check_tools(team: Team, codecs: Mapping[str, PolicyCodec], envs: Mapping[str, Sequence[AECEnv]]) -> None:
    """Raise `ValueError` if a policy cannot be given the tools that one of its agents observes."""
    for agent, reads_calls in agents_with_tools(envs).items():
        policy = team.policies[team.routing.of_agent[agent]]
        if policy.api is not None:
            from pettingllms_trl.engines.api import check_tools as check_tools_of_api  # only these pay for it

            check_tools_of_api(policy.api, agent)
        else:
            codecs[policy.name].check_tools(f"agent {agent!r}", reads_calls=reads_calls)


def image_inputs_of(team: Team) -> dict[str, ImageInputs]:
    """What makes the model's inputs of pictures, of each policy whose processor reads them."""
    cache, of_processor = PixelCache(), dict[int, ImageInputs]()
    reading = {name: each.processing_class for name, each in team.profiles.items() if each.reads_images}
    return {name: of_processor.setdefault(id(each), ImageInputs(each, cache)) for name, each in reading.items()}


def check_images(
    args: MultiAgentGRPOConfig,
    team: Team,
    images: Mapping[str, ImageInputs],
    envs: Mapping[str, Sequence[AECEnv]],
    accelerator: Accelerator,
) -> list[str]:
    """The policies with weights here whose agents observe images after the reset.

    Warns that prompts with images are not shared.
    """
    vision_policies, unshared = [], []
    pictured = [env for (env, *_) in envs.values() if env.metadata.get("view") in ("image", "both")]
    views = {agent: env.metadata["view"] for env in pictured for agent in env.agents}
    remembering = agents_with_history(args.history, list(team.routing.of_agent))
    for agent in agents_with_images(envs):
        if agent in remembering and agent in views:
            raise ValueError(
                f"view={views[agent]!r} shows agent {agent!r} a picture in every turn, and history='conversation' may "
                "only begin with one. Leave history out for this agent, or make the environment with view='text'."
            )
        policy = team.policies[team.routing.of_agent[agent]]
        if policy.api is not None:  # a function is given the images
            continue
        if policy.name not in images:
            raise ValueError(f"agent {agent!r} of policy {policy.name!r} observes images, and {CANNOT_SEE}")
        images[policy.name].check(f"agent {agent!r} of policy {policy.name!r}")
        if args.use_transformers_continuous_batching and not kind_of(args).has_weights:
            raise ValueError(
                f"agent {agent!r} observes images, which continuous batching does not take. Leave "
                "use_transformers_continuous_batching out."
            )
        if is_fsdp(accelerator) or is_deepspeed(accelerator):
            raise ValueError(
                f"agent {agent!r} observes images with weights, gradients or an optimizer that are spread over "
                "processes (FSDP, DeepSpeed), where one whose rows show none would leave the others waiting for its "
                "vision part. Use DDP: leave the configuration of accelerate out, or take ddp.yaml."
            )
        vision_policies.append(policy.name)
        if args.shared_prefix and policy.is_trained:
            unshared.append(agent)
    if unshared:
        warnings.warn(
            f"shared_prefix=True, but images are observed by {', '.join(unshared)}: where a policy's prompts have "
            "images, training reads all its prompts of that generation once for each candidate, as TRL does. Set "
            "shared_prefix=False to read every policy's so, without this warning.",
            stacklevel=2,
        )
    return vision_policies


def team_of(routing: Routing, args: MultiAgentGRPOConfig, peft_config: PeftConfig | None) -> Team:
    """The policies, before their models are loaded."""
    if peft_config is not None and peft_config.is_prompt_learning and routing.adapters:
        raise ValueError(
            f"peft_config is a {type(peft_config).__name__} with adapters by policy ({', '.join(routing.adapters)}), "
            "between which PEFT does not switch if they learn tokens; expected a LoraConfig. Give one, or set "
            "policies='shared'."
        )
    return Team(routing, args)


def check_heads(team: Team) -> None:
    """Raise `ValueError` for a head that the trainer's fused one cannot read, such as one that an adapter replaced."""
    for name in team.profiles:
        head = team.weights_of(name).get_output_embeddings()
        if not hasattr(head, "weight") or not hasattr(head, "bias"):
            raise ValueError(
                f"the head of policy {name!r} is a {type(head).__name__}, expected a linear layer, whose weight and "
                "bias log-probabilities are computed with. If it is tied to embeddings of which single tokens are "
                "trained, leave trainable_token_indices out, or use modules_to_save=['embed_tokens']."
            )


def trained_parts(team: Team) -> dict[str, tuple[int, int]]:
    """The numbers of trained parameters of each policy with vision: in its vision part, and elsewhere."""
    numbers = {}
    for policy in team.routing.trained:
        model = team.weights_of(policy.name)
        kind = type(getattr(model.config, "vision_config", None))
        towers = [m for m in model.modules() if isinstance(m, PreTrainedModel) and type(m.config) is kind]
        of_vision = {id(parameter) for tower in towers for parameter in tower.parameters()}
        if of_vision:
            trained = team.parameters_of(policy)
            number = sum(parameter.numel() for parameter in trained if id(parameter) in of_vision)
            numbers[policy.name] = number, sum(parameter.numel() for parameter in trained) - number
    return numbers


def bridges(
    args: MultiAgentGRPOConfig, team: Team, codecs: Mapping[str, PolicyCodec]
) -> dict[str, ExtendPrompt | None]:
    """What continues the conversations of the agents that remember theirs; `None`: an API does."""
    of_agent = team.routing.of_agent

    @cache
    def bridge(name: str, own: SamplingOverrides) -> ExtendPrompt:
        context = setting(args, kind_of(args).options.max_length) or context_length(team, name)
        reply = own.max_completion_length or args.max_completion_length or 0
        longest = None if context is None else context - reply
        return codecs[name].thinking(own.enable_thinking).bridge(name, longest=longest)

    def of(agent: str) -> ExtendPrompt | None:
        name = of_agent[agent]
        if name not in codecs:
            return None
        for own in (team.overrides[agent], team.evaluated[agent]):  # checks the chat template now
            bridge(name, own)
        return lambda *turn: bridge(name, team.overrides_of(agent))(*turn)

    return {agent: of(agent) for agent in agents_with_history(args.history, list(of_agent))}


def engines_of(
    setup: Setup,
    team: Team,
    codecs: Mapping[str, PolicyCodec],
    accelerator: Accelerator,
    *,
    sample: LocalSampler,
    images: Mapping[str, ImageInputs],
    vision_policies: Collection[str],
    wrapped: Callable[[], Any],
) -> SyncedEngines:
    """What turns messages into replies.

    Args:
        images: What makes the inputs of pictures, of each policy that reads them.
        vision_policies: Policies whose agents are shown images.
        wrapped: Returns the trainer's model as accelerate has prepared it.
    """
    engines = EngineSet(
        setup.args,
        team.routing,
        team.model,
        in_memory=setup.in_memory,
        sample=sample,
        rollout=sample.prefixes,
        codecs={
            agent: _prompt_codec(codecs[name], partial(team.overrides_of, agent), images.get(name))
            for agent, name in team.routing.of_agent.items()
            if name in codecs
        },
    )
    return SyncedEngines(
        setup.args,
        team,
        engines,
        codecs,
        accelerator,
        images={name: images[name] for name in vision_policies},
        whole_weights=lambda: gathered(wrapped(), accelerator),
        scoring=lambda: scoring(wrapped(), accelerator),
        activate=sample.activate,
    )


def _prompt_codec(
    codec: PolicyCodec, overrides: Callable[[], SamplingOverrides], images: ImageInputs | None
) -> PromptCodec:
    """A policy's codec as engines take it, for an agent with these overrides."""
    return PromptCodec(
        tokenize=lambda prompt: codec.thinking(overrides().enable_thinking).encode([prompt])[0],
        decode=lambda ids: codec.decode([ids])[0],
        stop_token_ids=codec.stop_token_ids,
        overrides=overrides,
        images=images,
    )


def agents_of_programs(setup: Setup) -> list[str]:
    """The trained agents of programs, all of which must act. In other environments a role may act seldom by design."""
    of_programs = {
        agent for (env, *_) in setup.envs.values() if env.metadata.get("program") for agent in env.possible_agents
    }
    return [agent for agent in setup.routing.of_agent if agent in of_programs.difference(setup.routing.partners)]


def references_of(args: MultiAgentGRPOConfig, team: Team, accelerator: Accelerator) -> MovingReferences | None:
    """The references that follow their policies (`sync_ref_model`)."""
    if not args.sync_ref_model:
        return None
    if shards_weights(accelerator):
        raise ValueError(
            "sync_ref_model=True with weights that are spread over processes (FSDP, ZeRO-3), where a checkpoint "
            "could not hold the references. Use DDP or ZeRO-2, or leave it out."
        )
    own = {policy.name: team.profiles[policy.name].ref_model for policy in team.routing.trained}
    return MovingReferences(
        {name: accelerator.unwrap_model(ref) for name, ref in own.items() if isinstance(ref, torch.nn.Module)},
        team.weights_of,
        alpha=args.ref_model_mixup_alpha,
        saves=args.should_save,
    )


def ends_of(
    args: MultiAgentGRPOConfig, plan: GenerationPlan, dataset: Any, *, num_processes: int
) -> tuple[Rounds | None, TokenBudget, GenerationPlan]:
    """The rounds of an expert iteration, what ends the training, and the plan that goes by it."""
    if args.imitate is None:
        return None, TokenBudget(args.max_generated_tokens, micro_steps_per_generation=plan.micro_steps), plan
    num_rows = len(plan.sampler(dataset)) * args.num_train_epochs
    rounds = Rounds(args, num_rows=num_rows, num_processes=num_processes)
    return rounds, rounds, RoundPlan(args, num_processes=num_processes, rounds=rounds)


def publisher_of(setup: Setup, team: Team) -> Publisher:
    """What writes the card of a saved team."""
    return Publisher(
        team,
        setup.args,
        setup.envs,
        environment=setup.environment,
        credit=name_of(setup.credit),
        label=recorder.data_label(pool[0].metadata for pool in setup.envs.values()),
        histories=agents_with_history(setup.args.history, list(team.routing.of_agent)),
    )


def configuration_of(setup: Setup, team: Team, *, num_processes: int) -> RunConfiguration:
    """What decides the run, for its checkpoints."""
    args = setup.args
    of_states = {
        "optim": {"the optimizer": descriptions.plain(args.optim).removesuffix("_fused")}
    }  # which has the same state
    if isinstance(setup.credit, Stateful):
        of_states["credit"] = {"the credit with a state": descriptions.described(type(setup.credit))}
    settings: dict[str, Any] = {
        **{name: getattr(args, name) for name in (*ARGUMENTS, *recorded_fields())},
        "num_processes": num_processes,
        "agents": list(team.routing.of_agent),
        "train_dataset": descriptions.described_rows(setup.dataset),
        "env": setup.environment,
        "credit": setup.credit,
        "filters": setup.filters,
        "curriculum": setup.curricula.curricula,
        "schedule": setup.schedule,
        "reward_funcs": setup.rewards.by_name,
    }
    makers = setup.make_env if isinstance(setup.make_env, Mapping) else {DEFAULT_ENVIRONMENT: setup.make_env}
    for name, pool in setup.envs.items():
        declared = descriptions.described_environment(makers[name], pool[0])
        settings |= {f"{what} of env {name}".strip(): value for what, value in declared.items()}
    for policy in team.routing.policies:
        own: dict[str, Any] = {"api": policy.api}
        if policy.api is None:
            template = str(team.profiles[policy.name].processing_class.chat_template)
            own = {"chat template": f"digest {descriptions.digest_of(template)}"}
            own |= {field: getattr(policy, field) for field in ("learning_rate", "max_grad_norm", "beta")}
            own |= descriptions.described_loading(team.weights_of(policy.name), args.model_init_kwargs)
            part = getattr(team.profiles[policy.name].processing_class, "image_processor", None)
            if size := getattr(part, "size", None):
                own["size of pictures"] = size if isinstance(size, int) else dict(size)
            adapter = descriptions.adapter_name(team, policy)
            if adapter is not None:
                own["lora_dropout"] = team.weights_of(policy.name).peft_config[adapter].to_dict().get("lora_dropout")
        settings |= {f"{what} of {policy.name}": value for what, value in own.items()}
    of_team = descriptions.described_team(team, has_factors=rate_factors(setup.schedule, int) is not None)
    return RunConfiguration(team={**of_team, **of_states}, settings=descriptions.plain(settings))
