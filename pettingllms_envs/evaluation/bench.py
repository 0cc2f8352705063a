"""A benchmark as values: an environment, its problems and its agents, which determine the whole run."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pettingllms_envs
from pettingllms_envs.agents.base import Agent
from pettingllms_envs.agents.spec import AgentSpec, from_identity
from pettingllms_envs.episodes.episode import Instance, RunLimits
from pettingllms_envs.episodes.files import ANY_INSTANCE, REPORT, JsonObject, check_starts_nothing, header, write_json
from pettingllms_envs.episodes.observing import content_of, problem_seeds, roles_of
from pettingllms_envs.episodes.schema import of_bench_config
from pettingllms_envs.evaluation import data_label, metrics
from pettingllms_envs.evaluation.agent_pools import WITHOUT_MODEL, check_bots, open_all
from pettingllms_envs.evaluation.runner import Folder, Plan, RunResult, instances_digest, run
from pettingllms_envs.published import published, published_files
from pettingllms_envs.settings import SIMULATOR_BUILD, STRICT_FORMAT, check_survives, to_json
from pettingllms_envs.suggestions import did_you_mean


DEFAULT_LIMIT = 200


@dataclass(frozen=True, slots=True)
class InstanceSet:
    """The problems of a run.

    Args:
        source: `"published"`, `"data set"`, `"seeds"`, or `"row"` of one that was given by itself.
        content: SHA-256 of what a data set's problems say, 64 hex digits, which an edited row changes; else None.
    """

    source: str
    instances: tuple[Instance, ...]
    content: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that determines the rows of a run.

    Args:
        env: Name of the environment with its version.
    """

    env: str
    settings: Mapping[str, Any]
    agents: Mapping[str, AgentSpec]
    chosen: InstanceSet
    samples: int = 1
    rules: RunLimits = field(default_factory=RunLimits)

    def make(self) -> Any:
        return pettingllms_envs.make(self.env, **self.settings)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as `run.json` has it; `ValueError` if JSON cannot represent a setting or an option."""
        env = self.make()
        made = env.metadata.get("settings", {})
        for options in {repr(each.options): each.options for each in self.chosen.instances}.values():
            check_survives(options)
        return {
            "env": self.env,
            "settings": to_json(
                {**self.settings, **{name: made[name] for name in (STRICT_FORMAT, SIMULATOR_BUILD) if name in made}}
            ),
            "env_config": words_of(env),
            "roles": roles_of(env),
            "instances": {
                "source": self.chosen.source,
                "num": len(self.chosen.instances),
                "digest": instances_digest(self.chosen.instances),
                **({} if self.chosen.content is None else {"content": self.chosen.content}),
            },
            "samples": self.samples,
            **self.rules.recorded,
            "agents": {agent: spec.identity for agent, spec in self.agents.items()},
        }


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What a benchmark gave: the content of `run.json` and `report.json`, the rows, and which are missing.

    `is_kept`: whether the folder was kept; it is removed if the run is new and no model answered.
    """

    header: Mapping[str, Any]
    report: Mapping[str, Any]
    ended: RunResult
    is_kept: bool = True


class Repetition(Protocol):
    """Episodes of a run that are played once more with a change: those of `pettingllms blame` and `blind`."""

    @property
    def kind(self) -> str:
        """What `run.json` calls it, and the key of its effects in `report.json`."""

    @property
    def places(self) -> Sequence[tuple[Instance, int]]:
        """The problem and the number of each episode."""

    def wrap(self, env: Any) -> Any:
        """The environment, perhaps changed."""

    def agents(self, agents: Mapping[str, Agent]) -> Mapping[str, Agent]:
        """The agents, perhaps changed."""

    def effects(self, rows: Sequence[JsonObject]) -> Mapping[str, Any]:
        """What the rows of the episodes say of the change."""


