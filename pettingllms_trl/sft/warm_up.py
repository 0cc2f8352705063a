"""The warm-up of a team: each policy imitates the demonstrations of its own agents, by TRL's `SFTTrainer`.

What is saved is what `MultiAgentGRPOTrainer` starts from, in the layout of its own `save_model`:

| policies   | folder                               | to start from it                                          |
|------------|--------------------------------------|-----------------------------------------------------------|
| `"shared"` | `out/` with the model                | `model="out"`                                             |
| `"lora"`   | `out/<adapter>/` with each adapter   | `model=load_adapters(base, "out", ...)`, `--adapters out` |
| `"full"`   | `out/<policy>/` with each model      | `policies={role: Policy(model="out/<policy>"), ...}`      |
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import set_seed
from datasets import Dataset
from peft import PeftConfig, PeftModel
from transformers import AutoProcessor, PreTrainedTokenizerBase, ProcessorMixin
from trl import SFTConfig, SFTTrainer
from trl.trainer.utils import get_config_model_id

from pettingllms_envs.pictures import opened
from pettingllms_envs.prompts import images_of
from pettingllms_trl.pixels import as_parts, naming_torchvision
from pettingllms_trl.policies.adapters import attach_adapters, check_base_is_kept, several, unchanged
from pettingllms_trl.policies.codecs import CANNOT_SEE
from pettingllms_trl.policies.escaping import PromptEscape
from pettingllms_trl.policies.routing import Policy, Routing, route
from pettingllms_trl.policies.tool_templates import why_unsupported
from pettingllms_trl.policies.weights import load_in_process
from pettingllms_trl.records import Message, Tools, role_of
from pettingllms_trl.sft.demonstrations import Demonstration


def warm_up(
    model: str,
    demonstrations: Iterable[Demonstration],
    routing: Routing,
    args: SFTConfig,
    *,
    peft_config: PeftConfig | None = None,
    adapters: str | Path | None = None,
    quantization_config: Any = None,
    processing_class: PreTrainedTokenizerBase | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    say: Callable[[str], object] | None = None,
) -> dict[str, Path]:
    """Train each policy on the successes of its agents, one after the other, all from the same model; return their
    folders.

    Args:
        demonstrations: Of all roles; those of episodes that failed are left out.
        routing: Who is played by what, from `policies.route`.
        args: TRL's; `output_dir` is the folder in which the folders are made.
        peft_config: Of new adapters. `None`: that of `MultiAgentGRPOTrainer`.
        adapters: Folder with the adapters to train on, those of an earlier warm-up, say. `None`: new ones.
        chat_template_kwargs: As in `MultiAgentGRPOConfig`, so that prompts are written in the same way.
        say: Told which policy is trained next, and how many replies are left out or cut.

    Raises:
        ValueError: A policy has no successful demonstration, a demonstration is nobody's, the folder of adapters
            lacks one, or no reply fits into `max_length`. Before that policy is trained.
    """
    rows = rows_of(demonstrations, routing, chat_template_kwargs)
    if adapters is not None:
        check_adapters(adapters, routing.trained_adapters)
    elif peft_config is not None:
        check_base_is_kept(dict.fromkeys(routing.adapters, peft_config), several(routing.adapters))
    folders: dict[str, Path] = {}
    for policy in routing.trained:
        if say is not None:
            agents = ", ".join(agent for agent, name in routing.of_agent.items() if name == policy.name)
            say(f"Policy {policy.name} of {agents}: {len(rows[policy.name])} replies to imitate.")
        set_seed(args.seed)  # before an adapter is drawn, so that each depends on the seed alone
        start = _start(model if policy.model is None else policy.model, args, quantization_config)
        own = policy.tokenizer
        own = AutoProcessor.from_pretrained(own) if isinstance(own, str) else own
        processing = own or processing_class or _processor_of(start, args)
        if policy.adapter is not None:
            if adapters is not None:
                start = _with_adapter(start, adapters, policy.adapter)
            start = attach_adapters(start, [policy.adapter], peft_config)
        folder = Path(args.output_dir) if policy.is_base else Path(args.output_dir) / policy.name
        own_args = copy.copy(args)  # `dataclasses.replace` would set up the devices once more
        own_args.output_dir, own_args.model_init_kwargs = str(folder), None
        trainer = SFTTrainer(
            model=start,
            args=own_args,
            train_dataset=_dataset(_with_pictures(_escaped(rows[policy.name], processing), processing)),
            processing_class=processing,
        )
        if not len(trainer.train_dataset):  # TRL drops a row whose reply is cut off as a whole
            raise ValueError(
                f"max_length is {args.max_length} tokens, and no prompt of the policy {policy.name!r} leaves room for "
                f"its reply; expected a greater one. Set max_length: {4 * (args.max_length or 0)}."
            )
        if say is not None and (lost := _lost(len(rows[policy.name]), trainer)):
            say(lost)
        trainer.train()
        trainer.save_model(args.output_dir if policy.adapter is not None else str(folder))  # PEFT adds the name itself
        folders[policy.name] = folder
    return folders


def _lost(num: int, trainer: SFTTrainer) -> str:
    """How many of the rows TRL has left out or cut, by `max_length` and without a word; empty if none."""
    most, rows = trainer.args.max_length, trainer.train_dataset
    if most is None or trainer.args.packing or "input_ids" not in rows.column_names:  # pictures come later
        return ""
    left_out, num_full = num - len(rows), sum(len(ids) == most for ids in rows["input_ids"])
    return bool(left_out + num_full) * (
        f"warning: of {num} replies, max_length={most} leaves out {left_out}, for which their prompts leave no room, "
        f"and ends {num_full}, probably in the middle. Set a greater max_length, or max_length: null."
    )


def _processor_of(model: Any, args: SFTConfig) -> Any:
    """A model's own tokenizer or processor, loaded as `SFTTrainer` does."""
    revision = (args.model_init_kwargs or {}).get("revision")
    with naming_torchvision():
        return AutoProcessor.from_pretrained(
            get_config_model_id(model.config), revision=revision, trust_remote_code=args.trust_remote_code
        )


