"""Every benchmark, one table beside the peers, saved and held against what was saved before.

    make bench                               # all
    make bench ARGS="--only envs,update"     # some
    make bench-gpu                           # what a GPU changes, on one
    python benchmarks/suite.py --list        # what there is, and how long it takes
    python benchmarks/suite.py --gpu --dry-run    # each command and what it needs, without a GPU

Each benchmark is a process of its own, and a command of its own that can be run without this (README.md). Its figures
are saved in results/MACHINE-COMMIT.json with every round, versions and load, and compared with the newest file of a
machine of the same kind that has them. Exit status 1 if a figure got worse by more than the noise, or a benchmark
ended with an error.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peers
from figures import HEADER, Figure, from_record, is_worse, join, read, record, table
from machine import kind, machine, saved_on


HERE = Path(__file__).parent
RESULTS = HERE / "results"
REFERENCE = peers.FOLDER / "PettingLLMs"
NOT_RUN = "not run"
GPU_SHAPES = ("300x128x4", "1000x512x4", "512x64x8", "1024x128x8", "2048x512x8", "300x1500x8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A benchmark as `make bench` runs it.

    Args:
        name: For `--only`.
        what: In a line.
        command: Script in this folder, and its arguments.
        minutes: How long it takes on one quiet core, all repeats together.
        repeats: How often the command is run; the rounds of all are put together. Where a command has no rounds.
        peers: Runs in the peers' environment, not in ours.
        needs: Module without which there is nothing to run.
        gpu: Runs on a GPU, and with `--gpu` alone.
        compiles: Compiles kernels, for which Triton needs a C compiler and Python's headers.
        plots: Draws NAME.png beside what is saved.
    """

    name: str
    what: str
    command: tuple[str, ...]
    minutes: float
    repeats: int = 1
    peers: bool = False
    needs: str = ""
    gpu: bool = False
    compiles: bool = False
    plots: bool = False


