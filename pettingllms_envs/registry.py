"""The registry of environments: those of this package, and those of installed plug-ins.

A plug-in declares an entry point of the group `pettingllms.envs` in its pyproject.toml:

    [project.entry-points."pettingllms.envs"]
    my_task_v0 = "my_package.my_task_v0"

Its module has a function `env` (see `pettingllms_envs.assembly`) that makes an environment of that name; it is
imported when the environment is made. Only installed modules are ever imported: a name is looked up here, and never
interpreted as a module. The exceptions say so themselves: `"FILE.py:NAME"` is an environment or a program of that file
(`pettingllms_envs.programs`), which is imported, `"openenv:URL"` a server's. No command uses what only a record names.
"""

from __future__ import annotations

import importlib
import re
import tomllib
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pettingllms_envs.doors import VERSIONED, doors
from pettingllms_envs.settings import STRICT_FORMAT
from pettingllms_envs.suggestions import did_you_mean


if TYPE_CHECKING:
    from pettingllms_envs.aec import TextEnv

GROUP = "pettingllms.envs"
BUILT_IN = "pettingllms"
PROGRAM, OPENENV = "program:", "openenv:"
_FILE, _VERSION = re.compile(r"\.py:\w*$"), re.compile(r"-v(\d+)$")


class Entry(NamedTuple):
    """An available environment.

    Args:
        version: Its version: the N of `_vN`.
        origin: The distribution that provides it: `"pettingllms"` or another package's name.
    """

    name: str
    version: int
    module: str
    origin: str

    @property
    def full_name(self) -> str:
        """The name with the version, such as `"sokoban_v0"`; what a file has is without."""
        return self.name if self.name.startswith((PROGRAM, OPENENV)) else f"{self.name}_v{self.version}"


def entries() -> tuple[Entry, ...]:
    """All available environments, by name and version; one that two packages provide is listed twice."""
    own = [Entry(*door, BUILT_IN) for door in doors()]
    return tuple(sorted([*own, *_plug_ins()]))


def list_environments() -> tuple[str, ...]:
    """The names that `make` knows, in alphabetical order."""
    return tuple(sorted({entry.name for entry in entries()}))


def is_elsewhere(name: str) -> bool:
    """Whether a name is of a file, `"FILE.py:NAME"` or `"program:FILE.py:NAME"`, or of a server, `"openenv:URL"`."""
    return name.startswith((PROGRAM, OPENENV)) or _FILE.search(name) is not None


def find(name: str) -> Entry:
    """The environment of a name: `"sokoban"` is its newest version, `"sokoban_v0"` that version.

    PettingZoo's spelling, `"pettingllms/sokoban-v0"`, names the same environment. `"FILE.py:NAME"` is found as
    `"program:FILE.py:NAME"`, and the file is read when the environment is made.
    """
    if str(name).startswith(OPENENV):
        return Entry(name, 0, f"{__package__}.remote.openenv_env", name)
    if is_elsewhere(str(name)):
        path = name.removeprefix(PROGRAM)
        return Entry(PROGRAM + path, 0, f"{__package__}.programs", path.rpartition(":")[0])
    known = entries()
    spelled = _VERSION.sub(r"_v\1", str(name).removeprefix(f"{BUILT_IN}/"))
    named = [entry for entry in known if spelled in (entry.name, entry.full_name)]
    if not named:
        names = sorted({entry.name for entry in known})
        here = " The pyproject.toml here declares it, and `pip install -e .` installs it."
        hint = here if _is_declared_here(spelled) else did_you_mean(spelled, names)
        raise ValueError(
            f"no environment {name!r}.{hint} There are: {', '.join(names)} "
            "(`pettingllms list`), or FILE.py:NAME of a file."
        )
    newest = [entry for entry in named if entry.version == named[-1].version]
    if len(newest) > 1:
        origins = " and ".join(entry.origin for entry in newest)
        raise ValueError(f"{newest[0].full_name} is offered by {origins}; expected one. Uninstall one of them.")
    return newest[0]


def make(name: str, **kwargs: Any) -> TextEnv:
    """Make an environment.

    Args:
        name: One of `list_environments()`, such as `"sokoban"`, for the newest version, or with it: `"sokoban_v0"`; or
            as PettingZoo's registry has it, `"pettingllms/sokoban-v0"`. Or one as `is_elsewhere` has it.
        **kwargs: Settings: those of `pettingllms_envs.assembly.assemble` and of the task's class.

    Raises:
        ValueError: There is no such environment, two packages provide it, its own name is another one, or a setting is
            out of range.
        TypeError: The environment has no such setting.
    """
    entry = find(name)
    module = importlib.import_module(entry.module)
    if is_elsewhere(name):
        return module.load(entry.name)(**kwargs)  # type: ignore[no-any-return]
    made: TextEnv = module.env(**kwargs)
    _check_name(made, entry)
    return made


def recorded_settings(
    name: str, settings: Mapping[str, Any], *, strict: bool = True, trusted: bool = False
) -> dict[str, Any]:
    """The settings with which to make the environment of a record again, or of a team: they say how replies are read.

    A record that does not say it is from before that was a setting, when all were read strictly.

    Args:
        strict: What holds where the settings do not say it.
        trusted: Whether a file may be run; else the settings of its environment stay as they are.
    """
    if STRICT_FORMAT not in settings and (trusted or not is_elsewhere(name)):
        with suppress(ValueError, TypeError, ImportError, OSError):  # raised again where the environment is made
            if STRICT_FORMAT in make(name, **settings).metadata.get("defaults", ()):
                return {**settings, STRICT_FORMAT: strict}
    return dict(settings)


def _is_declared_here(name: str) -> bool:
    """Whether pyproject.toml in the current folder declares an environment of this name, as one of `new` does."""
    try:
        points = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]["entry-points"][GROUP]
        return any(name in (point, point.rpartition("_v")[0]) for point in points)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _check_name(made: Any, entry: Entry) -> None:
    """Raise ValueError if one of our environments has another name, since its records could not be replayed."""
    from pettingllms_envs.aec import TextEnv

    inner = made.unwrapped
    if isinstance(inner, TextEnv) and inner.metadata["name"] != entry.full_name:
        raise ValueError(
            f"{entry.module} of {entry.origin} makes {inner.metadata['name']!r}; expected {entry.full_name!r}, under "
            f"which it is offered. Write assemble(..., name={entry.full_name!r}), or TextEnv(..., "
            f"name={entry.full_name!r})."
        )


@cache
def _plug_ins() -> tuple[Entry, ...]:
    """The environments of installed packages. Cached, since it reads the metadata of all installed packages."""
    found = []
    for point in entry_points(group=GROUP):
        origin = point.dist.name if point.dist else "an unknown package"
        if named := VERSIONED.fullmatch(point.name):
            found.append(Entry(named[1], int(named[2]), point.value, origin))
        else:
            warnings.warn(
                f"{origin} offers {point.name!r} in {GROUP}; expected a name such as 'my_task_v0'. It is left out.",
                stacklevel=3,
            )
    return tuple(found)
