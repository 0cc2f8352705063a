"""Converts mappings in a configuration to values: environments, curricula, models behind an API."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms_envs.programs.maker import in_file
from pettingllms_trl.config_files import refuse
from pettingllms_trl.engines.api import ChatApi
from pettingllms_trl.policies.routing import Api
from pettingllms_trl.rollout.curriculum import Curriculum


LISTS = (list[int], list[int] | None)
_TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One of several environments in the field `environments`.

    Args:
        env_id: An id of PettingZoo's AEC registry.
        train_levels: Values of its reset option `level` in training, used in turn. `None` leaves it out.
    """

    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    train_levels: Sequence[int] | None = None
    eval_levels: Sequence[int] | None = None


def curricula(given: Mapping[str, Any] | None, names: Sequence[str]) -> Curriculum | dict[str, Curriculum] | None:
    """The fields of a curriculum as a `Curriculum`; with several environments, one for each that has one, by name."""
    if given is None:
        return None
    if not names:
        return _curriculum("curriculum", given)
    check_names("curriculum", given, names)
    return {name: _curriculum(f"curriculum[{name!r}]", fields) for name, fields in given.items()}


def _curriculum(name: str, given: Any) -> Curriculum:
    known = [f.name for f in dataclasses.fields(Curriculum)]
    if not isinstance(given, Mapping) or not isinstance(given.get("levels"), list):
        raise ValueError(f"{name} is {given!r}; expected a mapping with a list. Write {{levels: [1, 2, 3]}}.")
    check_names(name, given, known)
    return Curriculum(**{**given, "levels": tuple(given["levels"])})


def environments(given: Mapping[str, Any]) -> dict[str, Environment]:
    """An id, or the fields of an `Environment`, by name."""
    known = [f.name for f in dataclasses.fields(Environment)]
    made = {}
    for name, what in given.items():
        if isinstance(what, str):
            what = {"env_id": what}
        if not isinstance(what, Mapping) or not isinstance(what.get("env_id"), str):
            raise ValueError(
                f"environments[{name!r}] is {what!r}; expected an id, or a mapping with an env_id. Write {name}: "
                "{env_id: pettingllms/sokoban-v0}."
            )
        check_names(f"environments[{name!r}]", what, known)
        made[str(name)] = Environment(**what)
    return made


def api_of(name: str, given: Any) -> Api:
    """The fields of an endpoint as a `ChatApi`, or the function of `FILE.py:NAME`, such as a scripted partner."""
    known = [f.name for f in dataclasses.fields(ChatApi)]
    if isinstance(given, str) and ".py:" in given:
        return function_of_file(name, given, "(messages, tools=())")
    if not isinstance(given, Mapping):
        raise ValueError(
            f"{name} is {given!r}; expected a mapping, or a function of a file. Write api: {{base_url: ..., model: "
            "...}, or api: FILE.py:NAME."
        )
    check_names(name, given, known)
    missing = [each for each in ("base_url", "model") if each not in given]
    if missing:
        raise ValueError(f"{name} is without {', '.join(missing)}; expected at least base_url and model. Add them.")
    return ChatApi(**given)


def function_of_file(name: str, given: str, arguments: str) -> Callable[..., Any]:
    """The function of `FILE.py:NAME`; `ValueError` if there is something else, with the arguments that it takes."""
    _, found = in_file(name, given)
    if not callable(found):
        raise ValueError(
            f"{name} is {given!r}, which is {found!r}; expected a function. Write def "
            f"{given.rpartition(':')[2]}{arguments}: ... there, or correct the name."
        )
    return found


def check_type(name: str, given: Any, hint: Any, where: str) -> None:
    """Raise `ValueError` for a value that is not of its field's type; texts are converted later, as options are."""
    if hint in LISTS and given is not None and not (isinstance(given, list) and all(type(n) is int for n in given)):
        example = "[0, 1000]" if name.endswith("seeds") else "[1, 2]"
        raise ValueError(f"{where} has {name}: {given!r}; expected a list of integers. Write {name}: {example}.")
    for kind, expected in _TYPES.items():
        accepted = {float: (int, float), str: (int, float, bool)}.get(kind, (kind,))
        nothing = [] if hint == kind else [type(None)]
        if hint in (kind, kind | None) and type(given) not in (*accepted, *nothing, str):
            raise ValueError(f"{where} has {name}: {given!r}; expected {expected}. Correct it.")


def check_names(where: str, given: Iterable[Any], known: Sequence[str]) -> None:
    """Raise `ValueError` for the first name that is not known."""
    for name in given:
        if name not in known:
            refuse(str(name), known, where)
