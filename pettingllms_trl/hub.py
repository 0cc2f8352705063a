"""The model card of a team: what plays whom and how to load it. TRL's assumes one model, with weights at the root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pettingllms_trl.policies import Policy, Routing


def team_card(
    *, name: str, environment: str, routing: Routing, sources: Mapping[str, str], tags: Sequence[str]
) -> str:
    """A README with the Hub's metadata.

    Args:
        name: Of the repository.
        environment: Name of the environment that the team was trained on.
        routing: Who is played by what.
        sources: For each policy with weights the id or path of the model that it is, or whose adapter it is. Paths
            are not named, since nobody else has them.
        tags: Of the Hub's search.
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
        f"| `{agent}` | {_what(played[policy], ids.get(policy))} | {_where(played[policy])} |"
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
            f"A team for `{environment}`, trained by PettingLLMs on TRL with AT-GRPO"
            " ([arXiv:2510.11062](https://huggingface.co/papers/2510.11062)).",
            "",
            "| agent | played by | folder |",
            "|---|---|---|",
            *rows,
            "",
            "```python",
            *_loading(name, routing, ids),
            "```",
            "",
        ]
    )


def _what(policy: Policy, source: str | None) -> str:
    frozen = "" if policy.is_trained else ", not trained"
    of = f" of `{source}`" if source else ""
    if policy.api is not None:
        return "an API partner"
    if policy.adapter is not None:
        return f"the LoRA adapter `{policy.adapter}`{frozen}"
    return f"the base model{frozen}" if policy.is_base else f"a full model{of}{frozen}"


def _where(policy: Policy) -> str:
    return f"`{policy.name}/`" if policy.is_trained else "not here"


def _loading(name: str, routing: Routing, ids: Mapping[str, str]) -> list[str]:
    """Code that loads the first policy of each kind."""
    lines = ["from transformers import AutoModelForCausalLM, AutoTokenizer", ""]
    adapter = next((policy for policy in routing.trained if policy.adapter is not None), None)
    full = next((policy for policy in routing.trained if policy.adapter is None), None)
    if adapter is not None:
        base = ids.get(adapter.name, "path/to/the/base/model")
        lines = [
            "from peft import PeftModel",
            *lines,
            f'base = AutoModelForCausalLM.from_pretrained("{base}")',
            f'model = PeftModel.from_pretrained(base, "{name}", subfolder="{adapter.name}")',
        ]
    if full is not None:
        lines.append(f'model = AutoModelForCausalLM.from_pretrained("{name}", subfolder="{full.name}")')
    first = adapter or full
    return [*lines, f'tokenizer = AutoTokenizer.from_pretrained("{name}", subfolder="{first.name}")' if first else ""]
