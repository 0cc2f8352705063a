"""Reads `study.yaml`, and raises `ValueError` where it is incomplete or contradicts itself. Needs no torch.

base:                     # fields of a `pettingllms train` configuration
  model_name_or_path: "{folder}/base"
  train_seeds: [0, 100000]
environments:             # overrides by name
  plan_path: {env_id: plan_path, env_kwargs: {size: 5}}
methods:                  # overrides by name; the first is the one that the others are compared with
  at_grpo: {credit: at_grpo}
  supervised: {supervised: {demonstrations: oracle, tokens: 60000}}   # or instances: 4000; FILE.py:NAME
  single: {per_environment: {plan_path: {env_kwargs: {workflow: single}}}}
  untrained: {trained: false}
primary: [{environment: plan_path, methods: [at_grpo, single]}]
seeds: [101, 102, 103, 104, 105]
primary_seeds: [101, 102, 103, 104, 105, 106, 107, 108, 109, 110]
tokens: 60000             # generated in training, per run
evaluation: {split: test, instances: [1000, 1500]}
tuning:
  vary: {learning_rate: [0.001, 0.002, 0.004]}
  per_method: {at_grpo: {num_iterations: [1, 4]}}   # beside those of vary
  seeds: [1, 2, 3]
  split: validation
  instances: 400
prepare: "python warm_up.py --seed {seed} --output {folder}"
defaults: other.yaml      # inherits, as other configuration files do
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pettingllms_envs import recorded_settings
from pettingllms_envs.research.studies.results import Cell, label
from pettingllms_envs.settings import STRICT_FORMAT
from pettingllms_trl.config_files import read
from pettingllms_trl.research.study.plans import plan
from pettingllms_trl.research.study.plans.primary import named_of, primary_seeds_of
from pettingllms_trl.research.study.plans.study_values import check_known, flag, mapping, name_of, positive, seeds_of


AMOUNTS = ("tokens", "instances")
ORACLE = "oracle"
OWN_FIELDS = {
    "seed": "seeds",
    "output_dir": "--work",
    "max_generated_tokens": "tokens",
    "num_train_epochs": "tokens",
    "eval_seeds": "evaluation",
    "eval_split": "evaluation",
    "eval_strategy": "evaluation",
    "resume_from_checkpoint": "the same command, which resumes by itself",
}
"""Fields of a training configuration that a study sets, and what to use instead."""
TOP = {
    *("name", "base", "environments", "methods", "reference", "compare", "seeds", "tokens", "evaluation", "tuning"),
    *("prepare", "fidelity", "spread", "curve_points", "curve_instances", "notes", "primary", "primary_seeds"),
    "secondary",
}


def read_study(path: Path) -> plan.Study:
    """The study that a file describes.

    Raises:
        ValueError: There is no such file, or it is not YAML, or what it says is incomplete or contradicts itself.
    """
    return _with_reading(study_of(read(path, named="the study is").values, name=path.stem))


def _with_reading(study: plan.Study) -> plan.Study:
    """The study, each of whose environments says how replies are read, so that the files of its runs do."""
    environments = {}
    for name, own in study.environments.items():
        fields = plan.merged(study.base, own)
        settings = fields.get("env_kwargs", {})
        if "env_id" in fields and STRICT_FORMAT not in settings:
            said = recorded_settings(fields["env_id"], settings, strict=False, trusted=True)
            own = plan.merged(own, {"env_kwargs": {key: said[key] for key in said if key == STRICT_FORMAT}})
        environments[name] = own
    return replace(study, environments=environments)


def study_of(content: Any, *, name: str) -> plan.Study:
    """The study with this content; `name` is the default for its own. Raises as `read_study` does."""
    given = mapping("the file", content)
    check_known("the study", given, TOP)
    for needed in ("base", "environments", "methods", "seeds", "tokens", "evaluation"):
        if needed not in given:
            raise ValueError(f"the study has no {needed}; expected one. docs/studies.md has an example.")
    base = _fields("base", given["base"])
    environments = {
        name_of("environments", key): _fields(f"environments.{key}", value)
        for key, value in mapping("environments", given["environments"]).items()
    }
    methods = {
        name_of("methods", key): _method(key, value, environments)
        for key, value in mapping("methods", given["methods"]).items()
    }
    if not environments or not methods:
        raise ValueError("the study has no environment or no method; expected at least one of each.")
    reference = given.get("reference", next(iter(methods)))
    if reference not in methods:
        raise ValueError(f"reference is {reference!r}; expected one of the methods: {', '.join(methods)}.")
    tokens = positive("tokens", given["tokens"])
    evaluation = _instances("evaluation", given["evaluation"])
    tuning = None if given.get("tuning") is None else _tuning(given["tuning"], tokens, evaluation, methods)
    prepare = given.get("prepare")
    if prepare is not None and (not isinstance(prepare, str) or "{folder}" not in prepare):
        raise ValueError(
            f"prepare is {prepare!r}; expected a command with the placeholder {{folder}}, into which it writes. Write "
            'prepare: "python prepare.py --seed {seed} --output {folder}".'
        )
    seeds = seeds_of("seeds", given["seeds"])
    here = {each: [name for name, method in methods.items() if method.is_in(each)] for each in environments}
    primary, secondary = named_of(given, here)
    study = plan.Study(
        name=name_of("name", given.get("name", name)),
        base=base,
        environments=environments,
        methods=methods,
        reference=reference,
        compare=_compare(given.get("compare"), reference, methods),
        seeds=seeds,
        tokens=tokens,
        evaluation=evaluation,
        tuning=tuning,
        prepare=prepare,
        fidelity=_fidelity(given.get("fidelity", {})),
        spread=_spread(given.get("spread", 0.05)),
        curve_points=positive("curve_points", given.get("curve_points", 5), least=0),
        curve_instances=positive("curve_instances", given.get("curve_instances", 100)),
        notes=tuple(map(str, [own] if isinstance(own := given.get("notes", ()), str) else own)),
        primary=primary,
        secondary=secondary,
        primary_seeds=primary_seeds_of(given.get("primary_seeds"), seeds, has_primary=bool(primary)),
    )
    _check_apart(study)
    return study


def _check_apart(study: plan.Study) -> None:
    """Raise `ValueError` if instances or seeds that are reported were trained or tuned on."""
    tuning = study.tuning
    tuned = set() if tuning is None else {*tuning.seeds, *tuning.primary_seeds}
    if both := sorted(tuned.intersection((*study.seeds, *study.primary_seeds))):
        raise ValueError(
            f"the seeds {both} are those of tuning and of the evaluation; expected different ones, since settings "
            "were chosen by luck that they shared. Change tuning.seeds."
        )
    with_model = ((e, m) for e in study.environments for m in study.methods_of(e) if not study.methods[m].guesser)
    for environment, method in with_model:
        settings: Sequence[Mapping[str, Any]] = ({},)
        if tuning is not None and study.is_tuned(method):
            settings = tuning.settings_of(method)  # any of which may be chosen
        for setting in settings:
            cell = Cell(
                phase="evaluation", environment=environment, method=method, seed=study.seeds[0], setting=setting
            )
            fields = study.run(cell).config["train"]
            split = fields.get("train_split", "train")
            evaluated = {"evaluation": study.evaluation} | ({} if tuning is None else {"tuning": tuning.instances})
            for name, instances in evaluated.items():
                if instances.split == split:
                    raise ValueError(
                        f"{name}.split is {split!r}, on which {environment} is trained by {method}; expected another "
                        "split than that of train_split. Change it."
                    )
            if "max_steps" not in study.base and not str(fields["lr_scheduler_type"]).startswith("constant"):
                raise ValueError(
                    f"lr_scheduler_type is {fields['lr_scheduler_type']!r} of {method} in {environment}, but a run "
                    "ends by its tokens, and the number of steps is not known; expected constant or "
                    "constant_with_warmup. Change it, or give max_steps as well, over which the rate decays."
                )


def _method(name: str, given: Any, environments: Mapping[str, Any]) -> plan.Method:
    where = f"methods.{name}"
    fields = dict(mapping(where, {} if given is None else given))
    only, own = fields.pop("only", None), fields.pop("per_environment", {})
    guesser = flag(f"{where}.guesser", fields.pop("guesser", False), "the best policy that does not read")
    supervised = _supervised(f"{where}.supervised", None if guesser else fields.pop("supervised", None))
    trained = flag(f"{where}.trained", fields.pop("trained", not guesser), "a method that is trained")
    if supervised is not None and not trained:
        raise ValueError(f"{where} has supervised and trained: false; expected one of them. Leave the other out.")
    if only is not None and (not isinstance(only, list) or not only):
        raise ValueError(
            f"{where}.only is {only!r}; expected a list of environments, such as [{next(iter(environments))}]."
        )
    own = {key: _fields(f"{where}.per_environment.{key}", value) for key, value in mapping(where, own).items()}
    for named in (*(only or ()), *own):
        if named not in environments:
            raise ValueError(
                f"{where} names {named!r}; expected an environment of the study: {', '.join(environments)}."
            )
    unused = {name for each in (fields, *own.values()) for name in each if name not in plan.GUESSER_FIELDS}
    if guesser and (trained or unused):
        raise ValueError(
            f"{where} is a guesser and has {', '.join(sorted(unused)) or 'trained: true'}; expected no more than "
            f"{', '.join(plan.GUESSER_FIELDS)}, as it has no model. Leave the others out."
        )
    return plan.Method(
        fields=_fields(where, fields),
        per_environment=own,
        only=None if only is None else tuple(only),
        trained=trained,
        guesser=guesser,
        supervised=supervised,
    )


def _supervised(where: str, given: Any) -> Mapping[str, Any] | None:
    if given is None:
        return None
    check_known(where, mapping(where, given), {"demonstrations", *AMOUNTS})
    amounts = [name for name in AMOUNTS if name in given]
    if len(amounts) != 1:
        raise ValueError(f"{where} has {amounts or 'no amount'}; expected one of {' and '.join(AMOUNTS)}.")
    positive(f"{where}.{amounts[0]}", given[amounts[0]])
    source = given.get("demonstrations", ORACLE)
    if source != ORACLE and (not isinstance(source, str) or ":" not in source):
        raise ValueError(
            f"{where}.demonstrations is {source!r}; expected 'oracle', or FILE.py:NAME, a function of the environment "
            "and the seeds that yields `Demonstration`s."
        )
    return {"demonstrations": source, amounts[0]: given[amounts[0]]}


def _compare(given: Any, reference: str, methods: Mapping[str, Any]) -> tuple[str, ...]:
    others = [name for name in methods if name != reference]
    if given is None:
        return tuple(others)
    if not isinstance(given, list) or not set(given) <= set(others) or len(set(given)) < len(given):
        raise ValueError(
            f"compare is {given!r}; expected a list of different methods other than {reference}: {', '.join(others)}. "
            "Leave it out to compare with all of them."
        )
    return tuple(given)


def _tuning(given: Any, tokens: int, evaluation: plan.Instances, methods: Mapping[str, plan.Method]) -> plan.Tuning:
    given = mapping("tuning", given)
    check_known("tuning", given, {"vary", "per_method", "seeds", "primary_seeds", "split", "instances", "tokens"})
    vary, per_method = given.get("vary", {}), mapping("tuning.per_method", given.get("per_method", {}))
    check_known("tuning.per_method", per_method, {name for name, method in methods.items() if method.trained})
    instances = _instances("tuning", {name: given[name] for name in ("split", "instances") if name in given})
    if instances.split == evaluation.split:
        raise ValueError(
            f"tuning.split and evaluation.split are both {instances.split!r}; expected different splits, since "
            "settings that were chosen on the instances that are reported look better than they are. Set "
            "tuning.split: validation."
        )
    seeds = seeds_of("tuning.seeds", given.get("seeds"))
    more = seeds_of("tuning.primary_seeds", given["primary_seeds"]) if "primary_seeds" in given else ()
    if more and not {*seeds} < {*more}:
        raise ValueError(
            f"tuning.primary_seeds is {[*more]}; expected those of tuning.seeds, {[*seeds]}, and more, for the "
            "methods that primary comparisons name. Add them."
        )
    return plan.Tuning(
        settings=_settings("tuning.vary", vary),
        per_method={name: _settings(f"tuning.per_method.{name}", own, vary) for name, own in per_method.items()},
        seeds=seeds,
        primary_seeds=more,
        instances=instances,
        tokens=positive("tuning.tokens", given.get("tokens", tokens)),
    )


def _settings(where: str, given: Any, others: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], ...]:
    """All combinations of the values of these fields, and of others that are not among them."""
    fields = _fields(where, given)
    for name, values in fields.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{where}.{name} is {values!r}; expected a list of values, such as [0.001, 0.002].")
    if not fields:
        raise ValueError(f"{where} is empty; expected fields with values. Write learning_rate: [0.001, 0.002] there.")
    vary = {**(others or {}), **fields}
    settings = tuple(dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values()))
    if len({label(setting) for setting in settings}) < len(settings):
        raise ValueError(f"{where} has settings of the same name: {[*map(label, settings)]}; expected each once.")
    return settings


def _instances(where: str, given: Any) -> plan.Instances:
    given = mapping(where, given)
    check_known(where, given, {"split", "instances"})
    split, instances = given.get("split"), given.get("instances")
    if isinstance(instances, int) and not isinstance(instances, bool):
        instances = [0, instances]
    is_range = isinstance(instances, list) and len(instances) == 2 and all(isinstance(n, int) for n in instances)
    if not isinstance(split, str) or not is_range or not 0 <= instances[0] < instances[1]:
        raise ValueError(
            f"{where} has split {split!r} and instances {instances!r}; expected the name of a split, and how many "
            f"instances, or the first seed and the one after the last. Write {where}: {{split: test, instances: 500}}."
        )
    return plan.Instances(split=split, first=instances[0], last=instances[1])


def _fidelity(given: Any) -> plan.FidelityOptions:
    given = mapping("fidelity", given)
    check_known("fidelity", given, {"decisions", "continuations", "seed"})
    for name in ("decisions", "continuations"):
        positive(f"fidelity.{name}", given.get(name, 2), least=2)
    return plan.FidelityOptions(**given)


def _spread(given: Any) -> float:
    if not isinstance(given, int | float) or not 0 <= given < 1:
        raise ValueError(f"spread is {given!r}; expected a share such as 0.05, for 5 points.")
    return float(given)


def _fields(where: str, given: Any) -> dict[str, Any]:
    """Fields of a training configuration; which there are is checked when the command parses them."""
    fields = dict(mapping(where, given))
    for name, instead in OWN_FIELDS.items():
        if name in fields:
            raise ValueError(f"{where} sets {name}, which the study sets for each run. Use {instead} instead.")
    if not isinstance(fields.get("env_kwargs", {}), Mapping):
        raise ValueError(f"{where}.env_kwargs is {fields['env_kwargs']!r}; expected a mapping, such as {{size: 5}}.")
    try:
        json.dumps(fields)
    except TypeError as error:
        raise ValueError(
            f"{where} has a value that is no text, number, list or mapping: {error}. Quote it."
        ) from error
    return fields