SUITES = (
    Suite(
        name="envs",
        what="environments beside TextArena, GEM, reasoning-gym and the reference",
        command=("bench_envs.py", "--rounds", "5", "--resets", "500"),
        minutes=1.5,
        peers=True,
    ),
    Suite(
        name="sandbox",
        what="a solution on 20 tests beside the reference's flags and bubblewrap per test",
        command=("bench_sandbox.py", "--solutions", "10", "--peer-tests", "2"),
        minutes=0.5,
        repeats=3,
    ),
    Suite(
        name="math",
        what="verdicts on answers beside TRL's accuracy_reward",
        command=("bench_math.py", "--groups", "40", "--pairs", "5000"),
        minutes=1.5,
        repeats=3,
        needs="trl",
    ),
    Suite(
        name="tasks",
        what="a turn of the environments of mathematics",
        command=("bench_tasks.py", "--rounds", "3", "--episodes", "40"),
        minutes=0.5,
    ),
    Suite(
        name="coding",
        what="a turn of the coding environments",
        command=("bench_coding.py", "--rounds", "3", "--episodes", "16"),
        minutes=0.5,
    ),
    Suite(
        name="rollouts",
        what="rollouts without barriers beside lock-step, and the loop beside TRL's of environment_factory",
        command=("bench_rollouts.py", "--seeds", "3"),
        minutes=1.5,
        needs="trl",
    ),
    Suite(
        name="step",
        what="what a training step spends outside the model, beside TRL",
        command=("bench_step.py", "--steps", "2"),
        minutes=4,
        needs="trl",
    ),
    Suite(
        name="update",
        what="loss and gradients with prompts shared, beside TRL's GRPOTrainer",
        command=("bench_update.py", "--rounds", "3", "--memory"),
        minutes=15,
        needs="trl",
    ),
    Suite(
        name="update_flat",
        what="the update of a generation in which groups have no advantage, beside one with all rows",
        command=("bench_update.py", "--flat", "--shapes", "64x16x8"),
        minutes=3,
        needs="trl",
    ),
    Suite(
        name="update_bf16",
        what="loss and gradients in bfloat16 on a CPU, beside TRL's GRPOTrainer",
        command=("bench_update.py", "--rounds", "3", "--dtype", "bfloat16", "--shapes", "300x128x4", "1000x512x4"),
        minutes=9,
        needs="trl",
    ),
    Suite(
        name="update_tree",
        what="the update of a whole conversation, beside TRL's GRPOTrainer and each prompt once",
        command=("bench_update.py", "--tree", "6x128x50x16x8", "--rounds", "3", "--memory"),
        minutes=3,
        needs="trl",
    ),
    Suite(
        name="end_to_end",
        what="tokens trained per second beside TRL's GRPOTrainer, on the same prompts and tokens",
        command=("bench_end_to_end.py",),
        minutes=1.5,
        needs="trl",
    ),
    Suite(
        name="growth",
        what="how time and memory grow with instances, candidates, turns, roles, prompts and policies",
        command=("bench_growth.py", "--rounds", "2"),
        minutes=1.5,
        plots=True,
        needs="trl",
    ),
    Suite(
        name="scaling",
        what="where 64 GPUs stop scaling (computed)",
        command=("bench_scaling.py",),
        minutes=4.5,
        plots=True,
    ),
    Suite(
        name="sampling",
        what="vLLM beside the trainer and beside generate",
        command=("bench_sampling.py", "--steps", "5"),
        minutes=8,
        needs="vllm",
    ),
    Suite(
        name="rollouts_vllm",
        what="rollouts without barriers beside lock-step, on real vLLM with two adapters",
        command=("bench_rollouts_vllm.py",),
        minutes=1.5,
        needs="vllm",
    ),
    *(
        Suite(
            name=f"update_{kind}{size}{'_checkpointing' if flags else ''}",
            what=f"{what} of a random Qwen3 of {size} in bf16, packed, beside TRL's GRPOTrainer",
            command=(
                "bench_update.py",
                *("--device", "cuda", "--dtype", "bfloat16", "--model", f"qwen3-{size}", "--memory", *flags, *shapes),
            ),
            minutes=3,
            needs="trl",
            gpu=True,
        )
        for kind, what, shapes in (
            ("", "loss and gradients", ("--shapes", *GPU_SHAPES)),
            ("tree_", "the update by a whole conversation", ("--tree", "6x512x200x64x8", "4x1024x400x128x8")),
        )
        for size in ("0.6b", "1.7b")
        for flags in ((), ("--checkpointing",))
    ),
    *(
        Suite(
            name=f"update_0.6b_flex{'_checkpointing' if flags else ''}",
            what="the same of 0.6b, TRL's GRPOTrainer with transformers' flex_attention",
            command=(
                "bench_update.py",
                *("--device", "cuda", "--dtype", "bfloat16", "--model", "qwen3-0.6b", "--memory", *flags),
                *("--attention", "flex_attention", "--shapes", *GPU_SHAPES),
            ),
            minutes=5,
            needs="trl",
            gpu=True,
            compiles=True,
        )
        for flags in ((), ("--checkpointing",))
    ),
    Suite(
        name="ways_0.6b",
        what="other ways to share a prompt, flex attention over the packed row among them",
        command=(
            "bench_update.py",
            *("--device", "cuda", "--dtype", "bfloat16", "--model", "qwen3-0.6b", "--ways"),
            *("--shapes", *GPU_SHAPES[:2]),
        ),
        minutes=3,
        needs="trl",
        gpu=True,
        compiles=True,
    ),
    *(
        Suite(
            name=f"two_processes{'' if sampler == 'scripted' else '_generate'}",
            what=f"two processes on one GPU beside one, 0.6B, {replies}",
            command=("bench_two_processes.py", "--device", "cuda", "--size", "0.6B", "--sampler", sampler),
            minutes=3,
            needs="trl",
            gpu=True,
        )
        for sampler, replies in (("scripted", "replies scripted: final weights"), ("generate", "transformers samples"))
    ),
    Suite(
        name="vision_3b",
        what="a training step of a random Qwen2.5-VL of 3B in bf16 on pictures, adapters; peak memory",
        command=("bench_vision.py", "--device", "cuda", "--size", "3b"),
        minutes=4,
        needs="trl",
        gpu=True,
    ),
    Suite(
        name="estimate_gpu",
        what="a step's memory and seconds beside what --estimate says of it",
        command=("bench_estimate_gpu.py",),
        minutes=8,
        needs="trl",
        gpu=True,
    ),
    Suite(
        name="step_gpu",
        what="what a training step spends outside the model, 0.6B in bf16",
        command=("bench_step.py", "--size", "0.6B", "--steps", "2"),
        minutes=3,
        needs="trl",
        gpu=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What came of a benchmark: figures, or why there are none."""

    suite: Suite
    figures: tuple[Figure, ...] = ()
    seconds: float = 0.0
    load: float = 0.0
    failed: str = ""


def run(suite: Suite, reference: Path | None, plots: Path | None = None) -> Ran:
    """Run the command as often as it says, its output on ours; what it draws goes into the folder `plots`."""
    if suite.needs and importlib.util.find_spec(suite.needs) is None:
        missing = f"{suite.needs} is not installed here (pip install '.[{suite.needs}]')"
        return Ran(suite=suite, failed=f"{NOT_RUN}: {missing}")
    try:
        interpreter = str(peers.prepare()) if suite.peers else sys.executable
    except subprocess.CalledProcessError as error:
        return Ran(suite=suite, failed=f"{NOT_RUN}: the peers' environment was not made: {error}")
    script, *arguments = suite.command
    if suite.peers and reference is not None:
        arguments += ["--reference", str(reference)]
    if suite.plots and plots is not None:
        plots.mkdir(exist_ok=True)
        arguments += ["--plot", str(plots / f"{suite.name}.png")]
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **os.environ, **always(suite)}
    began, load, runs = time.perf_counter(), os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(suite.repeats):
            file = Path(folder, f"{number}.json")
            command = [interpreter, str(HERE / script), *arguments, "--json", str(file)]
            status = subprocess.run(command, env=environment, check=False).returncode
            if not file.exists():
                return Ran(suite=suite, failed=f"{script} ended with status {status} before it had figures")
            runs.append(read(file))
    return Ran(suite=suite, figures=tuple(join(runs)), seconds=time.perf_counter() - began, load=load)


def always(suite: Suite) -> dict[str, str]:
    """Variables that a benchmark's process is given, whatever ours has; of our modules it has the path, too, unless it
    runs in the peers' environment."""
    own = [] if suite.peers else [os.environ.get("PYTHONPATH", "")]
    paths = os.pathsep.join(filter(None, [str(HERE.parent), str(HERE.parent / "examples/quickstart"), *own]))
    if not suite.gpu:
        return {"PYTHONPATH": paths}
    # Of several, transformers would take all into one model.
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return {"PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": first}


def plan(suites: Sequence[Suite]) -> list[str]:
    """What a run would do: each command, its minutes, and what must be there, whether it is or not."""
    lines = []
    for suite in suites:
        times = f" x {suite.repeats}" if suite.repeats > 1 else ""
        variables = " ".join(f"{name}={value}" for name, value in always(suite).items())
        python = "the peers' python" if suite.peers else sys.executable
        script, *arguments = suite.command
        command = " ".join([python, str(HERE / script), *arguments])
        lines += [
            f"{suite.name}: {suite.what}; some {suite.minutes:g} minutes",
            f"  needs {'; '.join(needs(suite)) or 'nothing else'}",
            f"  OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 {variables} {command}{times}",
        ]
    return lines


def needs(suite: Suite) -> list[str]:
    """What must be there for a benchmark, and whether it is here."""
    found = ["the peers' environment, which a run makes"] if suite.peers else []
    if suite.needs:
        is_there = importlib.util.find_spec(suite.needs) is not None
        found.append(f"{suite.needs} ({'installed' if is_there else f'MISSING: pip install .[{suite.needs}]'})")
    if suite.gpu:
        found.append(f"a GPU ({_gpu() or 'MISSING'})")
    if suite.compiles:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        header = Path(sysconfig.get_paths()["include"], "Python.h")
        found.append(f"a C compiler ({compiler or 'MISSING'})")
        found.append(f"Python's headers ({header.parent if header.exists() else 'MISSING: python3-dev'})")
    return found


def _gpu() -> str:
    """The name of the GPU that torch finds, or ""."""
    if importlib.util.find_spec("torch") is None:
        return ""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def save(file: Path, ran: Sequence[Ran], here: Mapping[str, Any]) -> None:
    """Write each benchmark's figures into the file, in place of what it had of the same one."""
    known = json.loads(file.read_text()) if file.exists() else {}
    suites = known.get("suites", {})
    for each in ran:
        if each.figures:
            suites[each.suite.name] = {
                "date": here["date"],
                "command": " ".join(each.suite.command),
                "seconds": round(each.seconds, 1),
                "load": each.load,
                "figures": [record(figure) for figure in each.figures],
            }
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"machine": dict(here), "suites": suites}, indent=1) + "\n")


