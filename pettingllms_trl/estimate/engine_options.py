"""What an estimate has to know of a kind of engine, a part of its row in the table of kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


Place: TypeAlias = Literal["generate", "colocate", "server"]
"""Where completions are computed, and so whose memory they take: the trainer's model, an engine here, elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What decides the memory of a kind of engine: the names of its fields of the configuration, for an estimate and
    what it proposes. Empty: the kind has no such field.

    Args:
        max_length: Field with the most tokens of prompt and completion together.
        processes: Field with the number of trainer processes that an engine is split over.
        memory_share: Field with an engine's share of its GPU's memory.
        sleeps: Field that makes it give its memory back during the update.
        on_servers: What to set so that it samples on other GPUs.
        server_max_length: Option of a server's command like `max_length`.
        server_processes: Option of a server's command like `processes`, of GPUs.
        overhead: Bytes beside weights and cache; the default is assumed of vLLM: CUDA graphs, a batch of 4,096 tokens.
    """

    name: str = "generate"
    max_length: str = ""
    processes: str = ""
    memory_share: str = ""
    sleeps: str = ""
    on_servers: str = ""
    server_max_length: str = ""
    server_processes: str = ""
    overhead: float = 1.5e9
