"""The model card of a team: the policy of each agent, how it was trained, what it reached, how to load it.

TRL's model card assumes one model, with weights at the root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms_trl.policies.routing import Policy, Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The success rate of an evaluation.

    Args:
        name: Name of the evaluation data, such as `"eval"`.
        share: Share of successful episodes, from 0 to 1.
    """

    name: str
    share: float
    num: int
    step: int


def results_of(history: Sequence[Mapping[str, Any]], num_episodes: Mapping[str, int]) -> list[Result]:
    """The last evaluation of each data set in a training's log; with rounds that of each round (`imitate`).

    Args:
        num_episodes: Episodes of an evaluation, by its name, `"eval"` or `"eval_<data set>"`. An evaluation in which
            instances were dropped is left out, since its success rate is over other instances.
    """
    found: dict[str, Result] = {}
    for entry in history:
        for name, num in num_episodes.items():
            share = entry.get("eval_outcome/success") if f"{name}_runtime" in entry else None
            if share is not None and not entry.get("eval_rollout/dropped"):
                number = entry.get("eval_imitation/round")
                what = name if number is None else f"{name}, round {number:.0f}"
                found[what] = Result(name=what, share=float(share), num=num, step=int(entry["step"]))
    return list(found.values())


def team_card(
    *,
    name: str,
    environment: str,
    routing: Routing,
    sources: Mapping[str, str],
    tags: Sequence[str],
    vision_policies: Collection[str] = (),
    settings: Mapping[str, Any] | None = None,
    results: Sequence[Result] = (),
    note: str = "",
) -> str:
    """The text of a model card, with the Hub's metadata.

    Args:
        sources: For each policy with weights, the id or path of its model or of its adapter's base. Paths are not
            shown, since they exist only on this machine.
        vision_policies: The policies that read images.
        note: A sentence about the data that the team was trained and evaluated on.
    """
    ids = {policy: source for policy, source in sources.items() if source and not Path(source).is_dir()}
    bases = list(dict.fromkeys(ids[policy.name] for policy in routing.trained if policy.name in ids))
    only_adapters = all(policy.adapter is not None for policy in routing.trained)
    head = [f"library_name: {'peft' if only_adapters else 'transformers'}"]
    if len(bases) == 1:
        head.append(f"base_model: {bases[0]}")
    elif bases:
        head += ["base_model:", *(f"- {base}" for base in bases)]
    played = {policy.name: policy for policy in routing.policies}
    rows = [
        f"| `{agent}` | {_what(played[policy], ids.get(policy))} "
        f"| {f'`{policy}/`' if played[policy].is_trained else 'not here'} |"
        for agent, policy in routing.of_agent.items()
    ]
    return "\n".join(
        [
            "---",
            *head,
            "tags:",
            *(f"- {tag}" for tag in tags),
            "---",
            "",
            f"# {name}",
            "",
            f"A team for `{environment}`, trained by PettingLLMs, an implementation of AT-GRPO"
            " ([arXiv:2510.11062](https://huggingface.co/papers/2510.11062)) on TRL.",
            "",
            *([f"**{note}**", ""] if note else []),
            "| agent | played by | folder |",
            "|---|---|---|",
            *rows,
            "",
            *results_table(results),
            *_table(["setting", ""], [(setting, f"`{value}`") for setting, value in (settings or {}).items()]),
            "```python",
            *_loading(name, routing, ids, vision_policies),
            "```",
            "",
        ]
    )


def results_table(results: Iterable[Result]) -> list[str]:
    """The lines of a table of evaluations, and an empty one; none if there are none."""
    return _table(["evaluation", "success", "95% interval", "episodes", "after step"], map(_of_result, results))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table followed by an empty line, or nothing if there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines, ""] if lines else []


def _of_result(result: Result) -> tuple[str, ...]:
    from pettingllms_envs.evaluation.statistics import wilson  # only cards with results need it

    low, high = wilson(result.share * result.num, result.num)
    share, interval = f"{100 * result.share:.1f}%", f"[{100 * low:.1f}, {100 * high:.1f}]"
    return (result.name, share, interval, str(result.num), str(result.step))


def _what(policy: Policy, source: str | None) -> str:
    frozen = "" if policy.is_trained else ", not trained"
    of = f" of `{source}`" if source else ""
    if policy.api is not None:
        return "a model behind an API"
    if policy.adapter is not None:
        return f"the LoRA adapter `{policy.adapter}`{frozen}"
    return f"the base model{frozen}" if policy.is_base else f"a full model{of}{frozen}"


def _loading(name: str, routing: Routing, ids: Mapping[str, str], vision_policies: Collection[str]) -> list[str]:
    """Code that loads the first policy of each kind."""
    adapter = next((policy for policy in routing.trained if policy.adapter is not None), None)
    full = next((policy for policy in routing.trained if policy.adapter is None), None)
    first = adapter or full
    reader = "AutoProcessor" if first and first.name in vision_policies else "AutoTokenizer"
    makers = dict[str, str]()
    for policy in filter(None, (adapter, full)):
        makers[policy.name] = (
            "AutoModelForImageTextToText" if policy.name in vision_policies else "AutoModelForCausalLM"
        )
    lines = [f"from transformers import {', '.join(sorted({*makers.values(), reader}))}", ""]
    if adapter is not None:
        base = ids.get(adapter.name, "path/to/the/base/model")
        lines = [
            "from peft import PeftModel",
            *lines,
            f'base = {makers[adapter.name]}.from_pretrained("{base}")',
            f'model = PeftModel.from_pretrained(base, "{name}", subfolder="{adapter.name}")',
        ]
    if full is not None:
        lines.append(f'model = {makers[full.name]}.from_pretrained("{name}", subfolder="{full.name}")')
    what = "processor" if reader == "AutoProcessor" else "tokenizer"
    return [*lines, f'{what} = {reader}.from_pretrained("{name}", subfolder="{first.name}")' if first else ""]
