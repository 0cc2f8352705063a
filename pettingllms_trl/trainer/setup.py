"""`Setup`: the arguments of `MultiAgentGRPOTrainer`, validated before any model is loaded."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from pettingzoo import AECEnv

from pettingllms_envs.branching import ReplayError
from pettingllms_envs.branching.views import name_of
from pettingllms_trl import credit as credits
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.credit.delayed_rewards import check_delayed_roles, choose_credit, delayed_agents
from pettingllms_trl.credit.reward_functions import RewardFunctions
from pettingllms_trl.credit.reward_weights import RewardWeights, check_not_negative, declared_parts, weigher
from pettingllms_trl.credit.selection import check_resampling
from pettingllms_trl.engines.factory import check_served
from pettingllms_trl.policies.optim import check_rates
from pettingllms_trl.policies.profiles import check_chat_template
from pettingllms_trl.policies.routing import Policy, Routing, route
from pettingllms_trl.processes.distributed import check_processes
from pettingllms_trl.records import NEVER, role_of
from pettingllms_trl.rollout import env_checks
from pettingllms_trl.rollout.branch_probe import Branching
from pettingllms_trl.rollout.curriculum import Curricula, by_environment
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT, MakeEnv, unplayed_columns
from pettingllms_trl.rollout.prompts import agents_with_history
from pettingllms_trl.trainer.dataloading import check_num_rows, rows_left_out, several_rollouts, shifting_evaluation
from pettingllms_trl.trainer.dataset_checks import by_argument, check_reward_columns, check_seeds, read_columns
from pettingllms_trl.update.schedule import Alternate, Schedule, check_windows, learners, rate_factors


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is trained, on what, and how.

    Args:
        envs: One environment or more of each name, made and tried.
        in_memory: Policies whose model was given as an object, which may differ from what is loaded by its name.
        schedule: Which policies learn when; `None`: always all.
        dataset: That is trained on, or one row that stands for it where nothing is trained.
        notes: Lines to print: what was chosen for the user, what is left out.
        unplayed: Columns of the rows that are reward functions' alone, by the environment's name.
        branched: The agents at whose decisions a tree branches; `None`: those that learn.
    """

    args: MultiAgentGRPOConfig
    make_env: MakeEnv | Mapping[str, MakeEnv]
    envs: Mapping[str, list[AECEnv]]
    routing: Routing
    in_memory: Sequence[str]
    schedule: Schedule | None
    credit: credits.Credit
    filters: Sequence[credits.Filter]
    curricula: Curricula
    rewards: RewardFunctions
    weigh: RewardWeights | None
    dataset: Any
    trains: bool
    notes: Sequence[str]
    unplayed: Mapping[str, Collection[str]]
    branched: frozenset[str] | None

    @classmethod
    def of(
        cls,
        *,
        model: Any,
        env: Any,
        args: Any,
        train_dataset: Any,
        eval_dataset: Any,
        processing_class: Any,
        reward_funcs: Any,
        reward_processing_classes: Any,
        policies: Any,
        credit: Any,
        filters: Any,
        curriculum: Any,
        schedule: Any,
        optimizer: Any,
    ) -> Setup:
        make_env = env_checks.env_makers(env)
        args = _config(args, model)
        make_env = on_workers(make_env, args.env_workers)
        datasets = by_argument(train_dataset, eval_dataset)
        made = env_checks.make_envs(make_env)
        probes = list(made.values())
        args, is_default = _with_crash_reward(args, probes)
        parts = [*declared_parts(probes), *(["crash"] if args.crash_reward is not None else [])]
        rewards = RewardFunctions(reward_funcs, args.reward_weights, reward_processing_classes, parts=parts)
        agents = env_checks.agents_of({name: [env] for name, env in made.items()})
        routing = route(policies, agents, model=model, tokenizer=processing_class)
        learning = set(routing.of_agent) - set(routing.partners)
        args = _imitating(args, credit, filters, routing)
        delayed = [agent for agent in delayed_agents({name: [env] for name, env in made.items()}) if agent in learning]
        choice = choose_credit(credit, args, delayed if train_dataset is not None else [])
        args = args if args.sampling else _with(args, sampling=choice.sampling)
        envs = _checked(
            args,
            make_env,
            made,
            datasets,
            read_columns(rewards),
            trains=train_dataset is not None,
            is_default=is_default,
        )
        if args.process_index == 0:
            check_seeds(make_env, envs, datasets, args.seed)
        schedule = _schedule(schedule, args, routing.trained, optimizer)
        sampled = {
            "sampling": choice.sampling,
            "num_candidates": args.num_generations,
            "num_continuations": args.num_continuations,
        }
        scheme = credits.resolve(choice.credit, scale=args.scale_rewards, **sampled)
        if args.train_continuations and not credits.facts_of(scheme, choice.sampling).has_baseline:
            raise ValueError(
                f"train_continuations=True with credit={credits.name_of(scheme)!r}, which has no baseline; expected a "
                "scheme that has one, as the decisions of continuations are compared with the mean of their group. "
                "Set train_continuations=False, or choose another credit."
            )
        group_filters = credits.resolve_filters(filters, credit=scheme, **sampled)
        check_delayed_roles(envs, learning, scheme, args, reward_functions=rewards.names)
        if train_dataset is not None:
            histories = [name_of(pool[0]) for pool in envs.values() if pool[0].metadata.get("state") == "history"]
            credits.check_states(histories, scheme, group_filters, choice.sampling)
        check_resampling(args, group_filters, train_dataset)
        curricula = Curricula(by_environment(curriculum, envs))
        for name, each in curricula.curricula.items():
            env_checks.check_levels(envs[name][0], each)
        env_checks.check_openings(envs, agents_with_history(args.history, env_checks.agents_of(envs)))
        check_reward_columns(rewards, datasets, curricula)
        probes = [pool[0] for pool in envs.values()]  # in the form in which they are branched
        branched = None if args.branch_at is None else _named_agents("branch_at", args.branch_at, agents)
        if branched is not None and train_dataset is not None:
            _check_branched(probes, branched, learning, args)
        weigh = weigher(probes, alpha=args.alpha, weights=args.reward_parts, functions=rewards.names)
        if processing_class is not None:
            check_chat_template(processing_class)
        if train_dataset is not None and not routing.trained:
            raise ValueError(
                "a train_dataset is given, but no policy is trained. Leave it out to play and evaluate, or leave "
                "trainable=True."
            )
        if train_dataset is not None:
            _check_paid(probes, rewards, args, credits.facts_of(scheme, choice.sampling))
        check_num_rows(train_dataset, args)
        if train_dataset is not None and args.process_index == 0 and (warning := several_rollouts(args)):
            warnings.warn(warning, stacklevel=3)
        check_served(routing, args)
        check_processes(routing, args, takes_turns=schedule is not None)
        return cls(
            args=args,
            make_env=make_env,
            envs=envs,
            routing=routing,
            in_memory=[
                policy.name
                for policy in routing.policies
                if policy.api is None and not isinstance(model if policy.model is None else policy.model, str)
            ],
            schedule=schedule,
            credit=scheme,
            filters=group_filters,
            curricula=curricula,
            rewards=rewards,
            weigh=weigh,
            notes=[
                note for note in (choice.note, rows_left_out(train_dataset, args), shifting_evaluation(args)) if note
            ],
            unplayed=unplayed_columns(made, list(datasets.values()), read_columns(rewards)),
            branched=branched,
            dataset=Dataset.from_dict({"seed": [args.seed]}) if train_dataset is None else train_dataset,
            trains=train_dataset is not None,
        )

    @property
    def environment(self) -> str:
        """The names of the environments, as they call themselves."""
        return ", ".join(name_of(pool[0]) for pool in self.envs.values())


