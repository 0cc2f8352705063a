"""How long sampling, an update and the network take: what is assumed, in one place. `LAUNCH` alone was measured.

`benchmarks/cluster.py` simulates a training step on many GPUs with the same assumptions, and docs say "computed" where
they show what follows. They are of an H100; another GPU is scaled by its published bandwidth and operations.
"""

from __future__ import annotations

from dataclasses import dataclass

from pettingllms_trl.estimate.gpus import GPUS, Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """An engine on one H100: a decoding step of B sequences takes `step_s + row_s * B` seconds.

    Args:
        parameters: Of its model, in bfloat16.
        step_s: Of a step with nothing in it: the weights are read once, and kernels are launched.
        row_s: More for each sequence, of `CONTEXT` tokens.
        prefill_s: Of a prompt of `PROMPT` tokens.
    """

    parameters: float
    step_s: float
    row_s: float
    prefill_s: float


SMALL = Decoding(parameters=1.7e9, step_s=0.0025, row_s=0.00001, prefill_s=0.004)
LARGE = Decoding(parameters=8e9, step_s=0.006, row_s=0.00003, prefill_s=0.020)

PROMPT = 500
"""Tokens of a prompt: of a game or a short problem."""
COMPLETION = 300
"""Tokens of a completion, on average."""
CONTEXT = PROMPT + COMPLETION // 2
"""Tokens that a sequence has on average while it is decoded."""
MAX_SEQUENCES = 256
"""Sequences that an engine decodes at a time: vLLM's usual `max_num_seqs`."""
PRODUCTS = 0.6
"""Share of a GPU's published operations that products and attention reach, if they do not wait for memory."""
LAUNCH = 16e-6
"""Seconds that an operation takes at least, which Python launches: of an H200 and a Xeon beside it, in `generate` of a
0.6B (docs/gpus.md)."""
INSIDE = 300e9
"""Bytes a second between GPUs of a node, one way: two thirds of an H100 SXM's NVLink, 450 GB/s."""
BETWEEN = 35e9
"""The same to other nodes: 70% of 400 Gbit/s for each GPU."""
PER_NODE = 8
"""GPUs of a node."""


def decoding_step(gpu: Gpu, parameters: float, kv_bytes: float, *, sequences: float, context: float) -> float:
    """Seconds of a decoding step in bfloat16, with `kv_bytes` a token and `context` tokens a sequence on average.

    Between the two engines that are assumed, and beyond them, times are linear in the number of parameters. What comes
    of reading weights scales with the bandwidth; the launches, which do not, are what is left at 0 parameters. A cache
    that is longer than `CONTEXT` takes the time of reading the difference. No step is quicker than its reads.
    """
    ratio = GPUS["h100"].bandwidth / gpu.bandwidth
    slope = (LARGE.step_s - SMALL.step_s) / (LARGE.parameters - SMALL.parameters)
    launches = SMALL.step_s - slope * SMALL.parameters
    row_slope = (LARGE.row_s - SMALL.row_s) / (LARGE.parameters - SMALL.parameters)
    row = max(SMALL.row_s + row_slope * (parameters - SMALL.parameters), 0.0) * ratio
    row += max(context - CONTEXT, 0.0) * kv_bytes / gpu.bandwidth
    reads = (2 * parameters + sequences * context * kv_bytes) / gpu.bandwidth
    return max(launches + slope * parameters * ratio + row * sequences, reads)