def saved_before(folder: Path, machine_kind: str, but: Path) -> dict[tuple[str, str], Figure]:
    """The newest saved figure of each name on machines of the kind, by benchmark and name."""
    dated = []
    for file in saved_on(machine_kind, folder):
        if file != but:
            for name, suite in json.loads(file.read_text())["suites"].items():
                dated.append((suite["date"], name, suite["figures"]))
    newest = {}
    for _, name, figures in sorted(dated, key=lambda each: each[0]):
        newest.update({(name, figure["name"]): from_record(figure) for figure in figures})
    return newest


def report(ran: Sequence[Ran], before: Mapping[tuple[str, str], Figure]) -> list[str]:
    """Print one table; returns the names of the figures that got worse."""
    rows: list[tuple[str, ...]] = [HEADER]
    worse = []
    for each in ran:
        name = each.suite.name
        rows.append((f"-- {name}: {each.suite.what}", *[""] * (len(HEADER) - 1)))
        if each.failed:
            rows.append((f"NOT MEASURED: {each.failed}", *[""] * (len(HEADER) - 1)))
        for figure in each.figures:
            old = before.get((name, figure.name))
            rows.append(figure.cells(old))
            if old is not None and is_worse(old, figure):
                worse.append(f"{name}: {figure.name}")
    print("", table(rows), "", sep="\n")
    return worse


