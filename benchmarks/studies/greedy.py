"""Plays the teams of a finished study with their most likely replies, and what they started from: how much of what a
training adds is that a model says more often what it found likeliest anyway.

    python benchmarks/studies/greedy.py benchmarks/results/study/teams --work outputs/study/teams

writes `greedy.json` beside the study's results: for each environment and method the successes on the instances of the
evaluation, of the weights that all its runs start from and of each trained team in the study's folder of work. What
the file has already is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from pettingllms_envs.research.studies.analysis import read_results
from pettingllms_envs.research.studies.results import CellResult
from pettingllms_trl.research.study.cells import run_cell
from pettingllms_trl.research.study.plans.plan import PlannedRun


def successes(result: CellResult, folder: Path, team: Path | None) -> str:
    """What a run's team succeeds at with its most likely replies: `"1"` or `"0"` for each instance.

    Args:
        result: Of the run.
        folder: Where its trainer may write.
        team: Folder of its adapters; None for the weights that it started from.
    """
    train: dict[str, Any] = {**result.config["train"], "top_k": 1}
    if team is not None:
        train["adapters"] = str(team)
    config = {**result.config, "train": train, "trained": False, "tokens": 0, "curve": {"points": 0, "instances": 1}}
    return run_cell(
        PlannedRun(cell=replace(result.cell, method=f"{result.cell.method}-greedy"), config=config), folder, None
    ).success


def main() -> None:
    """Read the options and play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of the study's results")
    parser.add_argument("--work", type=Path, required=True, help="the study's folder of work, which has the teams")
    parser.add_argument(
        "--methods", nargs="+", default=["team", "shared", "routed", "full", "alone", "directed", "grpo"]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    options = parser.parse_args()
    torch.set_num_threads(1)
    output = options.results / "greedy.json"
    found: dict[str, dict[str, dict[str, str]]] = json.loads(output.read_text()) if output.is_file() else {}
    for (environment, method), results in read_results(options.results).evaluation.items():
        if method not in options.methods:
            continue
        rows = found.setdefault(environment, {}).setdefault(method, {})
        for result in [each for each in results if each.cell.seed in options.seeds]:
            teams = {str(result.cell.seed): options.work.joinpath("runs", *result.cell.parts, "team")}
            for name, team in ({"untrained": None} | teams).items():
                if name in rows:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    rows[name] = successes(result, Path(folder), team)
                print(environment, method, name, f"{rows[name].count('1') / len(rows[name]):.1%}", flush=True)
                output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
