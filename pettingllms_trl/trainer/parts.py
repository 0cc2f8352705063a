"""The parts of a trainer, made once TRL's constructor has loaded the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import set_seed
from pettingzoo import AECEnv

from pettingllms_trl.checkpoints import recorder
from pettingllms_trl.checkpoints.checkpointer import Checkpointer
from pettingllms_trl.checkpoints.configuration import ARGUMENTS, RunConfiguration
from pettingllms_trl.checkpoints.descriptions import (
    adapter_name,
    described,
    described_rows,
    described_team,
    digest_of,
    plain,
)
from pettingllms_trl.checkpoints.publishing import Publisher
from pettingllms_trl.engines import api
from pettingllms_trl.engines.factory import EngineSet
from pettingllms_trl.engines.synced_engines import SyncedEngines
from pettingllms_trl.engines.transformers import LocalSampler, context_length
from pettingllms_trl.policies.codecs import PolicyCodec
from pettingllms_trl.policies.references import MoveReferencesCallback, MovingReferences
from pettingllms_trl.processes.distributed import gathered, scoring
from pettingllms_trl.processes.row_sharing import row_sharing
from pettingllms_trl.records import Stateful
from pettingllms_trl.rollout.env_checks import agents_with_tools
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT
from pettingllms_trl.rollout.play import EnvironmentSource
from pettingllms_trl.rollout.prompts import Follow, agents_with_history
from pettingllms_trl.trainer.collector import RolloutCollector
from pettingllms_trl.trainer.dataloading import RowsPlayed, places
from pettingllms_trl.trainer.monitor import LearningMonitor, reply_limits, warn_above_progress_bar
from pettingllms_trl.trainer.reporting import GenerationReporter
from pettingllms_trl.trainer.rollout_times import RolloutTimes
from pettingllms_trl.trainer.setup import Setup
from pettingllms_trl.vllm_engines.params import PromptCodec


if TYPE_CHECKING:
    from pettingllms_trl.trainer.trainer import MultiAgentGRPOTrainer


def codecs_of(trainer: MultiAgentGRPOTrainer) -> dict[str, PolicyCodec]:
    """How messages become tokens and tokens text, for each policy with weights here."""
    return {
        name: PolicyCodec(
            profile,
            tokenize=trainer.encode_prompts,
            chat_template=trainer.chat_template,
            chat_template_kwargs=trainer.chat_template_kwargs,
        )
        for name, profile in trainer.team.profiles.items()
    }


def check_tools(trainer: MultiAgentGRPOTrainer, envs: Mapping[str, Sequence[AECEnv]]) -> None:
    """Raise `ValueError` if a policy cannot be given the tools that one of its agents observes."""
    for agent, reads_calls in agents_with_tools(envs).items():
        policy = trainer.team.policies[trainer.routing.of_agent[agent]]
        if policy.api is not None:
            api.check_tools(policy.api, agent)
        else:
            trainer.codecs[policy.name].check_tools(f"agent {agent!r}", reads_calls=reads_calls)


def bridges_of(trainer: MultiAgentGRPOTrainer) -> dict[str, Follow | None]:
    """What continues the conversations of the agents that remember theirs; `None`: an API does.

    Raises:
        ValueError: A chat template does not let conversations go on.
    """
    args, of_agent = trainer.args, trainer.routing.of_agent
    names = {agent: of_agent[agent] for agent in agents_with_history(args.history, list(of_agent))}
    bridges: dict[str, Follow | None] = {}
    for name in dict.fromkeys(names.values()):
        if name not in trainer.codecs:
            bridges[name] = None
            continue
        context = args.vllm_max_model_length or context_length(trainer.team, name)
        room = None if context is None else context - (args.max_completion_length or 0)
        bridges[name] = trainer.codecs[name].bridge(name, longest=args.max_conversation_length or room)
    return {agent: bridges[name] for agent, name in names.items()}


def engines_of(trainer: MultiAgentGRPOTrainer, model: Any) -> SyncedEngines:
    """What turns messages into replies.

    Args:
        trainer: With its team and codecs.
        model: As the user gave it.
    """
    args, routing, codecs = trainer.args, trainer.routing, trainer.codecs
    engines = EngineSet(
        args,
        routing,
        trainer.team.model,
        in_memory=[
            policy.name
            for policy in routing.policies
            if policy.api is None and not isinstance(model if policy.model is None else policy.model, str)
        ],
        sample=LocalSampler(trainer.team, codecs, activate=trainer.activate, generate=trainer.generate),
        codecs={agent: _prompt_codec(codecs[name]) for agent, name in routing.of_agent.items() if name in codecs},
    )
    if args.use_vllm:
        set_seed(args.seed, device_specific=True)  # vLLM has seeded the process again
        trainer.use_vllm = True  # from here on TRL corrects for the sampler, and leaves sampling to us
    return SyncedEngines(
        args,
        trainer.team,
        engines,
        codecs,
        trainer.accelerator,
        whole_weights=lambda: gathered(trainer.model_wrapped, trainer.accelerator),
        scoring=lambda: scoring(trainer.model_wrapped, trainer.accelerator),
        activate=trainer.activate,
    )


def _prompt_codec(codec: PolicyCodec) -> PromptCodec:
    """A policy's codec as vLLM's engines take it."""
    return PromptCodec(
        tokenize=lambda messages, tools: codec.encode([messages], [tools])[0],
        decode=lambda ids: codec.decode([ids])[0],
        stop_token_ids=codec.stop_token_ids,
    )


def collector_of(
    trainer: MultiAgentGRPOTrainer, setup: Setup, follow: Mapping[str, Follow | None]
) -> RolloutCollector:
    """What plays rows.

    Args:
        trainer: With its engines.
        setup: The user's arguments.
        follow: What continues conversations.
    """

    def rows_at(start: int, number: int) -> list[Any]:
        return [trainer.train_dataset[i] for i in places(trainer.epoch_sampler(), start, number)]

    return RolloutCollector(
        trainer.args,
        trainer.accelerator,
        source=EnvironmentSource(make_env=setup.make_env, pool=setup.envs, weigh=setup.weigh, follow=follow),
        sharing=row_sharing(trainer.engines.engine_set.tensor_parallel, is_seeded=trainer.args.use_vllm),
        routing=trainer.routing,
        follow=follow,
        sampling=trainer.sampling,
        rewards=setup.rewards,
        reward_context=lambda: {"trainer_state": trainer.state, "log_metric": trainer.report_reward_metric},
        filters=setup.filters,
        curricula=setup.curricula,
        rows_played=RowsPlayed(),
        rows_per_generation=trainer.rows_per_generation,
        rows_at=rows_at,
    )


def monitor_of(trainer: MultiAgentGRPOTrainer) -> LearningMonitor:
    """What warns of agents that cannot learn."""
    return LearningMonitor(
        reply_limits(
            trainer.routing.of_agent,
            trainer.team.profiles,
            trainer.team.overrides,
            max_length=trainer.args.max_completion_length,
            chat_template=trainer.chat_template,
            chat_template_kwargs=trainer.chat_template_kwargs,
        )
    )


def rollout_times_of(trainer: MultiAgentGRPOTrainer) -> RolloutTimes:
    """What warns of rollouts that take much longer than updates."""
    warn = warn_above_progress_bar if trainer.is_world_process_zero() else lambda message: None
    times = RolloutTimes(trainer.args, warn)
    trainer.add_callback(times)
    return times


def reporter_of(trainer: MultiAgentGRPOTrainer, setup: Setup) -> GenerationReporter:
    """What says how a generation went."""
    return GenerationReporter(
        trainer.args,
        trainer.team,
        setup.envs,
        credit=trainer.credit,
        collector=trainer.collector,
        monitor=trainer.monitor,
        environment=setup.environment,
        temperature=trainer.temperature,
        reward_names=setup.rewards.names,
        weights=setup.weigh,
        is_main=trainer.is_world_process_zero(),
    )


def references_of(trainer: MultiAgentGRPOTrainer) -> MovingReferences | None:
    """The references that follow their policies (`sync_ref_model`).

    Raises:
        ValueError: Weights are spread over processes.
    """
    if not trainer.args.sync_ref_model:
        return None
    plugin = trainer.accelerator.state.deepspeed_plugin
    if trainer.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3):
        raise ValueError(
            "sync_ref_model=True with weights that are spread over processes (FSDP, ZeRO-3), where a checkpoint "
            "could not hold the references. Use DDP or ZeRO-2, or leave it out."
        )
    own = {policy.name: trainer.team.profiles[policy.name].ref_model for policy in trainer.routing.trained}
    references = MovingReferences(
        {name: trainer.accelerator.unwrap_model(ref) for name, ref in own.items() if isinstance(ref, torch.nn.Module)},
        trainer.team.weights_of,
        alpha=trainer.args.ref_model_mixup_alpha,
        saves=trainer.args.should_save,
    )
    trainer.add_callback(MoveReferencesCallback(references))
    return references


def publisher_of(trainer: MultiAgentGRPOTrainer, setup: Setup) -> Publisher:
    """What writes the card of a saved team."""
    return Publisher(
        trainer.team,
        trainer.args,
        setup.envs,
        environment=setup.environment,
        label=recorder.data_label(pool[0].metadata for pool in setup.envs.values()),
        agents_with_history=agents_with_history(trainer.args.history, list(trainer.routing.of_agent)),
    )


def configuration_of(trainer: MultiAgentGRPOTrainer, setup: Setup) -> RunConfiguration:
    """What decides the run, for its checkpoints."""
    args, team = trainer.args, trainer.team
    of_states = {"optim": {"the optimizer": plain(args.optim).removesuffix("_fused")}}  # which has the same state
    if isinstance(setup.credit, Stateful):
        of_states["credit"] = {"the credit with a state": described(type(setup.credit))}
    settings: dict[str, Any] = {
        **{name: getattr(args, name) for name in ARGUMENTS},
        "num_processes": trainer.accelerator.num_processes,
        "agents": list(trainer.routing.of_agent),
        "train_dataset": described_rows(setup.dataset),
        "env": setup.environment,
        "credit": setup.credit,
        "filters": setup.filters,
        "curriculum": setup.curricula.curricula,
        "schedule": setup.schedule,
        "reward_funcs": setup.rewards.by_name,
    }
    makers = setup.make_env if isinstance(setup.make_env, Mapping) else {DEFAULT_ENVIRONMENT: setup.make_env}
    for name, pool in setup.envs.items():
        declared = pool[0].metadata.get("settings") or {"made by": makers[name]}
        settings |= {f"{what} of env {name}".strip(): value for what, value in declared.items()}
    for policy in trainer.routing.policies:
        own: dict[str, Any] = {"api": policy.api}
        if policy.api is None:
            template = str(team.profiles[policy.name].tokenizer.chat_template)
            own = {"chat template": f"digest {digest_of(template)}"}
            own |= {field: getattr(policy, field) for field in ("learning_rate", "max_grad_norm", "beta")}
            adapter = adapter_name(team, policy)
            if adapter is not None:
                own["lora_dropout"] = team.weights_of(policy.name).peft_config[adapter].to_dict().get("lora_dropout")
        settings |= {f"{what} of {policy.name}": value for what, value in own.items()}
    return RunConfiguration(team={**described_team(team), **of_states}, settings=plain(settings))


def checkpointer_of(trainer: MultiAgentGRPOTrainer, setup: Setup) -> Checkpointer:
    """What saves checkpoints, with the states of the parts that have one."""
    parts: dict[str, Any] = {
        "credit": trainer.credit,
        "curricula": trainer.collector.curricula,
        "rows": trainer.collector.rows_played,
        "guard": trainer.guard,
        "token_budget": trainer.token_budget,
        "monitor": trainer.monitor,
        "entropy": trainer.entropy,
        "references": trainer.references,
    }
    stateful = {name: part for name, part in parts.items() if isinstance(part, Stateful)}
    return Checkpointer(trainer.args, trainer.accelerator, stateful, configuration_of(trainer, setup))
