"""Warm up a team by supervised fine-tuning: on an oracle's replies, or on successes that a model collected itself.

    pettingllms sft --env pettingllms/sokoban-v0 --model_name_or_path Qwen/Qwen3-1.7B \
        --policies lora --from oracle --output_dir outputs/warm

`pettingllms train ... --adapters outputs/warm` continues from there. The oracle plays only the train split, with seeds
far from those of reinforcement learning. Its replies contain no reasoning: for a reasoning model, collect its own
successes instead (`examples/collect_successes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from trl import SFTConfig, get_quantization_config

from pettingllms_trl.cli import arguments
from pettingllms_trl.cli.datasets import agents_of, makers
from pettingllms_trl.config import with_help
from pettingllms_trl.policies.routing import Routing, route
from pettingllms_trl.records import role_of
from pettingllms_trl.rollout.env_pool import MakeEnv
from pettingllms_trl.sft.demonstrations import FIRST_SEED, Demonstration, by_oracle, read
from pettingllms_trl.sft.warm_up import check_adapters, rows_of, warm_up


ORACLE = "oracle"


@with_help
@dataclass
class SFTArguments(arguments.TeamArguments):
    r"""
    The team, and the source of its demonstrations.

    Args:
        source (`str`, *optional*, defaults to `"oracle"`):
            `"oracle"`: `env.unwrapped.oracle()` plays every role. Else a file of JSON lines with `role`, `prompt`,
            `completion` and `success`; only successes are imitated. On the command line also `--from`.
        roles (`list[str]`, *optional*):
            Train the policies of these roles only. On the command line also `--role`.
        num_episodes (`int`, *optional*, defaults to `1000`):
            Number of the oracle's episodes in each environment.
        levels (`list[int]`, *optional*):
            Values of the reset option `level` for the oracle's instances, used in turn.
        first_seed (`int`, *optional*, defaults to `10000000`):
            First seed of the oracle's instances.
        bots (`dict[str, str]`, *optional*):
            By role, the rule-based player of the environment that plays it in the oracle's place: `{"designer":
            "random_design"}`.
        adapters (`str`, *optional*):
            Folder with a folder for each adapter, to train on instead of new ones.
        chat_template_kwargs (`dict`, *optional*):
            As in [`MultiAgentGRPOConfig`]: give the same in both.
    """

    source: str = field(default=ORACLE, metadata={"aliases": ["--from"]})
    roles: list[str] | None = field(default=None, metadata={"aliases": ["--role"]})
    num_episodes: int = 1000
    levels: list[int] | None = None
    first_seed: int = FIRST_SEED
    bots: dict[str, str] | str | None = None
    adapters: str | None = None
    chat_template_kwargs: dict[str, Any] | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chat_template_kwargs = arguments.mapping("chat_template_kwargs", self.chat_template_kwargs)
        self.bots = arguments.mapping("bots", self.bots)
        if self.num_episodes < 1:
            raise ValueError(f"num_episodes is {self.num_episodes}; expected at least 1. Set num_episodes: 1000.")


KINDS = (SFTArguments, SFTConfig, arguments.TeamModelConfig)


def prepare(argv: Sequence[str]) -> Callable[[], object]:
    """Collect demonstrations, and return a function that trains on them. Mistakes raise before models are loaded."""
    given, args, config = arguments.parse(argv, KINDS, prog="pettingllms sft", description=__doc__)
    arguments.check_model(config)
    arguments.check_reports(args)
    if config.use_peft and not arguments.has_adapters(given.policies):
        raise ValueError(
            f"use_peft with policies={given.policies!r}, whose weights are whole models; expected policies that are "
            "adapters. Set policies: lora, or leave use_peft out."
        )
    arguments.import_packages(given.imports)
    make_env = makers(given)
    routing = route(given.policies, agents_of(make_env), model=config.model_name_or_path)
    check_roles("bots", given.bots or (), routing)
    demonstrations = list(by_oracles(given, make_env) if given.source == ORACLE else read(Path(given.source)))
    if given.roles is not None:
        routing, demonstrations = only(given.roles, routing, demonstrations)
    rows_of(demonstrations, routing)  # refuses what `warm_up` would, before a model is loaded
    if given.adapters is not None:
        check_adapters(given.adapters, routing.trained_adapters)
    args.model_init_kwargs = arguments.model_init_kwargs(config, args)
    return partial(
        run,
        config.model_name_or_path,
        demonstrations,
        routing,
        args,
        peft_config=arguments.peft_config(config, given.policies),
        adapters=given.adapters,
        quantization_config=get_quantization_config(config),
        chat_template_kwargs=given.chat_template_kwargs,
        resolved=given.resolved,
    )


def run(model: str, demonstrations: Sequence[Demonstration], routing: Routing, args: SFTConfig, **more: Any) -> None:
    """Run `warm_up`, then print where the results are and how to continue."""
    arguments.keep(more.pop("resolved"), args.output_dir)
    say = PartialState().print
    folders = warm_up(model, demonstrations, routing, args, **more, say=say)
    for name, folder in folders.items():
        say(f"Saved {name} in {folder}.")
    if routing.adapters:
        say(f"Train on: pettingllms train --policies ... --adapters {args.output_dir}")
    elif routing.base is not None:
        say(f"Train on: pettingllms train --model_name_or_path {args.output_dir}")


def by_oracles(given: SFTArguments, make_env: MakeEnv | Mapping[str, MakeEnv]) -> Iterator[Demonstration]:
    """The oracle's demonstrations; with several environments, the full number of episodes in each, on its levels."""
    assert not isinstance(given.bots, str)  # see `__post_init__`
    seeds, bots = range(given.first_seed, given.first_seed + given.num_episodes), given.bots or {}
    if not isinstance(make_env, Mapping):
        yield from by_oracle(make_env(), seeds, given.levels, bots)
        return
    assert isinstance(given.environments, dict)
    for name, make in make_env.items():
        yield from by_oracle(make(), seeds, given.levels or given.environments[name].train_levels, bots)


def check_roles(option: str, roles: Iterable[str], routing: Routing) -> None:
    """Raise `ValueError` if an option names a role that there is not."""
    known = list(dict.fromkeys(map(role_of, routing.of_agent)))
    for role in roles:
        if role not in known:
            raise ValueError(
                f"{option} names {role!r}; expected some of {', '.join(known)}. Name one, or leave {option} out."
            )


def only(
    roles: Sequence[str], routing: Routing, demonstrations: Sequence[Demonstration]
) -> tuple[Routing, list[Demonstration]]:
    """The policies and demonstrations of these roles; `ValueError` if there is no such role."""
    check_roles("roles", roles, routing)
    of_agent = {agent: policy for agent, policy in routing.of_agent.items() if role_of(agent) in roles}
    policies = tuple(policy for policy in routing.policies if policy.name in of_agent.values())
    return Routing(policies, of_agent), [d for d in demonstrations if role_of(d.role) in roles]