REPLACED = {
    "rollout_func": "the environment says what follows a reply: write it as a PettingZoo AECEnv, and give env=",
    "environment_factory": "environments are PettingZoo's AECEnv: give env=",
    "tools": "a tool is an agent or a part of the environment: let the environment's step() answer a call",
}
"""Arguments of `GRPOTrainer` that this trainer does not take, and what to use instead."""


def check_unsupported(given: Mapping[str, Any]) -> None:
    """Raise `TypeError` for arguments that the constructor does not have."""
    for name in given:
        what = REPLACED.get(
            name, "the parameters of MultiAgentGRPOTrainer are in docs/reference/trainer.md. Leave it out"
        )
        raise TypeError(f"MultiAgentGRPOTrainer has no argument {name!r}; {what}.")


def _config(args: Any, model: Any) -> MultiAgentGRPOConfig:
    """The configuration, by default one that writes to a folder of this name."""
    args = MultiAgentGRPOConfig("multi-agent-grpo") if args is None else args
    if not isinstance(args, MultiAgentGRPOConfig):
        raise TypeError(
            f"args is a {type(args).__name__}, expected a MultiAgentGRPOConfig. Change the name: it takes all that "
            "GRPOConfig does."
        )
    is_placed = "device_map" in (args.model_init_kwargs or {}) or hasattr(model, "hf_device_map")
    if args.n_gpu > 1 and not is_placed:
        raise ValueError(
            f"one process sees {args.n_gpu} GPUs, over which its model would be split; expected one. Set CUDA_"
            f"VISIBLE_DEVICES to one, or start a process for each: accelerate launch --num_processes {args.n_gpu}."
        )
    return args


