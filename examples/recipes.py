"""Prints the tables of docs/recipes.md: memory and network traffic of a run, by arithmetic alone.

python examples/recipes.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


GB = 1e9
SEQUENCES, TOKENS = 128, 500 + 4096  # 32 instances x 4 candidates at once; a prompt of a game and the longest reply
RANK = 16


class Model(NamedTuple):
    """The shape of a Qwen3."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    tied: bool
    head_dim: int = 128
    vocabulary: int = 151_936

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """Input and output width of a layer's matrices: q, k, v, o, gate, up, down."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        up = (self.hidden, self.intermediate)
        return ((self.hidden, q), (self.hidden, kv), (self.hidden, kv), (q, self.hidden), up, up, up[::-1])

    @property
    def parameters(self) -> int:
        """All of them: matrices, two norms of a layer and one of each head's q and k, embeddings, the last norm."""
        layer = sum(a * b for a, b in self.linear) + 2 * self.hidden + 2 * self.head_dim
        return self.layers * layer + self.hidden * (1 + self.vocabulary * (1 if self.tied else 2))

    @property
    def adapter(self) -> int:
        """Parameters of a LoRA adapter on every matrix of the layers."""
        return self.layers * RANK * sum(a + b for a, b in self.linear)

    @property
    def kv_bytes(self) -> int:
        """Of one token, in bfloat16: a key and a value in every layer."""
        return self.layers * 2 * self.kv_heads * self.head_dim * 2


MODELS = {
    "1.7B": Model(layers=28, hidden=2048, intermediate=6144, heads=16, kv_heads=8, tied=True),
    "8B": Model(layers=36, hidden=4096, intermediate=12288, heads=32, kv_heads=8, tied=False),
}
POLICIES = {"L1": 1, "L2": 2, "L3": 2}


def state(model: Model, layout: str, sharding: str, width: int) -> float:
    """Bytes on each GPU for weights, gradients and AdamW's two moments.

    A trained parameter takes 16: float32 weights, gradients and moments (DDP, FSDP2), or under DeepSpeed bfloat16
    weights and gradients with float32 weights and moments. ZeRO-2 leaves the bfloat16 weights whole. A frozen one
    takes 2.
    """
    trained = POLICIES[layout] * (model.adapter if layout == "L2" else model.parameters)
    frozen = 2 * model.parameters if layout == "L2" else 0
    if sharding == "ddp":
        return frozen + 16 * trained
    if sharding == "zero2":
        return frozen + 2 * trained + 14 * trained / width
    return (frozen + 16 * trained) / width


def gradients(model: Model, layout: str, width: int) -> float:
    """Bytes that each GPU sends in an all-reduce of float32 gradients (DDP): once for each update."""
    trained = POLICIES[layout] * (model.adapter if layout == "L2" else model.parameters)
    return 2 * (width - 1) / width * 4 * trained


def gathered(model: Model, layout: str, width: int) -> float:
    """Bytes that each GPU gets or sends in one pass of one policy: all weights gathered, forward and backward, and the
    gradients of what is trained scattered, in bfloat16 (ZeRO-3, FSDP2)."""
    trained = model.adapter if layout == "L2" else model.parameters
    return (width - 1) / width * 2 * (2 * model.parameters + trained)


def to_engine(model: Model, layout: str) -> float:
    """Bytes that go to an engine that samples (vLLM) for each rollout, in bfloat16."""
    return 2 * POLICIES[layout] * (model.adapter if layout == "L2" else model.parameters)


def tables() -> str:
    """All tables, as Markdown."""
    return "\n\n".join(
        (
            table(
                ("", "parameters", "adapter, rank 16", "KV cache per token", "128 sequences at their longest"),
                (
                    (
                        size,
                        f"{m.parameters / 1e9:.2f} B",
                        f"{m.adapter / 1e6:.1f} M",
                        f"{m.kv_bytes / 1024:.0f} KiB",
                        f"{SEQUENCES * TOKENS * m.kv_bytes / GB:.0f} GB",
                    )
                    for size, m in MODELS.items()
                ),
            ),
            table(
                ("GB on each GPU", "1 GPU", "8, DDP", "8, ZeRO-2", "8, ZeRO-3 or FSDP2", "32, ZeRO-3 or FSDP2"),
                by_run(
                    lambda m, layout: (
                        state(m, layout, "ddp", 1),
                        state(m, layout, "ddp", 8),
                        state(m, layout, "zero2", 8),
                        state(m, layout, "zero3", 8),
                        state(m, layout, "zero3", 32),
                    )
                ),
            ),
            table(
                ("GB of each GPU", "update, 8, DDP", "update, 32, DDP", "pass, 8, ZeRO-3", "rollout, to the engine"),
                by_run(
                    lambda m, layout: (
                        gradients(m, layout, 8),
                        gradients(m, layout, 32),
                        gathered(m, layout, 8),
                        to_engine(m, layout),
                    )
                ),
            ),
        )
    )


def by_run(figures: Callable[[Model, str], tuple[float, ...]]) -> Iterable[tuple[str, ...]]:
    """A row for each layout and size, in gigabytes."""
    for size, model in MODELS.items():
        for layout in POLICIES:
            yield (f"{layout}, {size}", *(f"{value / GB:.1f}" for value in figures(model, layout)))


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, ("---",) * len(headings), *rows))


if __name__ == "__main__":
    print(tables())
