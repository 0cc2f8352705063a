"""Training teams of language-model agents on TRL: AT-GRPO for any PettingZoo AEC environment with text observations.

A name is looked up when it is first used, so that playing (`rollout/`, `records.py`) loads neither torch nor TRL.
Importing this package registers the environments of `pettingllms_envs` with PettingZoo.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

import pettingllms_envs  # noqa: F401  # registers its environments


if TYPE_CHECKING:
    from pettingllms_trl.config import MultiAgentGRPOConfig
    from pettingllms_trl.gguf import load_gguf
    from pettingllms_trl.policies.routing import Policy
    from pettingllms_trl.records import Candidate, Completion, Decision, Episode, Prompt
    from pettingllms_trl.rollout.curriculum import Curriculum
    from pettingllms_trl.trainer.trainer import MultiAgentGRPOTrainer
    from pettingllms_trl.update.schedule import Alternate

__all__ = [
    "Alternate",
    "Candidate",
    "Completion",
    "Curriculum",
    "Decision",
    "Episode",
    "MultiAgentGRPOConfig",
    "MultiAgentGRPOTrainer",
    "Policy",
    "Prompt",
    "load_gguf",
]

# transformers 5.23 renamed gradient checkpointing; TRL 1.16 and PEFT 0.21 still say the old names, in GRPOConfig,
# SFTConfig, the trainers and adapters that are loaded, where no user can change them.
warnings.filterwarnings(
    "ignore", r"`(is_)?gradient_checkpointing(_enable|_disable)?` is deprecated", category=FutureWarning
)

_MODULES = {
    "Alternate": "update.schedule",
    "Candidate": "records",
    "Completion": "records",
    "Curriculum": "rollout.curriculum",
    "Decision": "records",
    "Episode": "records",
    "MultiAgentGRPOConfig": "config",
    "MultiAgentGRPOTrainer": "trainer.trainer",
    "Policy": "policies.routing",
    "Prompt": "records",
    "load_gguf": "gguf",
}

if not TYPE_CHECKING:  # a type checker that sees it takes every misspelt name for an Any

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}. It has: {', '.join(__all__)}.")
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