def _checked(
    args: MultiAgentGRPOConfig,
    make_env: MakeEnv | Mapping[str, MakeEnv],
    made: Mapping[str, AECEnv],
    datasets: Mapping[str, Any],
    reads: Collection[str],
    *,
    trains: bool,
    is_default: bool,
) -> dict[str, list[AECEnv]]:
    """The validated environments. A `crash_reward` that is a default is given up where a program is not repeatable."""
    branching = Branching.of(
        sampling=args.sampling, num_continuations=args.num_continuations, crash_reward=args.crash_reward, trains=trains
    )
    try:
        return env_checks.check_envs(make_env, args.seed, list(datasets.values()), branching, made=made, reads=reads)
    except ReplayError as error:
        if not is_default:
            raise
        args.crash_reward = None
        warnings.warn(f"A reply that makes the program fail is not paid its least reward: {error}", stacklevel=4)
        return _checked(args, make_env, made, datasets, reads, trains=trains, is_default=False)


def _with(args: MultiAgentGRPOConfig, **changed: Any) -> MultiAgentGRPOConfig:
    """A copy of the configuration, which is the user's, with these values."""
    args = copy(args)
    for name, value in changed.items():
        setattr(args, name, value)
    return args


def _with_crash_reward(args: MultiAgentGRPOConfig, envs: Sequence[AECEnv]) -> tuple[MultiAgentGRPOConfig, bool]:
    """The configuration with the `crash_reward` that all environments declare, if it has none, and whether that is so.

    A reply that crashes an environment gets the least that any of them pays.
    """
    declared = [env.metadata.get("crash_reward") for env in envs]
    if args.crash_reward is not None or None in declared:
        return args, False
    return _with(args, crash_reward=min(declared)), True


def _imitating(args: MultiAgentGRPOConfig, credit: Any, filters: Any, routing: Routing) -> MultiAgentGRPOConfig:
    """The configuration; with `imitate` a copy whose loss is the log-likelihood, the policy gradient at an advantage
    and a ratio of 1, and that rounds alone end. Raises `ValueError` for what chooses or weighs replies besides."""
    if args.imitate is None:
        return args
    given = {"credit": credit, "filters": filters or None}
    given |= {f"beta of policy {policy.name!r}": policy.beta or None for policy in routing.trained}
    if found := [f"{name}={value!r}" for name, value in given.items() if value is not None]:
        raise ValueError(
            f"{' and '.join(found)} with imitate={args.imitate!r}, which says itself what is learned, and with which "
            "loss; expected one of them. Leave it out, or set imitate=None."
        )
    check_windows(args.gradient_accumulation_steps, args.steps_per_generation * args.num_iterations)
    as_likelihood = {"loss_type": "cispo", "epsilon_high": 1.0, "importance_sampling_level": "token"}
    return _with(args, **as_likelihood, max_steps=args.max_steps if args.max_steps > 0 else NEVER)


