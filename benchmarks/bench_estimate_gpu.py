"""A step on a GPU beside what `pettingllms train --estimate` says of it: memory and seconds of each phase.

    PYTHONPATH=. python benchmarks/bench_estimate_gpu.py --json FILE                        # on a GPU, with torch 2.13

Where torch is older there: --estimate said.json elsewhere, of two cases or more, and --beside said.json on the GPU.

Both create the trainer of the same command line and run a generation and an optimizer step, with the same made-up
prompts and replies, and models of random weights. On the GPU every pass is run, and the second of two steps is taken;
what PyTorch's allocator has handed out is measured, beside it what it has reserved and what the process holds of the
card. How a model is loaded and saved is not measured.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from figures import Figure, parser_of, write
from qwen3 import save_qwen3


CONFIGS = Path(__file__).parents[1] / "examples" / "configs"
COMMON = ("--gpu", "h200", "--generation_batch_size", "32", "--prompt_tokens", "500")
UPDATE = (*COMMON, "--use_vllm", "true", "--vllm_mode", "colocate", "--max_completion_length", "1024")
PASSES = ("--gradient_accumulation_steps", "4")
TALK = ("--history", "conversation", "--max_completion_length", "256")
CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    **{
        f"{size} {layout}": (size, layout, (*UPDATE, *PASSES))
        for size in ("0.6B", "1.7B", "8B")
        for layout in ("L1", "L2", "L3")
        if (size, layout) not in {("8B", "L1"), ("8B", "L3")}
    },
    "0.6B L2 without checkpointing": ("0.6B", "L2", (*UPDATE, *PASSES, "--gradient_checkpointing", "false")),
    "0.6B L1, a reference": ("0.6B", "L1", (*UPDATE, *PASSES, "--beta", "0.04")),
    "0.6B L2, conversations": ("0.6B", "L2", (*UPDATE, *PASSES, *TALK)),
    "0.6B L2, generate": ("0.6B", "L2", (*COMMON, *PASSES, "--max_completion_length", "128")),
    "1.7B L1, generate": ("1.7B", "L1", (*COMMON, *PASSES, "--max_completion_length", "128")),
}
"""Of each the model, the layout, and what is given beside the configuration of Plan-Path."""
PHASES = ("rollout", "scoring", "backward", "optimizer step")


def argv_of(case: str, folder: str) -> tuple[str, ...]:
    """The command line, whose model's configuration is saved in the folder."""
    size, layout, given = CASES[case]
    save_qwen3(size, folder, eos_token_id=1, pad_token_id=0)
    return ("--config", str(CONFIGS / f"plan_path_{layout}_1.7B.yaml"), "--model_name_or_path", folder, *given)


# ---- What is said ---------------------------------------------------------------------------------------------------


def said(case: str) -> dict[str, Any]:
    """Bytes, seconds and work of each phase on the simulated GPU, in a process of its own."""
    from pettingllms_trl.estimate.simulated_shapes import ShapesDevice

    device = ShapesDevice.install()
    from pettingllms_trl.cli.estimate import estimated

    with tempfile.TemporaryDirectory() as folder:
        phases = estimated(device, argv_of(case, folder)).step.phases
    found = {name: (each.peak, each.work.seconds, asdict(each.work)) for name, each in phases.items()}
    print(case, {name: f"{size / 1e9:.2f} GB, {s:.3g} s" for name, (size, s, _) in found.items()}, flush=True)
    return found


