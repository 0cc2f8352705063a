"""The trainer: TRL's hooks, the collection of a generation, the order of the rows, warm-up by supervised fine-tuning.

`MultiAgentGRPOTrainer` is looked up when it is first used, so that the modules beside it can be imported one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from pettingllms_trl.trainer.trainer import MultiAgentGRPOTrainer

__all__ = ["MultiAgentGRPOTrainer"]

if not TYPE_CHECKING:  # a type checker that sees it takes every misspelt name for an Any

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}. It has: {', '.join(__all__)}.")
        from pettingllms_trl.trainer.trainer import MultiAgentGRPOTrainer

        return MultiAgentGRPOTrainer
