"""The arguments of the commands: every field from a YAML file (`--config`) or from the command line, which wins.

    pettingllms train --config run.yaml env_kwargs.size=5 policies.planner.learning_rate=1e-5 --max_steps 20

TRL's own parser and dataclasses, plus what TRL cannot know: the environment and its policies. In the YAML file
`env` is TRL's mapping of environment *variables*; the environment to be played is `env_id`.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import sys
from argparse import SUPPRESS, Action, ArgumentDefaultsHelpFormatter, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from accelerate import PartialState
from peft import PeftConfig
from transformers.integrations import get_available_reporting_integrations
from trl import ModelConfig, TrlParser, get_peft_config

from pettingllms_trl.cli.fields import LISTS, api_of, check_names, check_type, environments
from pettingllms_trl.config import with_help
from pettingllms_trl.config_files import COMMAND_LINE, Configuration, read, refuse, value_of
from pettingllms_trl.policies.routing import Policy, route
from pettingllms_trl.records import role_of


@with_help
@dataclass
class TeamArguments:
    r"""
    The team: an environment and the policies of its agents.

    Args:
        env_id (`str`):
            A name as `pettingllms list` shows it, such as `"sokoban"`, `FILE.py:NAME`, or an id of PettingZoo's AEC
            registry, such as `"pettingllms/sokoban-v0"`.
        env_kwargs (`dict`, *optional*):
            Settings of the environment, such as `{"size": 6}`.
        environments (`dict`, *optional*):
            Instead of those two, several environments by name: each an id, or a mapping with `env_id`, and perhaps
            `env_kwargs`, `train_levels`, `eval_levels`. They are played in turn, or a data set names the environment
            of each row in its column `environment`.
        imports (`list[str]`, *optional*):
            Installed packages to import first, because they register an environment with PettingZoo:
            `["my_package"]`. What `pettingllms list` shows needs none. This runs their code. Nothing else that a
            configuration names is imported, but for `reward_funcs`, `credit`, `filters` and what names a file.
        policies (`str` or `dict`, *optional*, defaults to `"shared"`):
            `"shared"` (L1), `"lora"` (L2), `"full"` (L3), or a mapping from agents or roles to the name of an adapter
            or to the fields of a [`Policy`].
    """

    env_id: str | None = field(default=None, metadata={"aliases": ["--env"]})
    env_kwargs: dict[str, Any] | str | None = None
    environments: dict[str, Any] | str | None = None
    imports: list[str] = field(default_factory=list)
    policies: dict[str, Any] | str | None = "shared"
    resolved: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.env_kwargs = mapping("env_kwargs", self.env_kwargs) or {}
        self.environments = environments(mapping("environments", self.environments) or {})
        if self.environments and (self.env_id is not None or self.env_kwargs):
            raise ValueError(
                f"there are environments and env_id={self.env_id!r} with env_kwargs={self.env_kwargs}; expected one "
                "kind. Move env_id and env_kwargs among the environments, under a name."
            )
        if self.env_id is None and not self.environments:
            raise ValueError(
                "no env_id; expected the name of an environment. Add env_id: sokoban (`pettingllms list`)."
            )
        if not isinstance(self.policies, str) or self.policies.lstrip().startswith("{"):
            self.policies = policies(mapping("policies", self.policies) or {})


@dataclass
class TeamModelConfig(ModelConfig):
    """TRL's `ModelConfig` with the defaults of [`MultiAgentGRPOTrainer`]'s adapters: every linear layer, and no
    dropout, which TRL would not disable while sampling."""

    lora_dropout: float = field(default=0.0, metadata={"help": "LoRA dropout."})
    lora_target_modules: list[str] | None = field(
        default_factory=lambda: ["all-linear"], metadata={"help": "LoRA target modules."}
    )


_ARGUMENT = re.compile(r"argument --(\w+)")
_KEY = re.compile(r"([A-Za-z_]\w*(?:\.[^.=\s]+)*)=(.*)", re.DOTALL)


def parse(argv: Sequence[str], kinds: Sequence[type], *, prog: str, description: str | None = None) -> tuple[Any, ...]:
    """Parse the arguments into one object of each kind. With `--show` they are printed, and the process ends."""
    parser = _Parser(kinds, prog=prog, description=description, allow_abbrev=False)
    parser.shorten(_fields_of_trl(kinds))
    hints = {name: hint for kind in kinds for name, hint in get_type_hints(kind).items()}
    known = [*(f.name for kind in kinds for f in dataclasses.fields(kind) if f.init), "env"]
    known.sort(key=lambda name: name not in FIRST)  # of several that are near to a misspelt one, these are suggested
    config, keys, options = parser.taken_apart(argv)
    found = Configuration() if config is None else read(Path(config), known)
    for action in parser._actions:
        action.type = str if hints.get(action.dest) in LISTS else action.type  # also for a list as YAML has it
    given, unread = parser.parse_known_args(options, Namespace(**dict.fromkeys(known, SUPPRESS)))
    if unread:
        refuse(unread[0], [f"--{name}" for name in known], "the command line")
    for name, value in [(name, value) for name, value in vars(given).items() if name in known and value != SUPPRESS]:
        if hints[name] in LISTS:
            value = value_of(" ".join(value) if "[" in value[0] else f"[{', '.join(value)}]", name)
        elif isinstance(value, str) and value.lstrip().startswith("{"):
            value = mapping(name, value)
        origins = {place: origin for place, origin in found.origins.items() if place[0] != name}
        found = Configuration({**found.values, name: value}, origins)
    for key, text in keys:
        found = _changed(found, key, text, known, parser)
    for name, value in found.values.items():
        check_type(name, value, hints.get(name), found.origin(name))
    variables = found.values.get("env", {})
    if not isinstance(variables, dict):
        raise ValueError(
            f"{found.origin('env')} has env: {variables!r}; TRL expected a mapping of environment variables there. "
            "The environment to be played is env_id."
        )
    parser.found = found
    parser.set_defaults_with_config(**found.values)
    resolved = f"# {prog}: {config or COMMAND_LINE}, and where each line is from\n{found.text()}"
    if "show" in given:
        parser.parse_known_args([])  # refuses what a field does not take
        print(resolved, end="")  # noqa: T201
        sys.exit(0)
    os.environ.update({name: str(value) for name, value in variables.items()})
    *parsed, _ = parser.parse_args_into_dataclasses([], return_remaining_strings=True)
    parsed[0].resolved = resolved
    return tuple(parsed)


def keep(resolved: str, output_dir: str) -> None:
    """Write the resolved configuration into the output folder."""
    if PartialState().is_main_process:
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        (Path(output_dir) / "config.yaml").write_text(resolved, "utf-8")


def _changed(found: Configuration, key: str, text: str, known: Sequence[str], parser: _Parser) -> Configuration:
    """The configuration with `key=text`; a text on the way becomes the mapping that it stands for."""
    place = tuple(key.split("."))
    if place[0] not in known:
        refuse(place[0], known, "the command line")
    here: Any = found.values.get(place[0]) or parser.get_default(place[0])
    for depth in range(1, len(place)):
        if isinstance(here, str):
            here = _standing_for(here, place[:depth], place[depth], found.values)
            found = found.changed(place[:depth], here)
        if not isinstance(here, Mapping | None):
            above = ".".join(place[:depth])
            raise ValueError(f"the command line has {key}, but {above} is {here!r}; expected a mapping. Set {above}.")
        here = None if here is None else here.get(place[depth])
    return found.changed(place, value_of(text, key))


def _standing_for(text: str, place: tuple[str, ...], key: str, values: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """The mapping that a text at a place stands for, of which `key` is changed; a text that stands for none."""
    match place:
        case ("credit",):
            return {text: {}}
        case ("environments", _):
            return {"env_id": text}
        case ("policies", _):
            return {"adapter": text}
        case ("policies" | "history",):
            fields = ("env_id", "env_kwargs", "environments", "imports")
            team = TeamArguments(**{name: values[name] for name in fields if name in values})
            import_packages(team.imports)
            from pettingllms_trl.cli.datasets import agents_of, makers  # loads more than most commands need

            agents, model = agents_of(makers(team)), values.get("model_name_or_path")
            names = dict.fromkeys([*map(role_of, agents), *([key] if key in agents else [])])
            if place == ("history",):
                return dict.fromkeys(names, text)
            route(text, agents, model=model)  # refuses what stands for nothing
            own = {"lora": lambda role: {"adapter": role}, "full": lambda role: {"name": role, "model": model}}
            return {name: own[text](role_of(name)) if text in own else {} for name in names}
    return text


def mapping(name: str, given: Mapping[str, Any] | str | None) -> dict[str, Any] | None:
    """The value of a field that is a mapping, or YAML of one, which JSON is."""
    given = value_of(given, name) if isinstance(given, str) else given
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"{name} is {given!r}; expected a mapping. Write {name}: {{a: 1}} in the YAML file.")
    return None if given is None else dict(given)


def policies(given: Mapping[str, Any]) -> dict[str, str | Policy]:
    """The policies, with the fields of each policy as a `Policy`; names of adapters are kept."""
    known = [f.name for f in dataclasses.fields(Policy)]
    made: dict[str, str | Policy] = {}
    for who, what in given.items():
        if isinstance(what, Mapping):
            check_names(f"policies[{who!r}]", what, known)
            api = {"api": api_of(f"policies[{who!r}].api", what["api"])} if what.get("api") is not None else {}
            try:
                made[who] = Policy(**{**what, **api})
            except ValueError as error:
                raise ValueError(f"policies[{who!r}]: {error}") from error
        elif isinstance(what, str):
            made[who] = what
        else:
            raise ValueError(
                f"policies[{who!r}] is {what!r}; expected the name of an adapter, or a mapping with some of "
                f"{', '.join(known)}. Write {who}: {{adapter: {who}}}."
            )
    return made


def has_adapters(given: str | Mapping[str, str | Policy]) -> bool:
    """Whether some of the policies are adapters."""
    if isinstance(given, str):
        return given == "lora"
    return any(isinstance(policy, str) or policy.adapter is not None for policy in given.values())


def peft_config(config: ModelConfig, given: str | Mapping[str, str | Policy]) -> PeftConfig | None:
    """The configuration of the adapters or, if the policies have none, that of `use_peft`."""
    return get_peft_config(dataclasses.replace(config, use_peft=True) if has_adapters(given) else config)


def model_init_kwargs(config: ModelConfig, args: Any) -> dict[str, Any]:
    """The arguments for loading the model, assembled as in TRL's scripts."""
    return {
        "revision": config.model_revision,
        "trust_remote_code": args.trust_remote_code,
        "attn_implementation": config.attn_implementation,
        "dtype": config.dtype,
        **(args.model_init_kwargs or {}),
    }


