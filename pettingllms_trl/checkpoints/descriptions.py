"""Describes what decides a run as values of JSON that are the same in each process: functions, data sets, models.

Checkpoints may be uploaded, and arguments of a user's functions may be secrets: of texts among them a digest is kept.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

from datasets import Dataset, IterableDataset
from huggingface_hub import try_to_load_from_cache
from peft import PeftModel, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from pettingzoo import AECEnv
from trl.trainer.utils import get_config_model_id

from pettingllms_trl.policies.adapters import checksum, is_sharded
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.policies.team import Team


NUM_ROWS = 64
"""Of a data set that are compared."""
_NOT_OF_WEIGHTS = (
    *("base_model_name_or_path", "revision", "inference_mode", "peft_version", "task_type", "auto_mapping"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
)
"""Fields of an adapter's configuration that say where it is from and, in one of several ways, on which modules."""
_SIZES = ("num_hidden_layers", "hidden_size", "vocab_size")
_NUM_BLOCKS, _BLOCK = 64, 4096  # of a file of weights


def plain(value: Any) -> Any:
    """A setting as a JSON value, without the addresses of objects."""
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(each) for each in value), key=str)
    return described(value)


def described(given: Any) -> str:
    """A name of a function or object that is the same in each process: module, name, and arguments that are set.

    `partial(loo, value="outcome")` is `pettingllms_trl.credit.schemes.loo(value='outcome')`. Of a closure the numbers
    that it holds are told, and of an object or its method those that it keeps under the names of its constructor's
    arguments; texts may be of one process alone, as paths are.
    """
    arguments: list[str] = []
    options: Mapping[str, Any] = {}
    if isinstance(given, partial):
        arguments, options, given = [_argument(each, given.func) for each in given.args], given.keywords, given.func
    elif is_dataclass(given) and not isinstance(given, type):
        # Some may be set later; what is not compared is no setting: runs find it, as how long a program is waited for.
        names = [each.name for each in fields(given) if each.compare and hasattr(given, each.name)]
        options, given = {name: getattr(given, name) for name in names}, type(given)
    elif inspect.isfunction(given):
        options = _lasting(_closure_of(given), given)
        if given.__name__ == "<lambda>":  # which has no name of its own
            arguments = [f"digest {digest_of(_code_of(given.__code__))}"]
    elif inspect.ismethod(given):
        options = _lasting(_kept_arguments(given.__self__), given)
    elif not hasattr(given, "__qualname__"):  # an object
        options, given = _lasting(_kept_arguments(given), type(given)), type(given)
    arguments += [f"{name}={_argument(options[name], given)}" for name in sorted(options)]
    name = f"{given.__module__}.{given.__qualname__}"
    return f"{name}({', '.join(arguments)})" if arguments else name