def said_in_children(cases: list[str]) -> dict[str, Any]:
    """Of each case. A process cannot be rid of the simulated device."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            file = Path(folder, "said.json")
            subprocess.run([sys.executable, __file__, "--estimate", str(file), "--cases", case], check=True)
            found[case] = json.loads(file.read_text("utf-8"))
    return found


# ---- What is measured -----------------------------------------------------------------------------------------------


class Card:
    """Memory and clock of the GPU, where an estimate has those of the simulated one."""

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda if torch.cuda.is_available() else None
        self._began = 0.0

    @property
    def now(self) -> int:
        return self._cuda.memory_allocated() if self._cuda else 0

    @property
    def peak(self) -> int:
        return self._cuda.max_memory_allocated() if self._cuda else 0

    @peak.setter
    def peak(self, _: int) -> None:
        if self._cuda:
            self._cuda.reset_peak_memory_stats()

    @property
    def work(self) -> Any:
        return self.since(None)

    @work.setter
    def work(self, before: Any) -> None:
        """The clock goes on from what it was."""
        self._began = self._clock() - before.seconds

    def since(self, before: Any) -> Any:
        from pettingllms_trl.estimate.simulated_shapes import Work

        return Work(seconds=self._clock() - self._began - (before.seconds if before else 0.0))

    def _clock(self) -> float:
        if self._cuda:
            self._cuda.synchronize()
        return time.perf_counter()


@contextmanager
def with_random_weights(
    device: Card, note: Callable[[str], None], passing: Callable[[], Any]
) -> Iterator[Callable[[Any, Callable[[], Any]], Any]]:
    """Models are made of their configurations on the GPU, a tokenizer is one of bytes, nothing is written, and no
    engine is created; else what runs is what a training runs, each pass of it."""
    import torch
    from transformers import AutoConfig, AutoProcessor, AutoTokenizer, PreTrainedModel, Trainer

    from pettingllms_trl.engines import factory
    from pettingllms_trl.estimate import stand_ins

    step = Trainer.training_step

    def of_configuration(cls: Any, source: Any, *_: Any, **given: Any) -> Any:
        config = given.get("config") or AutoConfig.from_pretrained(source)
        dtype = given.get("dtype") or torch.float32
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            own = {name: given[name] for name in ("attn_implementation",) if given.get(name) is not None}
            return cls._from_config(config, dtype=dtype, **own).eval()

    def training_step(*args: Any, **kwargs: Any) -> Any:
        with passing():
            return step(*args, **kwargs)

    kinds = tuple(
        kind if kind.make is None else kind._replace(make=stand_ins._no_engines, package="") for kind in factory.KINDS
    )
    with ExitStack() as stack:
        for owner, name, new in (
            (PreTrainedModel, "from_pretrained", classmethod(of_configuration)),
            (PreTrainedModel, "save_pretrained", stand_ins._not_written),
            (AutoProcessor, "from_pretrained", partial(stand_ins._tokenizer, AutoProcessor.from_pretrained, note)),
            (AutoTokenizer, "from_pretrained", partial(stand_ins._tokenizer, AutoTokenizer.from_pretrained, note)),
            (Trainer, "training_step", training_step),
            (factory, "KINDS", kinds),
        ):
            stack.enter_context(mock.patch.object(owner, name, new))
        yield lambda key, call: call()


def measured(case: str) -> dict[str, Any]:
    """Bytes and seconds of each phase on the GPU, in the second of two steps."""
    import torch

    from pettingllms_trl.cli.estimate import estimated
    from pettingllms_trl.estimate import step

    found = dict[str, Any]()
    for _ in range(2):
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(step, "standing_in", with_random_weights),
        ):
            phases = estimated(Card(), argv_of(case, folder)).step.phases
        found = {name: (phases[name].peak, phases[name].work.seconds) for name in phases}
        del phases
        gc.collect()
    if torch.cuda.is_available():
        free, whole = torch.cuda.mem_get_info()
        found["reserved"], found["of the card"] = torch.cuda.max_memory_reserved(), whole - free
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return found


def beside(expected: dict[str, Any], cases: list[str]) -> list[Figure]:
    """Measure and print; the figures."""
    figures = []
    for case in cases:
        found = measured(case)
        print(f"{case}: {'GB said':>20}{'measured':>10}{'':>8}{'s said':>9}{'measured':>10}{'':>7}")
        for name in PHASES:
            (size, seconds, *_), (own, took) = expected[case][name], found[name]
            own = max(own, 1)  # on a CPU
            if not seconds:
                continue
            print(
                f"  {name:22}{size / 1e9:12.2f}{own / 1e9:10.2f}{size / own - 1:8.1%}"
                f"{seconds:9.3f}{took:10.3f}{seconds / took:6.2f}x",
                flush=True,
            )
            label = f"{name}, {case}"
            figures += [
                Figure(name=f"memory of {label}", unit="GB", ours=(own / 1e9,), peer_name="--estimate",
                       peer=(size / 1e9,), better="neither"),
                Figure(name=f"seconds of {label}", unit="s", ours=(took,), peer_name="--estimate",
                       peer=(seconds,), better="neither"),
            ]  # fmt: skip
        for name in ("reserved", "of the card"):
            if name in found:
                print(f"  {name:22}{'':12}{found[name] / 1e9:10.2f}")
                figures.append(Figure(name=f"{name}, {case}", unit="GB", ours=(found[name] / 1e9,), better="neither"))
    return figures


def main() -> None:
    """Say, or measure and compare."""
    parser = parser_of(__doc__)
    parser.add_argument("--estimate", type=Path, metavar="FILE", help="write what is said of each case")
    parser.add_argument("--beside", type=Path, metavar="FILE", help="measure on this GPU beside what was said")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    given = parser.parse_args()
    if given.estimate and len(given.cases) == 1:
        given.estimate.write_text(json.dumps(said(given.cases[0])), "utf-8")
        return
    expected = said_in_children(given.cases) if given.beside is None else json.loads(given.beside.read_text("utf-8"))
    if given.estimate:
        given.estimate.write_text(json.dumps(expected), "utf-8")
        return
    figures = list[Figure]()
    for case in given.cases:
        figures += beside(expected, [case])
        write(given.json, figures)


if __name__ == "__main__":
    main()