def check_model(config: ModelConfig) -> None:
    """Raise `ValueError` if no model is given."""
    if config.model_name_or_path is None:
        raise ValueError(
            "no model_name_or_path; expected a model of the Hub or a folder. Add model_name_or_path: Qwen/Qwen3-1.7B."
        )


@contextmanager
def naming_models(model: str | None, given: str | Mapping[str, str | Policy]) -> Iterator[None]:
    """Add the names of the models to the `OSError` that transformers raises if the Hub cannot be reached."""
    try:
        yield
    except OSError as error:
        if "connect to" not in str(error):
            raise
        policies = [] if isinstance(given, str) else [each for each in given.values() if isinstance(each, Policy)]
        names = [model, *(policy.model for policy in policies)]
        named = " or ".join(dict.fromkeys(repr(name) for name in names if isinstance(name, str)))
        raise OSError(f"cannot load {named}: {error} Or give a folder of it (--estimate: its config.json).") from error


def check_reports(args: Any) -> None:
    """Raise `ValueError` if the package of a logging integration is not installed."""
    available = get_available_reporting_integrations()
    for name in args.report_to:
        if name not in available:
            raise ValueError(
                f"report_to names {name!r}; expected a tracker that is installed ({', '.join(available) or 'none'} "
                f"here). pip install {name}, or set report_to: none."
            )