def _escaped(rows: Sequence[dict[str, Any]], processing: Any) -> list[dict[str, Any]]:
    """Rows whose texts, among them the replies that prompts quote, hold no control token, as in training."""
    tokenizer = processing.tokenizer if isinstance(processing, ProcessorMixin) else processing
    escape = PromptEscape(tokenizer, processing.chat_template)
    if not any("tools" in row for row in rows):
        return [{**row, **{part: list(escape.plain(row[part])) for part in ("prompt", "completion")}} for row in rows]

    def render(messages: Sequence[Message], tools: Tools) -> str:
        return str(processing.apply_chat_template(list(messages), tools=list(tools), tokenize=False))

    if why := why_unsupported(render):
        raise ValueError(
            f"a demonstration has tools, and the chat template {why}. Expected a template with tools, such as Qwen's. "
            "Give another one (processing_class.chat_template), or leave such demonstrations out."
        )
    # A reply with calls spells their tokens, which are then the model's own.
    found = []
    for row in rows:
        (prompt,), tools = escape([row["prompt"]], row.get("tools", ()))
        own = {"tools": list(tools)} if "tools" in row else {}
        found.append({**row, **own, "prompt": list(prompt), "completion": list(escape.plain(row["completion"]))})
    return found


def _with_pictures(rows: Sequence[dict[str, Any]], processing: Any) -> Sequence[dict[str, Any]]:
    """Rows as TRL takes them if some show images: contents as parts, and the pictures in a column of their own."""
    shown = [images_of(row["prompt"]) for row in rows]
    if not any(shown):
        return rows
    image = next(own for own in shown if own)[0]
    if not isinstance(processing, ProcessorMixin):
        raise ValueError(f"a demonstration shows {image!r}, and {CANNOT_SEE}")
    if any("tools" in row for row in rows):
        raise ValueError(
            f"demonstrations of a policy show images ({image!r}) and tools; expected one of them, since SFTTrainer "
            "leaves tools out beside images. Make the environment with tool_calls='text', or leave either out."
        )
    return [
        {**row, "prompt": as_parts(row["prompt"], {"type": "image"}), "images": [opened(image) for image in own]}
        for row, own in zip(rows, shown, strict=True)
    ]


