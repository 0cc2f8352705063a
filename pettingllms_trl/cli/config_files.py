"""Reads configuration files, which may inherit from others, and says where each of their lines comes from.

    defaults: [bases/paper.yaml, bases/lora.yaml]  # or one file; relative to this one; later ones win, this one last
    env_kwargs: {size: 5}                          # mappings merge, key by key; lists and values replace
    eval_levels: null                              # takes away what would be inherited; else it is a value

Files are YAML 1.1 as PyYAML reads it, with JSON's numbers: `1e-5` is one. On the command line `yes`, `no`, `on` and
`off` are words, in a file they are booleans.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pettingllms_envs.suggestions import did_you_mean


Place = tuple[Hashable, ...]
"""Of a value: the keys that lead to it."""
DEFAULTS, COMMAND_LINE = "defaults", "command line"
_ERRORS = (yaml.YAMLError, ValueError, TypeError, RecursionError)
_FLOAT, _BOOL, _STR = (f"tag:yaml.org,2002:{name}" for name in ("float", "bool", "str"))
_NUMBER_OF_JSON = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?[eE][-+]?\d+$")
_SECRET = re.compile(r"(?i)env\..*(token|key|secret|password).*|(.*\.)?((push_to_)?hub_)?token|.*api_key")


class _Loader(yaml.SafeLoader):
    """PyYAML's, with JSON's numbers."""


class _WordLoader(yaml.SafeLoader):
    """That of the command line."""


class _Dumper(yaml.SafeDumper):
    """Writes a value in one line, which `_Loader` reads as the same value."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(_FLOAT, _NUMBER_OF_JSON, list("-0123456789"))
_WordLoader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != _BOOL or first in "tTfF"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
_Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar(_STR, text, style=None if text.isprintable() else '"')
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The values of a configuration, and the origin of each.

    Args:
        origins: `FILE, line N` or `command line`, by the place of a value, perhaps of some that are no longer there.
    """

    values: Mapping[Any, Any] = field(default_factory=dict)
    origins: Mapping[Place, str] = field(default_factory=dict)

    def under(self, other: Configuration) -> Configuration:
        """With the other one's values over these."""
        return Configuration(_merged(self.values, other.values), {**self.origins, **other.origins})

    def changed(self, place: Place, value: Any) -> Configuration:
        """With the value that the command line gives a place."""
        nested = value
        for key in reversed(place):
            nested = {key: nested}
        return self.under(Configuration(nested, dict.fromkeys(_places(place, value), COMMAND_LINE)))

    def replaced(self, values: Mapping[str, Any]) -> Configuration:
        """With the options of the command line, whose mappings replace others."""
        origins = {place: origin for place, origin in self.origins.items() if place[0] not in values}
        return Configuration({**self.values, **values}, origins)

    def get(self, place: Place) -> Any:
        """The value at a place; `None` if there is none."""
        found: Any = self.values
        for key in place:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def text(self) -> str:
        """A file with these values that inherits nothing, a comment on each line saying where it comes from. Tokens
        and keys of services are left out."""
        return "".join(f"{line}\n" for line in self._lines((), self.values))

    def _lines(self, above: Place, values: Mapping[Any, Any]) -> Iterator[str]:
        for key, value in values.items():
            place = (*above, key)
            line, origin = f"{'  ' * len(above)}{_in_one_line(key)}:", self.origins.get(place, COMMAND_LINE)
            if isinstance(value, str) and _SECRET.fullmatch(".".join(map(str, place))):
                yield f"# {line} left out, a secret of {origin}"
                continue
            inner = list(self._lines(place, value)) if isinstance(value, Mapping) else []
            is_nested = any(not each.startswith("#") for each in inner)
            shown = {} if inner else value
            yield f"{line if is_nested else f'{line} {_in_one_line(shown)}':<47} # {origin}"
            yield from inner


def read(path: Path, known: Collection[str] | None = None, *, named: str = "--config is") -> Configuration:
    """Read a file and those that it inherits from.

    Args:
        known: Names of its fields; `None`: any.
        named: Begins the error if there is no such file.

    Raises:
        ValueError: There is no such file, it is not YAML, has an unknown field, or inherits from itself. The message
            has the file, the line and the key.
    """
    return _read(path, known, named, ())


