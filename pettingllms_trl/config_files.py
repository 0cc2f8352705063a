"""Reads configuration files, which may inherit from others, and says where each of their lines comes from.

    defaults: [bases/paper.yaml, bases/lora.yaml]  # or one file; relative to this one; later ones win, this one last
    env_kwargs: {size: 5}                          # mappings merge, key by key; lists and values replace
    eval_levels: null                              # takes away what would be inherited; else it is a value

Files are YAML 1.1 as PyYAML reads it, with JSON's numbers: `1e-5` is one. `yes`, `no`, `on` and `off` are
booleans, but words as the whole value of a field on the command line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import yaml
from yaml.composer import ComposerError

from pettingllms_envs.suggestions import did_you_mean


Place = tuple[Hashable, ...]
"""Of a value: the keys that lead to it."""
DEFAULTS, COMMAND_LINE = "defaults", "command line"
_ERRORS = (yaml.YAMLError, ValueError, TypeError, RecursionError)
_FLOAT, _BOOL, _STR, _MAP = (f"tag:yaml.org,2002:{name}" for name in ("float", "bool", "str", "map"))
_NUMBER_OF_JSON = re.compile(r"^-?(0|[1-9]\d*)(\.\d+)?[eE][-+]?\d+$")
_SECRET = re.compile(r"(?i)env\..*(token|key|secret|password).*|(.*\.)?((push_to_)?hub_)?token|.*api_key")


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: str | None) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: dict[Any, Any] = {}
        for key, _ in node.value:
            before = seen.setdefault((key.tag, str(key.value)), key)
            if before is not key and key.tag != "tag:yaml.org,2002:merge":
                problem = f"line {before.start_mark.line + 1} has {key.value!r}, too; one of them would be lost"
                raise ComposerError(None, None, problem, key.start_mark)
        return node


class _Dumper(yaml.SafeDumper):
    pass


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(_FLOAT, _NUMBER_OF_JSON, list("-0123456789"))
_Dumper.add_representer(  # each value in one line
    str, lambda dumper, text: dumper.represent_scalar(_STR, text, style=None if text.isprintable() else '"')
)


class _WordLoader(_Loader):
    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [each for each in resolvers if each[0] != _BOOL or first in "tTfF"]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class Configuration:
    """The values of a configuration, and the origins of their places: `FILE, line N`, or none: the command line."""

    values: Mapping[Any, Any] = field(default_factory=dict)
    origins: Mapping[Place, str] = field(default_factory=dict)

    def origin(self, *place: Hashable) -> str:
        return self.origins.get(place, COMMAND_LINE)

    def under(self, other: Configuration) -> Configuration:
        """With the other one's values over these."""
        return Configuration(_merged(self.values, other.values), {**self.origins, **other.origins})

    def changed(self, place: Place, value: Any) -> Configuration:
        """With the value that the command line gives a place."""
        nested = value
        for key in reversed(place):
            nested = {key: nested}
        return self.under(Configuration(nested, dict.fromkeys(_places(place, value), COMMAND_LINE)))

    def text(self) -> str:
        """A file with these values that inherits nothing, a comment on each line saying where it comes from. Tokens
        and keys of services are left out."""
        return "".join(f"{line}\n" for line in self._lines((), self.values))

    def _lines(self, above: Place, values: Mapping[Any, Any]) -> Iterator[str]:
        for key, value in values.items():
            place = (*above, key)
            line, origin = f"{'  ' * len(above)}{_in_one_line(key)}:", self.origin(*place)
            if isinstance(value, str) and _SECRET.fullmatch(".".join(map(str, place))):
                yield f"# {line} left out, a secret of {origin}"
                continue
            inner = list(self._lines(place, value)) if isinstance(value, Mapping) else []
            if all(each.startswith("#") for each in inner):
                line += f" {_in_one_line({} if inner else value)}"
            yield f"{line:<47} # {origin}"
            yield from inner