def import_packages(names: Sequence[str]) -> None:
    """Import the packages that the user named. Raises `ImportError` with what to do."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportError(
                f"imports names {name!r}: {error}; expected a package that is installed. Install it, or correct the "
                "name in imports."
            ) from error


def function(field_name: str, path: str) -> Any:
    """Import the function at a dotted path, as TRL's scripts do, also of the working directory; else `ValueError`."""
    module, dot, name = path.replace(":", ".").rpartition(".")  # `my_module:function`, as entry points write it
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name) if dot else None
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{field_name} names {path!r}: {error}; expected the path of a function, such as my_module.my_function. "
            "Install its package, or start the command in the folder that has the module."
        ) from error
    if not callable(found):
        raise ValueError(
            f"{field_name} names {path!r}; expected the path of a function, such as {field_name}: "
            "my_module.my_function."
        )
    return found


def choice(field_name: str, given: Any) -> Any:
    """A built-in name unchanged; a dotted path as the function there; `{either: options}` with its options."""
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = mapping(field_name, given)
    if isinstance(given, str):
        return function(field_name, given) if _is_path(given) else given
    is_several = isinstance(given, Mapping) and len(given) > 1
    inherited = f", and take what is inherited away: {field_name}.{next(iter(given))}=null" if is_several else ""
    if not isinstance(given, Mapping) or len(given) != 1 or not isinstance(next(iter(given.values())), Mapping):
        raise ValueError(
            f"{field_name} has {given!r}; expected a name, the dotted path of a function, or one of them with its "
            f"options. Write {field_name}: {{loo: {{value: outcome}}}}{inherited}."
        )
    ((name, options),) = given.items()
    return partial(function(field_name, name), **options) if _is_path(name) else dict(given)