def value_of(text: str, key: str) -> Any:
    """The value that `key=text` has on the command line. Raises `ValueError` if it is no YAML."""
    try:
        return yaml.load(text, _WordLoader)
    except _ERRORS as error:
        raise ValueError(f"{key} is {text!r}: {error}; expected YAML. Write {key}=5, or {key}='[1, 2]'.") from error


def _read(path: Path, known: Collection[str] | None, named: str, above: tuple[Path, ...]) -> Configuration:
    if path.resolve() in [each.resolve() for each in above]:
        circle = " -> ".join(map(str, (*above, path)))
        raise ValueError(f"{named} {str(path)!r}, which inherits from itself: {circle}. Remove one of these defaults.")
    own = _one_file(path, named)
    for name in own.values:
        if known is not None and name not in (*known, DEFAULTS):
            hint = did_you_mean(name, known) or " Remove it; --help shows every field."
            raise ValueError(f"{own.origins[(name,)]} has {str(name)!r}; expected a field that is known.{hint}")
    given = own.values.get(DEFAULTS, [])
    bases = [given] if isinstance(given, str) else given
    if not isinstance(bases, list) or not all(isinstance(each, str) for each in bases):
        raise ValueError(
            f"{own.origins[(DEFAULTS,)]} has defaults: {given!r}; expected a file or a list of files, by their paths "
            "from here. Write defaults: base.yaml."
        )
    found = Configuration()
    for base in bases:
        inherited = f"{own.origins[(DEFAULTS,)]} has defaults:"
        found = found.under(_read(path.parent / base, known, inherited, (*above, path)))
    values = {name: value for name, value in own.values.items() if name != DEFAULTS}
    return found.under(Configuration(values, own.origins))


def _one_file(path: Path, named: str) -> Configuration:
    """What a file itself says. Raises as `read` does."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ValueError(
            f"{named} {str(path)!r}: {error.strerror}; expected the path of a readable YAML file. Correct it."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}; expected YAML, in UTF-8. Fix the file.") from error
    origins: dict[Place, str] = {}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            return Configuration(_values(loader, node, (), f"{path}, line", origins), origins)
        kind = type(None if node is None else loader.construct_object(node)).__name__
    except _ERRORS as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        line = "" if mark is None else [*text.splitlines(), ""][min(mark.line, len(text.splitlines()))]
        where = path if mark is None else f"{path}, line {mark.line + 1}: {line!r}"
        why = error.problem if isinstance(error, yaml.MarkedYAMLError) else error
        cure = "Indent with spaces, not tabs." if "\t" in line else "Fix the file."
        raise ValueError(f"{where}: {why}; expected YAML. {cure}") from error
    raise ValueError(f"{path} has a {kind}; expected lines such as `env_id: ...`. Write one option per line.")


def _values(
    loader: _Loader, node: yaml.MappingNode, above: Place, where: str, origins: dict[Place, str]
) -> dict[Any, Any]:
    """The values of a mapping; adds the origin of each."""
    loader.flatten_mapping(node)
    found = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        origins[*above, key] = f"{where} {key_node.start_mark.line + 1}"
        if isinstance(value_node, yaml.MappingNode) and value_node.tag == "tag:yaml.org,2002:map":
            found[key] = _values(loader, value_node, (*above, key), where, origins)
        else:
            found[key] = loader.construct_object(value_node, deep=True)
    return found


def _merged(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    merged = dict(base)
    for key, value in over.items():
        before = base.get(key)
        if value is None and key in base:
            del merged[key]
        elif isinstance(value, Mapping) and isinstance(before, Mapping):
            merged[key] = _merged(before, value)
        else:
            merged[key] = value
    return merged


def _places(place: Place, value: Any) -> Iterator[Place]:
    yield place
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        yield from _places((*place, key), inner)


def _in_one_line(value: Any) -> str:
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("...\n").strip()