def play(
    bench: Bench,
    path: Path,
    *,
    concurrency: int,
    on_row: Callable[[JsonObject], None] = lambda row: None,
    again: Repetition | None = None,
    env_workers: str | Mapping[str, Any] | None = None,
) -> BenchResult:
    """Play the episodes of a benchmark that its folder lacks, and write the report.

    With `again` they are those episodes of its run, and the report has the effects. If the run is new and no model
    answered, the folder is removed. `env_workers` are those of `ray_envs.ray_makers`.

    Raises:
        ValueError: An agent cannot be created, before anything is played; or the folder has another run.
    """
    env = bench.make()
    check_bots(bench.agents, env)
    make = bench.make
    if env_workers is not None:
        from pettingllms_envs.remote.ray_envs import ray_makers

        make = ray_makers({"": partial(pettingllms_envs.make, bench.env, **bench.settings)}, env_workers)[""]
    pools = open_all(bench.agents, concurrency)
    try:
        label = label_of(bench, env)
        head = header("bench" if again is None else again.kind, bench.config, pools.versions, layers(), data=label)
        folder = Folder(path, head)
        try:
            plan = Plan(
                make_env=make if again is None else lambda: again.wrap(make()),
                instances=bench.chosen.instances,
                samples=bench.samples,
                rules=bench.rules,
                chosen=None if again is None else again.places,
            )
            agents = pools.agents if again is None else again.agents(pools.agents)
            ended = run(plan, agents, folder, concurrency=concurrency, on_row=on_row)
            report = metrics.report(head, ended.rows, num_planned=plan.num_episodes)
            report |= {} if again is None else {again.kind: again.effects(ended.rows)}
            is_kept = not folder.is_new or _was_answered(bench, ended)
            if is_kept:
                write_json(path / REPORT, report)
            else:
                folder.discard()
        finally:
            folder.close()
    finally:
        pools.close()
    if ended.refused and not ended.rows:
        raise ValueError(ended.why)
    return BenchResult(head, report, ended, is_kept)


def _was_answered(bench: Bench, ended: RunResult) -> bool:
    """Whether a run is worth keeping: a model answered in some episode, or some failed for another reason."""
    return any(
        row["error"] is None
        or row["error"]["kind"] != "unreachable"
        or any(bench.agents[step["agent"]].kind not in WITHOUT_MODEL for step in row["steps"])
        for row in ended.rows
    )


def choose(
    env: Any,
    name: str,
    settings: Mapping[str, Any],
    *,
    split: str | None = None,
    options: Mapping[str, Any] | None = None,
    limit: int | None = None,
) -> InstanceSet:
    """Choose the problems to play.

    These are the published test set of a game, if it covers the settings and options; else all problems of the split
    of a data set (`metadata["num_instances"]`, or counted), or a fixed sample of `limit` of them; else the seeds from
    0.

    Args:
        limit: Most problems; None is all that are known, else `DEFAULT_LIMIT`.
    """
    known = env.metadata.get("reset_options", {})
    settings = without_defaults(settings, env)
    options = dict(options or {})
    if split is not None:
        options["split"] = split
    for option in options:
        if option not in known:
            do = did_you_mean(option, known) or " Leave it out."
            raise ValueError(f"{name} has no option {option!r}; expected one of: {', '.join(known) or 'none'}.{do}")
    if options in ({}, {"split": "test"}) and not set(settings) - ANY_INSTANCE and has_published(name):
        rows = enumerate(published(name)[:limit])
        found = (Instance(i, row["seed"], {key: row[key] for key in ("split", "level")}) for i, row in rows)
        return InstanceSet("published", tuple(found))
    if "split" in known and "test" in known["split"]:
        options.setdefault("split", "test")
    seeds = problem_seeds(env, options)
    if seeds is None:
        drawn = range(DEFAULT_LIMIT if limit is None else limit)
        return InstanceSet("seeds", tuple(Instance(i, seed, options) for i, seed in enumerate(drawn)))
    if limit is not None and limit < len(seeds):  # the first ones may be the easiest
        seeds = sorted(random.Random(f"{name} {limit}").sample(seeds, limit))
    instances = tuple(Instance(i, seed, options) for i, seed in enumerate(seeds))
    return InstanceSet("data set", instances, _content_digest(env, instances))


def choose_row(env: Any, name: str, row: Mapping[str, Any]) -> InstanceSet:
    """The problem that a row is: the reset option `row` where there is one, else its columns are reset options."""
    known = env.metadata.get("reset_options", {})
    options = {"row": dict(row)} if "row" in known else dict(row)
    if unknown := [column for column in options if column not in known]:
        raise ValueError(
            f"the row has {', '.join(map(repr, unknown))}, and {name} takes {', '.join(known) or 'no columns'}; "
            "expected those. Rename or remove the columns."
        )
    return InstanceSet("row", (Instance(0, 0, options),))