def _is_path(name: str) -> bool:
    return "." in name or ":" in name


FIRST = {
    "model_name_or_path",
    "dataset_name",
    "output_dir",
    "num_generations",
    "max_completion_length",
    "per_device_train_batch_size",
    "learning_rate",
    "max_steps",
    "eval_strategy",
    "use_vllm",
    "use_cpu",
    "report_to",
}
"""Fields of TRL and transformers that `--help` shows beside ours."""


def _fields_of_trl(kinds: Sequence[type]) -> set[str]:
    """The names of the fields that come from TRL and transformers."""
    classes = {each for kind in kinds for each in kind.__mro__ if dataclasses.is_dataclass(each)}
    upstream = [each for each in classes if each.__module__.partition(".")[0] in ("trl", "transformers")]
    return {f.name for each in upstream for f in dataclasses.fields(each)}


class _Parser(TrlParser):
    """TRL's parser with one-line errors and a help of our fields; TRL's would print a usage of about a hundred lines
    before each error, and a help of about fifteen hundred."""

    def shorten(self, of_trl: set[str]) -> None:
        """Make `--help` show our fields, then `FIRST` of TRL's, each by one spelling; `--help-all` shows all."""
        self.formatter_class = _Help
        self.usage = "%(prog)s --config FILE [--field value ...]"
        self.epilog = (
            f"{len(of_trl - FIRST)} more fields are those of TRL and transformers: --help-all shows them. Every field "
            "can stand in the file, as a line `field: value`."
        )
        self.found = Configuration()
        words = "print the resolved configuration, with the origin of each line, and end"
        self.add_argument("--show", action="store_true", default=SUPPRESS, help=words)
        words = "show the fields of TRL and transformers, too"
        self.add_argument("--help-all", action=_HelpAll, nargs=0, dest=SUPPRESS, default=SUPPRESS, help=words)
        for group in self._action_groups:
            group._group_actions.sort(key=lambda action: action.dest in of_trl)
        for action in self._actions:
            action.option_strings = [each for each in action.option_strings if "-" not in each[2:]] or ["--help-all"]
        self._hidden = {action: action.help for action in self._actions if action.dest in of_trl - FIRST}
        for action in self._hidden:
            action.help = SUPPRESS

    def taken_apart(self, argv: Sequence[str]) -> tuple[str | None, list[tuple[str, str]], list[str]]:
        """The file, each `key=value`, and the options. What follows an option, unless it is a switch, is its value."""
        config, keys, options = None, [], list[str]()
        for before, given in zip(["", *argv], argv, strict=False):
            action = self._option_string_actions.get(before)
            is_switch = "=" in before or (action is not None and action.nargs in (0, "?"))
            if before == "--config" or given.startswith("--config="):
                config = given.removeprefix("--config=")
            elif (is_switch or not before.startswith("--")) and (key := _KEY.fullmatch(given)):
                keys.append((key[1], key[2]))
            elif given != "--config":
                options.append(given)
        if [*argv][-1:] == ["--config"]:
            raise ValueError("--config has no value; expected the path of a YAML file. Write --config my_run.yaml.")
        return config, keys, options

    def print_help_of_all(self) -> None:
        for action, words in self._hidden.items():
            action.help = words
        self.print_help()

    def error(self, message: str) -> NoReturn:
        expected = "" if "expected" in message else "; expected a value of that kind"
        field = _ARGUMENT.match(message)
        origin = f"{self.found.origin(field[1])}: " if field and field[1] in self.found.values else ""
        raise ValueError(f"{origin}{message}{expected}. `{self.prog} --help` shows every field.")


class _Help(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Defaults after each field, and the description as it is written."""


class _HelpAll(Action):
    """Prints the help with every field."""

    def __call__(self, parser: Any, *_: object) -> NoReturn:
        parser.print_help_of_all()
        sys.exit(0)