def _code_of(code: CodeType) -> str:
    """What a function does, whatever it is called and wherever it stands."""
    held = [_code_of(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    held = ["".join(sorted(each)) if each.startswith("frozenset") else each for each in held]  # it has no order
    return repr((code.co_code, code.co_names, held))


def _closure_of(function: Any) -> dict[str, Any]:
    own = inspect.signature(function).parameters if "<" in function.__qualname__ else {}  # it was made in another
    held = {name: each.default for name, each in own.items()}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it is assigned later, as the trainer is that is given the function
            held[name] = cell.cell_contents
    return held


def _kept_arguments(given: Any) -> dict[str, Any]:
    """The arguments of an object's constructor that it keeps under their names."""
    constructor, own = type(given).__init__, getattr(given, "__dict__", {})
    names = inspect.signature(constructor).parameters if inspect.isfunction(constructor) else ()
    return {name: own[name] for name in names if name in own}


def _lasting(values: Mapping[str, Any], of: Callable[..., Any]) -> dict[str, Any]:
    kinds = str | int | float | None if _is_ours(of) else int | float | None
    return {name: value for name, value in values.items() if isinstance(value, kinds)}


def _argument(value: Any, of: Callable[..., Any]) -> str:
    if callable(value):
        return described(value)
    if _is_ours(of) or isinstance(value, int | float | None):
        return repr(plain(value))
    return f"digest {digest_of(json.dumps(plain(value), sort_keys=True))}"


def _is_ours(function: Callable[..., Any]) -> bool:
    return str(function.__module__).startswith("pettingllms_trl.")


def described_rows(rows: Dataset | IterableDataset) -> str:
    """The length of a data set and a digest of 64 of its rows, evenly spread; of a stream, its column names."""
    if isinstance(rows, IterableDataset):
        return f"a stream of {', '.join(rows.column_names or ['unknown columns'])}"
    number = min(len(rows), NUM_ROWS)
    places = [i * (len(rows) - 1) // max(number - 1, 1) for i in range(number)]
    # As Arrow has them: without the user's transforms, which may be random, and without decoding images.
    table = rows.with_format("arrow")[places]
    content = json.dumps(table.to_pylist(), sort_keys=True, default=str)
    return f"{len(rows)} rows, digest {digest_of(content)}"


def described_team(team: Team, *, has_factors: bool = False) -> dict[str, dict[str, Any]]:
    """What the weights of a team and the state of its optimizer depend on, by the option that sets it.

    `has_factors`: whether the schedule has factors of their learning rates.
    """
    routing = team.routing
    has_own_rates = has_factors or any(policy.learning_rate is not None for policy in routing.trained)
    policies: dict[str, Any] = {
        **{f"the policy of {agent}": name for agent, name in routing.of_agent.items()},
        "a learning rate for each policy": has_own_rates,  # then each has parameter groups of its own
        "the order of policies": [policy.name for policy in routing.policies],  # that of the optimizer's state
    }
    models: dict[str, Any] = {}
    adapters: dict[str, Any] = {}
    for policy in routing.policies:
        kind = "an api" if policy.api is not None else "a model" if policy.adapter is None else "an adapter"
        policies[f"policy {policy.name}"] = f"{kind}, {'trained' if policy.is_trained else 'frozen'}"
        if policy.api is None:
            adapter = adapter_name(team, policy)
            is_saved = policy.is_trained and adapter is None and not team.keeps_start_of(policy)
            config = team.weights_of(policy.name).config
            models[f"the model of {policy.name}"] = described_model(config, is_saved=is_saved)
            if adapter is not None and team.keeps_start_of(policy):
                models[f"the KL reference of {policy.name}"] = _described_reference(team, policy)
            own = {} if adapter is None else _described_adapter(team.weights_of(policy.name), adapter)
            adapters |= {f"{name} of the adapter {policy.name}": value for name, value in own.items()}
    return {"policies": policies, "model": models, "peft_config": adapters}


def adapter_name(team: Team, policy: Policy) -> str | None:
    """The name of a policy's adapter, which TRL may have put on the one model of all agents."""
    model = team.weights_of(policy.name)
    is_of_trl = team.is_plain and isinstance(model, PeftModel)
    return model.active_adapters[0] if is_of_trl else policy.adapter


def _described_adapter(model: PeftModel, name: str) -> dict[str, Any]:
    """Rank, alpha, and what else an adapter's weights depend on; the modules are those that it is on, which can be
    written in several ways."""
    on = [
        path
        for path, module in model.named_modules()
        if isinstance(module, BaseTunerLayer)
        and any(name in getattr(module, layers) for layers in module.adapter_layer_names)
    ]
    kinds = sorted({path.rpartition(".")[2] for path in on})
    settings = {
        field: plain(value)
        for field, value in model.peft_config[name].to_dict().items()
        if field not in _NOT_OF_WEIGHTS and not field.endswith("dropout")
    }
    return {**settings, "modules": f"{len(on)} of {', '.join(kinds)}, digest {digest_of(json.dumps(sorted(on)))}"}


def described_model(config: Any, *, is_saved: bool) -> dict[str, Any]:
    """The model that a policy begins with.

    Where checkpoints have all of its weights (`is_saved`), those it began with matter only to a KL divergence.
    """
    name, sizes = get_config_model_id(config) or "", config.get_text_config()
    folder, revision = Path(name), getattr(config, "_commit_hash", None)
    cached = None if revision is None else try_to_load_from_cache(name, "config.json", revision=revision)
    if isinstance(cached, str):
        folder = Path(cached).parent
    return {
        "name": name,
        "architecture": f"{config.model_type}, {' x '.join(str(getattr(sizes, each, '?')) for each in _SIZES)}",
        "weights": _digest_of_weights(folder) if name and folder.is_dir() else None,
        "is_saved": is_saved,
    }


def _described_reference(team: Team, policy: Policy) -> dict[str, Any]:
    """What an adapter's KL divergence is to, in the form of `described_model`: the base, or the adapter as given.

    A checkpoint of the one adapter of all agents has the copy of that beside it; others are told by their weights.
    """
    reference, model = team.reference_adapter_of(policy), team.weights_of(policy.name)
    weights = None
    if reference is not None and not team.is_plain and not is_sharded(model):
        tensors = get_peft_model_state_dict(model, adapter_name=reference)
        weights = digest_of(json.dumps({name: checksum(tensor) for name, tensor in sorted(tensors.items())}))
    name = "the base" if reference is None else "the adapter that was given"
    return {"name": name, "architecture": f"on {model.config.model_type}", "weights": weights, "is_saved": False}


def described_environment(make: Callable[[], Any], env: AECEnv) -> dict[str, Any]:
    """What decides how an environment plays: the settings that it declares, else what makes it and what was made."""
    own = env.unwrapped
    declared = dict(own.metadata.get("settings") or {"made by": make, "class": own})
    if identity := own.metadata.get("identity"):  # of a file
        return {**declared, "identity": identity}
    # A workflow is an object, whose settings those of its environment need not name: `env_config` of a benchmark.
    return {**declared, "env_config": [own.workflow, own.alpha]} if hasattr(own, "workflow") else declared


def described_loading(model: Any, kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """How a policy's model was loaded: its precision and attention, and what the user set otherwise in its
    configuration (`model_init_kwargs`)."""
    looked_up = ("dtype", "torch_dtype", "attn_implementation")
    others = [name for name in kwargs or {} if hasattr(model.config, name) and name not in looked_up]
    return {
        "dtype": str(model.dtype).removeprefix("torch."),
        "attn_implementation": model.config._attn_implementation,
        "model_init_kwargs": {name: kwargs[name] for name in others} if kwargs else {},
    }


def _digest_of_weights(folder: Path) -> str | None:
    """A digest of the files of weights in a folder: their sizes, and 64 blocks of each."""
    # Not adapters and states, which a run may have saved beside them.
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as stream:
            size = stream.seek(0, 2)
            digest.update(str(size).encode())
            for i in range(_NUM_BLOCKS):
                stream.seek(max(size - _BLOCK, 0) * i // (_NUM_BLOCKS - 1))
                digest.update(stream.read(_BLOCK))
    return digest.hexdigest()[:8] if files else None


def digest_of(text: str) -> str:
    """8 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]
