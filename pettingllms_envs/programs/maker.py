"""`program(...)` makes environments of a program; `FILE.py:NAME` names one of a file, or another environment."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from pettingzoo import AECEnv

from pettingllms_envs.programs.program import Program
from pettingllms_envs.programs.program_env import ProgramEnv
from pettingllms_envs.programs.runs import Target


@dataclass(frozen=True, slots=True)
class ProgramMaker:
    """Makes environments of a program."""

    program: Program

    def __call__(self, **settings: Any) -> ProgramEnv:
        """A new environment; `settings` replace those of the program."""
        return ProgramEnv(replace(self.program, **settings))


def program(target: Target, agents: Sequence[str] | Mapping[str, str], **settings: Any) -> ProgramMaker:
    """Make an environment of a program, as `env=` of a trainer wants it; see [`Program`] for the arguments."""
    return ProgramMaker(Program(target=target, agents=agents, **settings))


@cache
def load(name: str) -> Callable[..., Any]:
    """What makes the environment `program:FILE.py:NAME`."""
    there = name.partition(":")[2]
    file, _, variable = there.rpartition(":")
    module, found = in_file("the environment", there)
    if not _is_maker(found):
        own = (module.__name__, ProgramMaker.__module__, "functools")
        known = [each for each, value in vars(module).items() if _is_maker(value) and value.__module__ in own]
        raise ValueError(
            f"{file} has {'no' if found is None else type(found).__name__} {variable!r}; expected a program, "
            f"{variable} = program(my_function, agents=(...)), or a function without arguments that makes an "
            f"environment. It has: {', '.join(known) or 'none'}."
        )
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    if isinstance(found, ProgramMaker):
        found = ProgramMaker(replace(found.program, name=name))
    return partial(_made, found, f"{name} {digest}")


def in_file(what: str, name: str) -> tuple[ModuleType, Any]:
    """The module of `FILE.py:NAME`, which is imported once, and what it calls NAME, or None.

    Its folder is searched for what it imports.

    Raises:
        ValueError: There is no such file; `what` begins the error.
    """
    file, _, variable = name.rpartition(":")
    path = Path(file)
    if path.suffix != ".py" or not path.is_file() or not variable.isidentifier():
        raise ValueError(
            f"{what} is {name!r}; expected a file of this machine and a name in it, such as team.py:team. "
            f"{'There is no such file.' if variable.isidentifier() else 'Correct it.'}"
        )
    module = _imported(path.resolve())
    return module, getattr(module, variable, None)


def _is_maker(value: Any) -> TypeGuard[Callable[..., Any]]:
    """Whether something can be called without arguments."""
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):  # no function, one with arguments, or one that does not tell
        return False
    return True


def _made(make: Callable[..., Any], identity: str, **settings: Any) -> Any:
    env = make(**settings)
    if not isinstance(env, AECEnv):
        raise ValueError(f"{identity.partition(' ')[0]} makes {env!r}; expected an AECEnv. Name what makes one.")
    env.metadata["identity"] = identity
    return env


@cache
def _imported(path: Path) -> ModuleType:
    name = f"pettingllms_program_{hashlib.sha256(bytes(path)).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
