"""A study and the runs that it asks for. Pure; needs no torch.

A run's configuration is the base, then the environment's fields, the method's, the method's for this environment, and
the tuned setting; later ones win. `env_kwargs` are joined key by key, every other field is replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from pettingllms_envs.research.studies.results import Cell, Outline, digest_of, label


PLACEHOLDERS = ("{seed}", "{environment}", "{folder}")
DEFAULTS: Mapping[str, Any] = {
    "lr_scheduler_type": "constant",
    "max_steps": 1_000_000,
    "logging_steps": 1,
    "save_steps": 50,
    "save_total_limit": 1,
    "report_to": "none",
    "disable_tqdm": True,
}
"""Fields that a study sets where the file does not: training ends by tokens, logs each step, and can be resumed."""
GUESSER_FIELDS = ("imports", "env_id", "env_kwargs")
EVALUATION_FIELDS = ("eval_seeds", "eval_split", "eval_levels")
"""What determines the run of a guesser, with its seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """What is evaluated: a range of seeds of a split.

    Args:
        last: The one after the last.
    """

    split: str
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way to train, or none.

    Args:
        only: The environments it is limited to; `None`: all.
        guesser: Whether it is the best of the task's policies that do not read, see `guesser.py`; it has no model.
        supervised: How it imitates demonstrations instead, see `supervision.py`: `demonstrations`, and `tokens` of
            replies or `instances`. `None`: it does not.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    per_environment: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    only: tuple[str, ...] | None = None
    trained: bool = True
    guesser: bool = False
    supervised: Mapping[str, Any] | None = None

    def is_in(self, environment: str) -> bool:
        return self.only is None or environment in self.only


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The choice of settings before the evaluation.

    Args:
        per_method: Those of the methods that have fields of their own.
        primary_seeds: Of the methods that primary comparisons name: `seeds`, and more.
    """

    settings: tuple[Mapping[str, Any], ...]
    seeds: tuple[int, ...]
    instances: Instances
    tokens: int
    per_method: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    primary_seeds: tuple[int, ...] = ()

    def settings_of(self, method: str) -> tuple[Mapping[str, Any], ...]:
        return self.per_method.get(method, self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityOptions:
    """How credit fidelity is measured.

    Args:
        seed: Of the run and its prepared folder; `None`: the first of the study's seeds.
    """

    decisions: int = 50
    continuations: int = 32
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run that can be started.

    Args:
        config: All that determines it; see `CellResult.config`. Placeholders are not replaced.
    """

    cell: Cell
    config: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return digest_of(self.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study as its file describes it; `study_file.py` explains the file.

    Args:
        base: Fields of a `pettingllms train` configuration.
        compare: The methods that it is compared with; the fewer they are, the narrower are the intervals.
        tuning: How settings are chosen; `None`: they are not.
        prepare: A command that makes models, run once for each folder; `None`: nothing is made.
        spread: See `pettingllms_envs.research.studies.power`.
        curve_points: How often a run is evaluated before and during training, for the curves.
        curve_instances: On how many of the evaluation's instances.
        primary: The comparisons that the study is made for, see `Outline`; part of the digest of every evaluation, as
            the `secondary` ones are.
    """

    name: str
    base: Mapping[str, Any]
    environments: Mapping[str, Mapping[str, Any]]
    methods: Mapping[str, Method]
    reference: str
    compare: tuple[str, ...]
    seeds: tuple[int, ...]
    tokens: int
    evaluation: Instances
    tuning: Tuning | None = None
    prepare: str | None = None
    fidelity: FidelityOptions = FidelityOptions()  # frozen
    spread: float = 0.05
    curve_points: int = 5
    curve_instances: int = 100
    notes: tuple[str, ...] = ()
    primary: tuple[Mapping[str, Any], ...] = ()
    primary_seeds: tuple[int, ...] = ()
    secondary: tuple[Mapping[str, Any], ...] = ()

    def methods_of(self, environment: str) -> list[str]:
        return [name for name, method in self.methods.items() if method.is_in(environment)]

    def compared_in(self, environment: str) -> list[str]:
        """The methods that the reference is compared with in an environment; none where it is not part of it."""
        present = self.methods_of(environment)
        return [name for name in self.compare if name in present] if self.reference in present else []

    def is_tuned(self, method: str) -> bool:
        """Whether the method's settings are chosen by tuning."""
        return self.tuning is not None and self.methods[method].trained

    def tuning_cells(self) -> list[Cell]:
        """The runs of the tuning; all methods and settings of a seed before the next seed."""
        if self.tuning is None:
            return []
        outline = self.outline()
        return [
            Cell(phase="tuning", environment=environment, method=method, seed=seed, setting=setting)
            for environment in self.environments
            for seed in dict.fromkeys((*self.tuning.seeds, *self.tuning.primary_seeds))
            for method in self.methods_of(environment)
            if self.is_tuned(method) and seed in outline.tuning_seeds(environment, method)
            for setting in self.tuning.settings_of(method)
        ]

    def fidelity_cells(self) -> list[Cell]:
        """One for each method that is trained, in each of its environments."""
        seed = self.seeds[0] if self.fidelity.seed is None else self.fidelity.seed
        return [
            Cell(phase="fidelity", environment=environment, method=method, seed=seed)
            for environment in self.environments
            for method in self.methods_of(environment)
            if self.methods[method].trained and not self.methods[method].supervised
        ]

    def outline(self) -> Outline:
        """What the report needs to know of the plan."""
        tuning: dict[str, Any] | None = None
        if self.tuning is not None:
            tuning = {
                "seeds": list(self.tuning.seeds),
                "split": self.tuning.instances.split,
                "num_instances": len(self.tuning.instances),
                "tokens": self.tuning.tokens,
                "settings": [label(setting) for setting in self.tuning.settings],
            }
            if self.tuning.per_method:
                tuning["per_method"] = {name: [*map(label, own)] for name, own in self.tuning.per_method.items()}
            if self.tuning.primary_seeds:
                tuning["primary_seeds"] = list(self.tuning.primary_seeds)
        return Outline(
            name=self.name,
            methods={environment: self.methods_of(environment) for environment in self.environments},
            reference=self.reference,
            compared={environment: self.compared_in(environment) for environment in self.environments},
            seeds=self.seeds,
            tokens=self.tokens,
            split=self.evaluation.split,
            num_instances=len(self.evaluation),
            spread=self.spread,
            tuning=tuning,
            notes=self.notes,
            primary=self.primary,
            primary_seeds=self.primary_seeds,
            secondary=self.secondary,
        )

    def run(self, cell: Cell) -> PlannedRun:
        """The configuration of a run. The cell of an evaluation has the setting that tuning chose."""
        method = self.methods[cell.method]
        instances, tokens, points = self.evaluation, self.tokens, self.curve_points
        if cell.phase == "tuning":
            assert self.tuning is not None
            instances, tokens, points = self.tuning.instances, self.tuning.tokens, 0
        fields = merged(
            DEFAULTS,
            self.base,
            self.environments[cell.environment],
            method.fields,
            method.per_environment.get(cell.environment, {}),
            cell.setting,
            {"seed": cell.seed, "eval_seeds": [instances.first, instances.last], "eval_split": instances.split},
        )
        config: dict[str, Any] = {"train": fields, "trained": method.trained, "prepare": self.prepare}
        if cell.phase == "evaluation" and self.primary:
            config["primary"] = {"comparisons": list(self.primary), "seeds": list(self.primary_seeds)}
            config |= {"secondary": list(self.secondary)} if self.secondary else {}
        if method.guesser:
            own = {name: fields[name] for name in (*GUESSER_FIELDS, *EVALUATION_FIELDS, "seed") if name in fields}
            return PlannedRun(cell=cell, config={**config, "train": own, "prepare": None, "guesser": True})
        if cell.phase == "fidelity":
            config["fidelity"] = {**dataclasses.asdict(self.fidelity), "seed": cell.seed}
        else:
            config["tokens"] = tokens if method.trained else 0
            config["curve"] = {
                "points": points if method.trained else 0,
                "instances": min(self.curve_instances, len(instances)),
            }
        if method.supervised:
            config |= {"supervised": dict(method.supervised), "curve": {"points": 0, "instances": 0}, "tokens": 0}
        return PlannedRun(cell=cell, config=config)


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of several layers, of which later ones win; `env_kwargs` are joined key by key."""
    fields: dict[str, Any] = {}
    for layer in layers:
        kwargs = {**fields.get("env_kwargs", {}), **layer.get("env_kwargs", {})}
        fields |= {**layer, **({"env_kwargs": kwargs} if kwargs else {})}
    return fields


def filled(value: Any, *, seed: int, environment: str, folder: str) -> Any:
    """A configuration with its placeholders replaced, in all texts at any depth."""
    if isinstance(value, str):
        for place, text in zip(PLACEHOLDERS, (str(seed), environment, folder), strict=True):
            value = value.replace(place, text)
        return value
    if isinstance(value, Mapping):
        return {key: filled(each, seed=seed, environment=environment, folder=folder) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [filled(each, seed=seed, environment=environment, folder=folder) for each in value]
    return value


def selected(cells: Sequence[Cell], patterns: Sequence[str]) -> Iterator[Cell]:
    """The cells that one of the patterns matches; all without patterns.

    A pattern has parts between slashes, each of which must match a part of the cell's name: `archives`,
    `tuning/at_grpo`, `evaluation/10?`.
    """
    for cell in cells:
        parts = cell.parts
        if not patterns or any(
            all(any(fnmatchcase(part, each) for part in parts) for each in pattern.split("/")) for pattern in patterns
        ):
            yield cell