def chosen(only: str, gpu: bool) -> list[Suite]:
    """The benchmarks of `--only`, in their order.

    Raises:
        ValueError: A name is none of theirs.
    """
    fitting = [suite for suite in SUITES if suite.gpu == gpu]
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = [suite.name for suite in fitting]
    for name in names:
        if name not in known:
            raise ValueError(f"--only has {name!r}; expected some of {', '.join(known)}, with commas between them.")
    return [suite for suite in fitting if not names or suite.name in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, save, compare; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME,NAME", help="some of the benchmarks")
    parser.add_argument("--gpu", action="store_true", help="what a GPU changes, on the first of this machine")
    parser.add_argument("--list", action="store_true", help="print what there is, and end")
    parser.add_argument("--dry-run", action="store_true", help="print each command and what it needs, and end")
    parser.add_argument("--reference", type=Path, metavar="DIR", help="checkout of the reference (.bench/PettingLLMs)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="saved figures (%(default)s)")
    parser.add_argument("--dry", action="store_true", help="compare, and save nothing")
    given = parser.parse_args(arguments)
    try:
        suites = chosen(given.only, given.gpu)
    except ValueError as error:
        parser.error(str(error))
    minutes = sum(suite.minutes for suite in suites)
    for suite in suites if given.list else ():
        print(f"{suite.name:28}{suite.minutes:5.1f} min  {suite.what}")
    print(f"{len(suites)} benchmarks, some {minutes:.0f} minutes on a quiet core", flush=True)
    if given.dry_run:
        print(*plan(suites), sep="\n")
    if given.list or given.dry_run:
        return 0
    gpu_name = _gpu() if given.gpu else ""
    if given.gpu and not gpu_name:
        parser.error(
            "--gpu, and torch finds no GPU here; leave it out, install a torch with CUDA, or add --dry-run to see "
            "what would run"
        )
    reference = given.reference or (REFERENCE if REFERENCE.exists() else None)
    here = machine() | ({"gpu": gpu_name} if gpu_name else {})
    file = given.results / f"{kind(gpu_name)}-{_short(here['commit'])}.json"
    ran: list[Ran] = []
    for suite in suites:
        print(f"\n==== {suite.name}: {suite.what}\n", flush=True)
        ran.append(run(suite, reference, None if given.dry else given.results))
        if not given.dry:
            save(file, ran[-1:], here)  # at once, so that whoever stops it loses only the one in progress
    worse = report(ran, saved_before(given.results, kind(gpu_name), file))
    if not given.dry:
        print(f"Saved in {file}.")
    return finish(ran, worse, peers.not_installed(), here)


def finish(ran: Sequence[Ran], worse: Sequence[str], missing: Sequence[str], here: Mapping[str, Any]) -> int:
    """Print what needs a look; the exit status."""
    failed = [f"{each.suite.name}: {each.failed}" for each in ran if each.failed]
    missed = [f"{each.suite.name}: {f.name}" for each in ran for f in each.figures if f.met is False and not f.absent]
    absent = [f"{each.suite.name}: {f.name}: {f.absent}" for each in ran for f in each.figures if f.absent]
    lists = {
        "Worse than saved, by more than the noise": worse,
        "Goals missed": missed,
        "Not measured": [*failed, *missing, *absent],
    }
    for title, lines in lists.items():
        if lines:
            print(f"{title}:", *(f"  {line}" for line in lines), sep="\n")
    counted = [f.met for each in ran for f in each.figures if f.met is not None]
    load = max([os.getloadavg()[0], *(each.load for each in ran)])
    print(f"{sum(counted)} of {len(counted)} goals met; {here['cpu']}, {here['cores']} cores, load up to {load:.1f}.")
    broken = [each for each in ran if each.failed and not each.failed.startswith(NOT_RUN)]
    return int(bool(worse or broken))


def _short(commit: str) -> str:
    head, _, changes = commit.partition("+")
    return head[:8] + ("-changed" if changes else "")


if __name__ == "__main__":
    sys.exit(main())
