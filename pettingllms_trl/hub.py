"""The model card of a team: what each adapter plays and how to load it. TRL's card assumes weights at the root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def adapters_card(
    *, name: str, base_model: str | None, environment: str, of_agent: Mapping[str, str], tags: Sequence[str]
) -> str:
    """A README with the Hub's metadata.

    Args:
        name: Of the repository.
        base_model: Hub id of the base, or `None` where it is a local folder.
        environment: Name of the environment that the team was trained on.
        of_agent: The adapter of each agent.
        tags: Of the Hub's search.
    """
    head = ["library_name: peft", *([f"base_model: {base_model}"] if base_model else []), "tags:"]
    head += [f"- {tag}" for tag in tags]
    rows = [f"| `{agent}` | `{adapter}/` |" for agent, adapter in of_agent.items()]
    adapter = next(iter(of_agent.values()))
    return "\n".join(
        [
            "---",
            *head,
            "---",
            "",
            f"# {name}",
            "",
            f"A team for `{environment}`, trained by PettingLLMs on TRL with AT-GRPO"
            " ([arXiv:2510.11062](https://huggingface.co/papers/2510.11062)). Each agent plays with a LoRA adapter:",
            "",
            "| agent | adapter |",
            "|---|---|",
            *rows,
            "",
            "```python",
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM",
            "",
            f'base = AutoModelForCausalLM.from_pretrained("{base_model or "path/to/the/base/model"}")',
            f'model = PeftModel.from_pretrained(base, "{name}", subfolder="{adapter}")',
            "```",
            "",
        ]
    )
