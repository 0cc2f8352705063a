r"""What it gives to sample the rows of k optimizer steps in one generation. Computed, not measured: see `cluster.py`.

    PYTHONPATH=. python benchmarks/bench_steps_per_generation.py

`steps_per_generation = k * gradient_accumulation_steps`: the rows of k optimizer steps are played together, and then
trained on in k updates, the last of which is k - 1 updates off-policy, (k - 1) / 2 on average. Eight GPUs, 64
instances of eight decisions an update, eight candidates each. Tools: every step of an environment takes about that
long (lognormal, from half to twice as long), and those of all candidates run at once.

Prints the table of docs/recipes.md: seconds of an optimizer step with k = 1, and tokens trained a second with k = 2
and 3 over those with k = 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence

from bench_scaling import MODELS
from cluster import Cluster, Step, step
from simulation import Workload


NUM_GPUS, INSTANCES = 8, 64
"""GPUs, and instances of an optimizer step."""
TOOLS: Mapping[str, tuple[float, float]] = {"none": (1e-6, 2e-6), "0.5 s": (0.25, 1.0), "5 s": (2.5, 10.0)}
SHOWN = ("1.7B, all weights", "8B, all weights")
HEADER = ("", "tools", "k = 1", "rollout / update", "k = 2", "k = 3")


def steps(model: str, tool: str, updates: Sequence[int] = (1, 2, 3)) -> list[Step]:
    """Generations for so many optimizer steps each."""
    found = []
    for number in updates:
        workload = Workload(instances=INSTANCES * number, env_s=TOOLS[tool])
        threads = workload.candidates * workload.instances // NUM_GPUS
        found.append(step(MODELS[model], Cluster(), workload, NUM_GPUS, updates=number, env_threads=threads))
    return found


def cells(model: str, tool: str) -> list[str]:
    """A row of the table."""
    one, *more = steps(model, tool)
    ratio = one.rollout / (one.seconds - one.rollout)
    seconds = [f"{one.seconds:.0f} s", f"{ratio:.1f}"]
    return [model.split(",")[0], tool, *seconds, *(f"{each.rate / one.rate:.2f}x" for each in more)]


def table() -> Iterator[str]:
    """The lines of the table."""
    yield "| " + " | ".join(HEADER) + " |"
    yield "|" + " --- |" * len(HEADER)
    for model in SHOWN:
        for tool in TOOLS:
            yield "| " + " | ".join(cells(model, tool)) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    for line in table():
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