def read(
    path: Path, known: Collection[str] | None = None, *, named: str = "--config is", above: tuple[Path, ...] = ()
) -> Configuration:
    """Read a file, which has some of the `known` fields, and those that it inherits from; `above` inherit from it."""
    if path.resolve() in [each.resolve() for each in above]:
        circle = " -> ".join(map(str, (*above, path)))
        raise ValueError(f"{named} {str(path)!r}, which inherits from itself: {circle}. Remove one of these defaults.")
    own = _one_file(path, named)
    for name in own.values:
        if known is not None and name not in (*known, DEFAULTS):
            refuse(str(name), [*known], own.origin(name))
    values = dict(own.values)
    given = values.pop(DEFAULTS, [])
    bases = [given] if isinstance(given, str) else given
    where = f"{own.origin(DEFAULTS)} has defaults:"
    if not isinstance(bases, list) or not all(isinstance(each, str) for each in bases):
        raise ValueError(f"{where} {given!r}; expected a file or a list of files. Write defaults: base.yaml.")
    found = Configuration()
    for base in bases:
        found = found.under(read(path.parent / base, known, named=where, above=(*above, path)))
    return found.under(Configuration(values, own.origins))


def value_of(text: str, key: str) -> Any:
    """The value that `key=text` has on the command line. Raises `ValueError` if it is no YAML."""
    is_part = "." in key or text.lstrip().startswith(("{", "["))  # `trainable=no` is meant as in a file
    try:
        return yaml.load(text, _Loader if is_part else _WordLoader)
    except _ERRORS as error:
        raise ValueError(f"{key} is {text!r}: {error}; expected YAML. Write {key}=5, or {key}='[1, 2]'.") from error


def _one_file(path: Path, named: str) -> Configuration:
    """What a file itself says. Raises as `read` does."""
    origins, lines = dict[Place, str](), list[str]()
    try:
        text = path.read_text("utf-8")
        lines = [*text.splitlines(), ""]
        loader = _Loader(text)
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            return Configuration(_values(loader, node, (), f"{path}, line", origins), origins)
    except OSError as error:
        raise ValueError(f"{named} {str(path)!r}: {error.strerror}; expected a YAML file. Correct it.") from error
    except yaml.MarkedYAMLError as error:
        number = 0 if error.problem_mark is None else min(error.problem_mark.line, len(lines) - 1)
        cure = "Indent with spaces, not tabs." if "\t" in lines[number] else "Fix the file."
        where = f"{path}, line {number + 1}: {lines[number]!r}: {error.problem}"
        raise ValueError(f"{where}; expected YAML. {cure}") from error
    except _ERRORS as error:
        raise ValueError(f"{path}: {error}; expected YAML. Fix the file.") from error
    kind = {yaml.SequenceNode: "a list", yaml.ScalarNode: "a text"}.get(type(node), "nothing")
    raise ValueError(f"{path} has {kind}; expected lines such as `env_id: ...`. Write one option per line.")


def _values(loader: _Loader, node: Any, above: Place, where: str, origins: dict[Place, str]) -> dict[Any, Any]:
    """The values of a mapping; adds the origin of each."""
    loader.flatten_mapping(node)
    found = {}
    for key_node, value in node.value:
        key = loader.construct_object(key_node, deep=True)
        origins[*above, key] = f"{where} {key_node.start_mark.line + 1}"
        if isinstance(value, yaml.MappingNode) and value.tag == _MAP:
            found[key] = _values(loader, value, (*above, key), where, origins)
        else:
            found[key] = loader.construct_object(value, deep=True)
    return found


def _merged(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    merged = {key: value for key, value in base.items() if key not in over or over[key] is not None}
    for key, value in over.items():
        before = base.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            merged[key] = _merged(before, value)
        elif value is not None or key not in base:
            merged[key] = value
    return merged


def _places(place: Place, value: Any) -> Iterator[Place]:
    yield place
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        yield from _places((*place, key), inner)


def _in_one_line(value: Any) -> str:
    options: Any = {"default_flow_style": True, "width": math.inf, "allow_unicode": True, "sort_keys": False}
    text: str = yaml.dump(value, Dumper=_Dumper, **options)
    return text.removesuffix("...\n").strip()


def refuse(given: str, known: Sequence[str], where: str) -> NoReturn:
    """Raise `ValueError` for an unknown name, with the nearest known one."""
    hint = did_you_mean(given, known) or " Remove it; --help shows every field."
    raise ValueError(f"{where} has {given!r}; expected a field that is known.{hint}")