def _check_paid(
    envs: Sequence[AECEnv], rewards: RewardFunctions, args: MultiAgentGRPOConfig, scheme: credits.SchemeFacts
) -> None:
    """Raise `ValueError` if an environment leaves all rewards to reward functions, and there are none, pays less than
    the credit scheme takes, or says no phase, by which the scheme compares."""
    parts: Any = args.reward_parts  # a mapping, once the configuration is validated
    if not (scheme.takes_negative or rewards) and (args.alpha is None or args.alpha > 0):  # a function's are unknown
        check_not_negative(envs, parts, args.crash_reward)
    for env in envs:
        if scheme.reads_phases and env.infos.get(env.agent_selection, {}).get("phase") is None:
            raise ValueError(
                f"the credit's group has 'phase', but {env.metadata.get('name')} says none; expected "
                f"infos[{env.agent_selection!r}]['phase'] where it acts. Set it there, or choose another group."
            )
        if env.metadata.get("judged") and not env.metadata.get("reward_ranges") and not rewards:
            raise ValueError(
                f"{env.metadata['name']} leaves rewards to reward functions, and there are none; expected some, or "
                "nothing is learnt. Give reward_funcs=..., or where rows have an answer grader='exact' or 'math'."
            )


def _check_branched(
    envs: Sequence[AECEnv], branched: Collection[str], learning: Collection[str], args: MultiAgentGRPOConfig
) -> None:
    """Warn if an agent that learns acts before anything branches, so that its first replies are never trained."""
    first = sorted({env.agent_selection for env in envs} & {*learning} - {*branched})
    if first and args.process_index == 0:
        warnings.warn(
            f"branch_at is {args.branch_at!r}, but {', '.join(first)} acts first, and what it replies before the "
            "first branch is not trained. Name it in branch_at, or freeze its policy with Policy(trainable=False).",
            stacklevel=4,
        )


def _named_agents(option: str, names: Sequence[str], agents: Sequence[str]) -> frozenset[str]:
    """The agents that are named by themselves or by their role."""
    unknown = sorted({*names} - {*agents, *map(role_of, agents)})
    if unknown or not names:
        raise ValueError(
            f"{option} is {names!r}, but the environment has the agents {', '.join(agents)}. Name agents, or roles "
            "(an agent's name without its number)."
        )
    return frozenset(agent for agent in agents if agent in names or role_of(agent) in names)


def _schedule(
    given: Schedule | None, args: MultiAgentGRPOConfig, policies: Sequence[Policy], optimizer: Any
) -> Schedule | None:
    """The user's schedule, tried once, or the one that `args` say."""
    trained = [policy.name for policy in policies]
    if args.alternate_every is not None:
        if given is not None:
            raise ValueError(
                f"alternate_every is {args.alternate_every} and there is a schedule; expected one of them. Leave one "
                "out."
            )
        if len(trained) < 2:
            raise ValueError(
                f"alternate_every is {args.alternate_every}, but the policies that are trained are "
                f"{', '.join(trained) or 'none'}; expected two that take turns. Leave it out, or set policies='lora'."
            )
        given = Alternate(trained, args.alternate_every)
    if given is not None:
        check_windows(args.gradient_accumulation_steps, args.steps_per_generation * args.num_iterations)
        learners(given, 0, trained)
    check_rates(optimizer, policies, has_factors=rate_factors(given, lambda: 0) is not None)
    return given


def on_workers(make_env: Any, workers: str | Mapping[str, Any] | None) -> Any:
    """The functions, so that the environments they make are in other processes; see `ray_makers`."""
    if workers is None:
        return make_env
    from pettingllms_envs.remote.ray_envs import ray_makers

    if isinstance(make_env, Mapping):
        return dict(ray_makers(make_env, workers))
    return ray_makers({DEFAULT_ENVIRONMENT: make_env}, workers)[DEFAULT_ENVIRONMENT]
