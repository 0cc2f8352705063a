r"""Where more GPUs stop helping: a training step on 1 to 64 of them. Computed, not measured: see `cluster.py`.

    PYTHONPATH=. python benchmarks/bench_scaling.py [--plot scaling.png] [--json FILE]

With a batch that stays as it is (`fixed`: 512 instances), how much quicker does a step get? And with one that grows
with the machine (`growing`: 8 instances a GPU), how many more tokens are trained a second? Scaling is said to have
stopped where twice the GPUs train less than 1.5 times the tokens a second.

Then what can be done about waiting for the slowest GPU: `updates`, the rows of several optimizer steps in one
generation (`steps_per_generation`), and `max_envs`, rows taken from a common counter where not all are in play at
once; and what a rollout takes at least, however rows are shared: its longest instance alone on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cluster import ASSUMPTIONS, Cluster, Model, Step, step
from figures import Figure, parser_of, write
from shared_rows import rollout_seconds
from simulation import Speed, Workload

from pettingllms_trl.estimate import speed
from pettingllms_trl.estimate.speed import MAX_SEQUENCES, Decoding


def engine(name: str, assumed: Decoding) -> Speed:
    """The engine of a model, at the speed that `pettingllms train --estimate` assumes."""
    return Speed(
        name=name,
        step_s=assumed.step_s,
        row_s=assumed.row_s,
        prefill_s=assumed.prefill_s,
        max_num_seqs=MAX_SEQUENCES,
    )


LARGE, SMALL = engine("8B", speed.LARGE), engine("1.7B", speed.SMALL)
MODELS: Mapping[str, Model] = {
    "8B, all weights": Model(speed=LARGE, parameters=8e9, trained=8e9),
    "8B, adapters": Model(speed=LARGE, parameters=8e9, trained=0.045e9),
    "1.7B, all weights": Model(speed=SMALL, parameters=1.7e9, trained=1.7e9),
}
GPUS = (1, 2, 4, 8, 16, 32, 64)
FIXED, PER_GPU = 512, 8
ENOUGH = 1.5
"""Times the tokens a second that twice the GPUs have to train, or scaling has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Steps of one model on more and more GPUs, twice as many each time."""

    name: str
    batch: str
    steps: tuple[Step, ...]

    def efficiency(self, at: Step) -> float:
        """Tokens a second for each GPU, over those of the fewest."""
        first = self.steps[0]
        return at.rate / at.num_gpus / (first.rate / first.num_gpus)

    @property
    def stops(self) -> int | None:
        """The most GPUs that still paid; `None` where all did."""
        for before, after in zip(self.steps, self.steps[1:], strict=False):
            if after.rate < ENOUGH * before.rate:
                return before.num_gpus
        return None

    def lines(self) -> list[str]:
        lines = [f"{self.name}, {self.batch}"]
        for s in self.steps:
            parts = f"{s.rollout:9.1f}{s.rollout - s.mean_rollout:9.1f}{s.update:9.2f}{s.network:9.2f}{s.fixed:7.1f}"
            rates = f"{s.seconds:9.1f}{s.rate:10,.0f}{s.rate / s.num_gpus:9,.0f}{self.efficiency(s):7.0%}"
            lines.append(f"{s.num_gpus:6}{parts}{rates}")
        stops = self.stops
        last = self.steps[-1].num_gpus
        lines.append(f"    scales to {last} GPUs and more" if stops is None else f"    stops scaling at {stops} GPUs")
        return lines


def scalings(seed: int, gpus: Sequence[int] = GPUS, fixed: int = FIXED) -> list[Scaling]:
    """Every model, with both batches."""
    cluster, found = Cluster(), []
    for name, model in MODELS.items():
        whole = Workload(instances=fixed, seed=seed)
        found.append(
            Scaling(
                name=name,
                batch=f"fixed: {fixed} instances",
                steps=tuple(step(model, cluster, whole, number) for number in gpus),
            )
        )
        grown = tuple(step(model, cluster, replace(whole, instances=PER_GPU * number), number) for number in gpus)
        found.append(Scaling(name=name, batch=f"growing: {PER_GPU} instances a GPU", steps=grown))
    return found


UPDATES = (1, 2, 3, 4)


def of_updates(seed: int, num_gpus: int) -> Iterator[tuple[Step, Step]]:
    """8B, all weights: one GPU and so many, 8 instances a GPU and update, with each of `UPDATES`."""
    cluster, model = Cluster(), MODELS["8B, all weights"]
    for updates in UPDATES:
        one, all_ = (
            step(model, cluster, Workload(instances=PER_GPU * updates * gpus, seed=seed), gpus, updates=updates)
            for gpus in (1, num_gpus)
        )
        yield one, all_


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Seconds of a rollout, 8 instances a GPU, until the last GPU is done.

    Args:
        num_gpus: G.
        max_envs: Instances in play at once on a GPU.
        is_uneven: Whether instances differ in their turns: 1 to 7 of each agent, else 4.
        fixed: With a fixed share for each GPU.
        shared: With rows taken from a counter.
    """

    num_gpus: int
    max_envs: int
    is_uneven: bool
    fixed: float
    shared: float

    def line(self) -> str:
        turns = "1 to 7" if self.is_uneven else "4"
        times = f"{self.fixed:9.1f}{self.shared:9.1f}{self.fixed / self.shared:8.2f}x"
        return f"{self.num_gpus:6}{self.max_envs:10}{turns:>9}{times}"


