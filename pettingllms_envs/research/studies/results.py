"""What a study leaves on disk: a small JSON file for each finished run, and an outline of what was planned.

    results/study.json                                                   Outline
    results/tuning/plan_path/at_grpo/learning_rate=0.001/1.json          CellResult
    results/evaluation/plan_path/at_grpo/101.json                        CellResult
    results/fidelity/plan_path/at_grpo/101.json                          Fidelity

A run is finished if its file is there. The file holds the configuration and its digest, so that a study that has
changed since is noticed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.difference import differing
from pettingllms_envs.settings import STRICT_FORMAT


OUTLINE = "study.json"
_NO_FILE_NAME = re.compile(r"[^\w.+=,-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Which run of a study.

    Args:
        phase: `"tuning"`, `"evaluation"` or `"fidelity"`.
        setting: The tuned fields with their values; empty where nothing is tuned.
    """

    phase: str
    environment: str
    method: str
    seed: int
    setting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of its name. The setting is one of them in tuning only, where it tells runs apart."""
        own = (label(self.setting),) if self.phase == "tuning" else ()
        return (self.phase, self.environment, self.method, *own, str(self.seed))

    @property
    def name(self) -> str:
        """`"evaluation/plan_path/at_grpo/101"`."""
        return "/".join(self.parts)

    def path(self, results: Path) -> Path:
        return results.joinpath(*self.parts[:-1]) / f"{self.seed}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """A finished run.

    Args:
        config: All that determines it, as JSON: the training configuration, the budget, what it was evaluated on.
        success: One character per evaluated instance, `"1"` if the episode succeeded, else `"0"`.
        seconds: Spent in optimizer steps, rollouts included.
        curve: Success on held-out instances during training: lists `tokens` and `success` of equal length.
        training: Means of logged metrics over a few portions of the training, a list for each with one of `tokens`.
        code: Digest of the source of our packages, whose version may stay while it changes. Empty in older results.
        model: Digest of the files of the model that it started from, where that is a folder. Empty in older results.
        machine: On what: processor, its instructions that torch uses, threads, platform. Empty in older results.
        cpu_seconds: CPU time of training and evaluation, of all starts of a run that was stopped; without what a
            killed one had spent after its last checkpoint. 0.0 in older results.
        guesser: Name of the best guesser, if that is the method.
        rows: Instances played in training, each as often as it was. 0 where that was not recorded.
        uses: Tokens of replies that optimizer steps have used, each as often as it was, over `tokens`; those that the
            update leaves out count. 0.0 where that was not recorded.
    """

    cell: Cell
    config: Mapping[str, Any]
    digest: str
    success: str
    tokens: int
    steps: int
    seconds: float
    curve: Mapping[str, Sequence[float]] = field(default_factory=dict)
    training: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    model: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    guesser: str = ""
    rows: int = 0
    uses: float = 0.0

    @property
    def rate(self) -> float:
        """The share of instances that succeeded."""
        return self.success.count("1") / len(self.success)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """How well a method's advantages agree with counterfactual ones, see `credit_fidelity` of the trainer's study.

    Args:
        correlation: Rank correlation of the scheme's advantages with counterfactual ones, in [-1, 1]. `None` if all
            of the scheme's advantages are equal.
        interval: Of the correlation, at 95%, by a bootstrap over decisions.
        ceiling: The correlation that exact counterfactual advantages would have, by that of two independent estimates.
        num_candidates: Candidates of these decisions that the scheme gave an advantage.
    """

    cell: Cell
    config: Mapping[str, Any]
    digest: str
    correlation: float | None
    interval: tuple[float, float] | None
    ceiling: float | None
    num_decisions: int
    num_candidates: int
    num_continuations: int
    num_episodes: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a study has planned, for the report.

    Args:
        methods: The methods of each environment, in the order of the report.
        tokens: Budget of a run, in generated tokens.
        spread: Assumed standard deviation of a seed's difference between two methods, beyond what instances explain.
        tuning: `seeds`, `split`, `num_instances`, `tokens` and `settings` (labels) of the tuning, `per_method`, the
            labels of methods that have their own, and perhaps `primary_seeds`; `None` without one.
        primary: The comparisons that the study is made for, at most four, each `{"environment": NAME, "methods": [A,
            B]}` (A minus B); intervals are corrected for these alone. None: for all.
        primary_seeds: Of the methods that they name, in their environment: `seeds`, and more.
        secondary: Further comparisons that were named beforehand, as `primary`; intervals are corrected for these
            alone, and no others have a verdict.
    """

    name: str
    methods: Mapping[str, Sequence[str]]
    reference: str
    compared: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    tokens: int
    split: str
    num_instances: int
    spread: float
    tuning: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    primary: Sequence[Mapping[str, Any]] = ()
    primary_seeds: Sequence[int] = ()
    secondary: Sequence[Mapping[str, Any]] = ()

    @property
    def num_comparisons(self) -> int:
        """Comparisons whose intervals hold together: the primary ones, or else all, in all environments together."""
        return len(self.primary) or sum(map(len, self.compared.values()))

    @property
    def most_seeds(self) -> Sequence[int]:
        """Those of the comparisons that intervals are corrected for."""
        return self.primary_seeds if self.primary else self.seeds

    def seeds_of(self, environment: str, method: str) -> Sequence[int]:
        """The seeds of a method: the primary ones where a primary comparison names it."""
        return self.primary_seeds if self._is_of_primary(environment, method) else self.seeds

    def tuning_seeds(self, environment: str, method: str) -> Sequence[int]:
        """Those of its tuning, where there is one."""
        assert self.tuning is not None
        more: Sequence[int] = self.tuning.get("primary_seeds", ())
        seeds: Sequence[int] = more if more and self._is_of_primary(environment, method) else self.tuning["seeds"]
        return seeds

    def _is_of_primary(self, environment: str, method: str) -> bool:
        return any(each["environment"] == environment and method in each["methods"] for each in self.primary)

    def settings_of(self, method: str) -> Sequence[str]:
        """Labels of the settings that are tried for a method, where there is a tuning."""
        assert self.tuning is not None
        found: Sequence[str] = self.tuning.get("per_method", {}).get(method, self.tuning["settings"])
        return found

    def is_named(self, environment: str, *methods: str) -> bool:
        """Whether two methods are compared in a primary or secondary comparison, in either order."""
        named = (*self.primary, *self.secondary)
        return any((each["environment"], set(each["methods"])) == (environment, set(methods)) for each in named)

    def cells(self) -> list[Cell]:
        """The runs of the evaluation; all methods of a seed before the next seed."""
        return [
            Cell(phase="evaluation", environment=environment, method=method, seed=seed)
            for environment, names in self.methods.items()
            for seed in dict.fromkeys((*self.seeds, *self.primary_seeds))
            for method in names
            if seed in self.seeds_of(environment, method)
        ]


