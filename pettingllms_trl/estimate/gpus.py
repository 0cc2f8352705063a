"""GPUs by name: memory, bandwidth and operations a second, as their makers publish them (docs/gpus.md: confirmed)."""

from __future__ import annotations

from dataclasses import dataclass

from pettingllms_envs.suggestions import did_you_mean


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU is sold with.

    Args:
        memory: Bytes, with the gigabyte of the name as 1e9 of them: the driver reports some percent more, and a
            process's CUDA context takes about that.
        bandwidth: Bytes a second that are read from its memory.
        flops: bfloat16 multiplications and additions a second with sums in float32, without sparsity.
    """

    name: str
    memory: float
    bandwidth: float
    flops: float
    source: str


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100", 80e9, 2.039e12, 312e12, "NVIDIA A100 Tensor Core GPU datasheet, 80GB SXM"),
        Gpu("h100", 80e9, 3.35e12, 989e12, "NVIDIA H100 Tensor Core GPU datasheet, SXM5"),
        Gpu("h200", 141e9, 4.8e12, 989e12, "NVIDIA H200 Tensor Core GPU datasheet, SXM"),
        Gpu("l40s", 48e9, 0.864e12, 362e12, "NVIDIA L40S datasheet"),
        Gpu("rtx4090", 24e9, 1.008e12, 165.2e12, "NVIDIA Ada GPU architecture whitepaper 2.1, GeForce RTX 4090"),
    )
}


def find_gpu(name: str) -> Gpu:
    """The GPU of a name, in upper or lower case; `ValueError` if there is none in the table."""
    if (gpu := GPUS.get(name.lower().replace("_", "").replace(" ", ""))) is not None:
        return gpu
    hint = did_you_mean(name.lower(), GPUS) or " Choose the one that is most like yours."
    raise ValueError(f"no GPU {name!r} in the table; expected one of {', '.join(GPUS)}.{hint}")