def of_sharing(seed: int, gpus: Sequence[int] = (8, 64), max_envs: Sequence[int] = (1, 2, 4)) -> Iterator[Sharing]:
    """8B."""
    for is_uneven in (False, True):
        for number in gpus:
            workload = Workload(instances=PER_GPU * number, is_uneven=is_uneven, seed=seed)
            for most in max_envs:
                fixed, shared = (
                    max(rollout_seconds(LARGE, workload, number, max_envs=most, is_shared=is_shared))
                    for is_shared in (False, True)
                )
                yield Sharing(num_gpus=number, max_envs=most, is_uneven=is_uneven, fixed=fixed, shared=shared)


def longest_alone(speed: Speed, workload: Workload) -> float:
    """Seconds of the instance that takes longest, with a GPU for itself."""
    return max(rollout_seconds(speed, workload, workload.instances))


def figures(found: Sequence[Scaling]) -> list[Figure]:
    """Tokens a second on the most GPUs, and where it stops."""
    saved = []
    for each in found:
        last, name = each.steps[-1], f"{each.name}, {each.batch}"
        rate, share = last.rate, each.efficiency(last)
        on = f"on {last.num_gpus} GPUs, {name}"
        stops = float(each.stops or last.num_gpus)
        saved += [
            Figure(name=f"trained {on}", unit="tokens/s", ours=(rate,), better="more", computed=True),
            Figure(name=f"efficiency {on}", unit="", ours=(share,), better="more", computed=True),
            Figure(name=f"stops scaling at, {name}", unit="GPUs", ours=(stops,), better="more", computed=True),
        ]
    return saved


def plot(found: Sequence[Scaling], path: Path) -> None:
    """Tokens a second against GPUs, and what a step is spent on."""
    from matplotlib.figure import Figure as Page

    page = Page(figsize=(11, 4), layout="constrained")
    rates, parts = page.subplots(1, 2)
    for each in found:
        gpus = [s.num_gpus for s in each.steps]
        dashes = "-" if each.batch.startswith("growing") else "--"
        rates.plot(gpus, [s.rate for s in each.steps], dashes, marker="o", label=f"{each.name}, {each.batch}")
    rates.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="tokens trained a second", title="computed")
    rates.legend(fontsize="x-small")
    shown = found[0]
    gpus = [s.num_gpus for s in shown.steps]
    shares = {
        "rollout": [s.mean_rollout / s.seconds for s in shown.steps],
        "waiting for the slowest": [(s.rollout - s.mean_rollout) / s.seconds for s in shown.steps],
        "update": [s.update / s.seconds for s in shown.steps],
        "network": [s.network / s.seconds for s in shown.steps],
        "fixed": [s.fixed / s.seconds for s in shown.steps],
    }
    parts.stackplot(gpus, *shares.values(), labels=shares)
    parts.set(xscale="log", xlabel="GPUs", ylabel="share of a step", title=f"{shown.name}, {shown.batch}")
    parts.legend(fontsize="x-small", loc="lower left")
    page.savefig(path, dpi=100)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute, print, save."""
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of lengths and times (0)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it")
    given = parser.parse_args(arguments)
    print("COMPUTED, on no GPU. What is assumed:\n")
    for row in ASSUMPTIONS:
        print("| " + " | ".join(row) + " |")
    found = scalings(given.seed)
    header = ("rollout", "waited", "update", "network", "fixed", "step s", "tokens/s", "per GPU", "eff.")
    widths = (9, 9, 9, 9, 7, 9, 10, 9, 7)
    print(f"\n{'GPUs':>6}" + "".join(f"{word:>{width}}" for word, width in zip(header, widths, strict=True)))
    for each in found:
        print(*each.lines(), sep="\n", flush=True)
    gpus = GPUS[-1]
    print(f"\n8B, all weights, growing, updates a generation: on 1 and {gpus} GPUs")
    print(f"{'updates':>9}{'rollout':>9}{'update':>9}{'per GPU, 1':>12}{f'..., {gpus}':>9}{'eff.':>7}")
    for one, all_ in of_updates(given.seed, gpus):
        rates = one.rate, all_.rate / gpus
        seconds = f"{all_.rollout:9.1f}{all_.update:9.1f}"
        print(f"{one.updates:9}{seconds}{rates[0]:12,.0f}{rates[1]:9,.0f}{rates[1] / rates[0]:7.0%}", flush=True)
    alone = longest_alone(LARGE, Workload(instances=PER_GPU * gpus, seed=given.seed))
    print(f"Of {PER_GPU * gpus} instances the longest, alone on a GPU: {alone:.1f} s")
    print(f"\n8B, {PER_GPU} instances a GPU, rollout s with fixed shares and shared")
    print(f"{'GPUs':>6}{'max_envs':>10}{'turns':>9}{'fixed':>9}{'shared':>9}")
    for sharing in of_sharing(given.seed):
        print(sharing.line(), flush=True)
    write(given.json, figures(found))
    if given.plot:
        plot(found, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