def label(setting: Mapping[str, Any]) -> str:
    """A setting as one word for paths and tables: `"learning_rate=0.001"`; `"default"` if nothing is set."""
    words = [
        f"{name}={value if isinstance(value, str) else json.dumps(value, sort_keys=True)}"
        for name, value in setting.items()
    ]
    return _NO_FILE_NAME.sub("_", ",".join(words)) or "default"


def digest_of(config: Mapping[str, Any]) -> str:
    """A digest of a configuration, the same for the same content in any order of its fields.

    That replies are read strictly is left out, so that it is the same as before that was a setting.
    """
    train = config.get("train", {})
    settings = train.get("env_kwargs") or {}
    if settings.get(STRICT_FORMAT) is True:
        settings = {name: value for name, value in settings.items() if name != STRICT_FORMAT}
        train = {name: value for name, value in train.items() if name != "env_kwargs"}
        config = {**config, "train": {**train, **({"env_kwargs": settings} if settings else {})}}
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def changed(one: Any, other: Any) -> list[str]:
    """Where two configurations differ, as `"args.learning_rate: 0.001 there, 0.002 here"`."""
    return [
        f"{name}: {json.dumps(there)} there, {json.dumps(here)} here" for name, there, here in differing(one, other)
    ]


AnyResult = TypeVar("AnyResult", CellResult, Fidelity)


def save(result: CellResult | Fidelity, results: Path) -> Path:
    """Write a result. The file appears whole or not at all."""
    path = result.cell.path(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_whole(path, json.dumps(dataclasses.asdict(result), separators=(",", ":")) + "\n")
    return path


def read(path: Path, kind: type[AnyResult]) -> AnyResult:
    """A result that was saved."""
    try:
        content = json.loads(files.read_json_text(path, "utf-8"))
        found = kind(**{**content, "cell": Cell(**content["cell"])})
        if isinstance(found, CellResult) and not (set("01") >= set(found.success) > set() and "train" in found.config):
            raise ValueError("its success is not of 0 and 1, or its config has no train")
        return found
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{path} is no result of a study ({error!r}); expected a file of `pettingllms study`. Remove it, and run "
            "the study again."
        ) from error


def read_all(results: Path, phase: str, kind: type[AnyResult]) -> Iterator[AnyResult]:
    """All results of a phase, in the order of their paths."""
    for path in sorted((results / phase).rglob("*.json")):
        found = read(path, kind)
        if found.cell.path(results) != path:
            raise ValueError(
                f"{path} is the result of {found.cell.name}; expected it in {found.cell.path(results)} alone. Move it "
                "there, or out of the folder of results."
            )
        yield found


def save_outline(outline: Outline, results: Path) -> None:
    """Write what is planned; it replaces an earlier outline, which may have had fewer seeds or methods."""
    results.mkdir(parents=True, exist_ok=True)
    files.write_whole(results / OUTLINE, json.dumps(dataclasses.asdict(outline), indent=1) + "\n")


def read_outline(results: Path) -> Outline:
    """What was planned."""
    path = results / OUTLINE
    if not path.is_file():
        raise ValueError(
            f"{results} has no {OUTLINE}; expected a folder of results of `pettingllms study`. Name that folder, or "
            "run `pettingllms study study.yaml --results FOLDER` first."
        )
    try:
        return Outline(**json.loads(files.read_json_text(path, "utf-8")))
    except (json.JSONDecodeError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is no outline of a study: {error}. Run `pettingllms study` again.") from error