def label_of(bench: Bench, env: Any) -> dict[str, str] | None:
    """The label of a benchmark's data, see `evaluation.data_label`; None of a row that was given by itself."""
    return None if bench.chosen.source == "row" else data_label.of_env(env, len(bench.chosen.instances))


def without_defaults(settings: Mapping[str, Any], env: Any) -> dict[str, Any]:
    """The settings that differ from the environment's defaults: to write out a default is to leave it."""
    defaults = to_json({name: value for name, value in env.metadata.get("defaults", {}).items() if name in settings})
    given = to_json({name: settings[name] for name in defaults})
    return {name: value for name, value in settings.items() if name not in given or given[name] != defaults[name]}


def has_published(name: str) -> bool:
    """Whether the package has a published test set of an environment such as `"sokoban_v0"`."""
    return name in published_files()


def of_run(head: Mapping[str, Any], rows: Sequence[JsonObject], name: str) -> Bench:
    """The benchmark of a recorded run.

    Args:
        head: Its `run.json`.
    """
    config = head["config"]
    if head["kind"] != "bench":
        raise ValueError(f"{name} has {head['kind']}; expected a run of `pettingllms bench`. Name another.")
    if (fault := of_bench_config(config)) is not None:
        raise ValueError(f"{name} cannot be played again ({fault}); expected what docs/records.md says. Name another.")
    check_starts_nothing(config["settings"], config["env"])
    instances = {row["instance"]["index"]: row["instance"] for row in rows}
    if len(instances) < config["instances"]["num"]:
        raise ValueError(
            f"{name} has {len(instances)} of {config['instances']['num']} problems; expected all. Play it to its end."
        )
    bench = Bench(
        env=config["env"],
        settings=pettingllms_envs.recorded_settings(config["env"], config["settings"]),
        agents={agent: from_identity(identity) for agent, identity in config["agents"].items()},
        chosen=InstanceSet(
            config["instances"]["source"],
            tuple(Instance(i, each["seed"], each["options"]) for i, each in sorted(instances.items())),
        ),
        samples=config["samples"],
        rules=RunLimits.of(config),
    )
    env = bench.make()
    if (recorded := config["instances"].get("content")) is not None:
        content = _content_digest(env, bench.chosen.instances)
        if content != recorded:
            raise ValueError(
                f"{name} was played on problems with the digest {recorded[:8]}, and now they have {content[:8]}; "
                "expected the same. Use the data set that it was played on."
            )
        bench = replace(bench, chosen=replace(bench.chosen, content=content))
    if without := set(env.possible_agents) - set(bench.agents):
        raise ValueError(
            f"{name} does not say who played {', '.join(sorted(without))}; expected each in config.agents. Name "
            "another."
        )
    return bench


def with_options(bench: Bench, kind: str, options: Mapping[str, Any]) -> Bench:
    """A copy of a benchmark in which all agents of a kind have these options."""
    agents = {
        agent: replace(spec, options={**spec.options, **options}) if spec.kind == kind else spec
        for agent, spec in bench.agents.items()
    }
    return replace(bench, agents=agents)


def words_of(env: Any) -> str | None:
    """What an environment says of itself, such as its file; else all settings of one of ours, or None."""
    workflow = getattr(env.unwrapped, "workflow", None)
    own = None if workflow is None else repr((workflow, getattr(env.unwrapped, "alpha", None)))
    identity: str | None = env.metadata.get("identity", own)
    return identity


def layers() -> Mapping[str, Any] | None:
    """How programs are isolated on this machine; None if no environment has loaded the sandbox, or none works here."""
    if "pettingllms_envs.sandbox.sandbox" not in sys.modules:
        return None
    from pettingllms_envs import sandbox

    try:
        return sandbox.describe()
    except sandbox.SandboxUnavailable:
        return None  # of an environment that needs it, the first program says why


def _content_digest(env: Any, instances: Sequence[Instance]) -> str:
    """SHA-256 of the contents of a data set's problems, 64 hex digits."""
    whole = hashlib.sha256()
    for each in instances:
        env.reset(seed=each.seed, options=dict(each.options) or None)
        whole.update(f"{content_of(env)}\n".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()