def _dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    """A data set of rows; the arguments of tool calls differ from call to call, which only JSON columns can hold."""
    if not any("tools" in row for row in rows):
        return Dataset.from_list(list(rows))
    written = [{**row, "tools": json.dumps(row["tools"]) if "tools" in row else None} for row in rows]
    return Dataset.from_list(written, on_mixed_types="use_json")


def _start(model: Any, args: SFTConfig, quantization_config: Any) -> Any:
    """The model to start from; one that is given as an object stays as it is."""
    if not isinstance(model, str):
        return copy.deepcopy(model)
    quantized = {} if quantization_config is None else {"quantization_config": quantization_config}
    return load_in_process(args.distributed_state, model, **{**(args.model_init_kwargs or {}), **quantized})


def rows_of(
    demonstrations: Iterable[Demonstration], routing: Routing, chat_template_kwargs: Mapping[str, Any] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """TRL's rows for each policy that is trained: the successes of its agents."""
    rows: dict[str, list[dict[str, Any]]] = {policy.name: [] for policy in routing.trained}
    policies_of: dict[str, set[str]] = {}
    for agent, policy in routing.of_agent.items():
        for name in (agent, role_of(agent)):
            policies_of.setdefault(name, set()).add(policy)
    more = {"chat_template_kwargs": dict(chat_template_kwargs)} if chat_template_kwargs else {}
    for demonstration in demonstrations:
        if demonstration.role not in policies_of:
            raise ValueError(
                f"there is a demonstration of {demonstration.role!r}; expected a role or an agent of the environment: "
                f"{', '.join(policies_of)}. Leave it out, or choose the environment that it was recorded in."
            )
        if demonstration.success:
            for policy in policies_of[demonstration.role] & rows.keys():
                rows[policy].append({**demonstration.row(), **more})
    for policy, own in rows.items():
        if not own:
            raise ValueError(
                f"the policy {policy!r} has no demonstration that succeeded; expected at least one of its agents "
                f"({', '.join(a for a, p in routing.of_agent.items() if p == policy)}). Record more, or easier levels."
            )
    return rows


def load_adapters(
    model: str,
    folder: str | Path,
    *,
    policies: str | Mapping[str, str | Policy],
    agents: Sequence[str],
    model_init_kwargs: Mapping[str, Any] | None = None,
    quantization_config: Any = None,
) -> PeftModel:
    """The model with the adapters of a folder, to be trained on: what `warm_up` and `save_model` left there.

    Raises:
        ValueError: The policies have no adapters, the folder lacks one of them, or one of several changes the base.
            Before the model is loaded.
    """
    names = route(policies, agents, model=model).adapters
    check_adapters(folder, names)
    quantized = {} if quantization_config is None else {"quantization_config": quantization_config}
    configs = {name: PeftConfig.from_pretrained(str(Path(folder) / name)) for name in names}
    check_base_is_kept(configs, several(names))
    first, *others = names
    base = load_in_process(PartialState(), model, **{**(model_init_kwargs or {}), **quantized})
    with unchanged(base) if others else nullcontext():
        loaded = _with_adapter(base, folder, first)
        for name in others:
            loaded.load_adapter(str(Path(folder) / name), name, is_trainable=True)
    return loaded


def check_adapters(folder: str | Path, names: Sequence[str]) -> None:
    """Raise `ValueError` if the folder has no adapter of one of the names, or there are no names."""
    if not names:
        raise ValueError(
            f"adapters is {str(folder)!r}, but no policy is an adapter; expected some. Set policies: lora, or name "
            "the folder as the model."
        )
    missing = [name for name in names if not (Path(folder) / name / "adapter_config.json").is_file()]
    if missing:
        raise ValueError(
            f"adapters is {str(folder)!r}, which lacks {', '.join(missing)}; expected a folder with "
            f"adapter_config.json for each of {', '.join(names)}. Make them with `pettingllms sft`, or correct the "
            "path."
        )


def _with_adapter(model: Any, folder: str | Path, name: str) -> PeftModel:
    return PeftModel.from_pretrained(model, str(Path(folder) / name), adapter_name=name, is_trainable=True)
