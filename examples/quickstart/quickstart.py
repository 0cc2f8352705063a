"""Trains a team of tiny models on a task that provably needs one, without a GPU or a network.

    python examples/quickstart/quickstart.py [--task archives] [--seed 0] [--output outputs/quickstart]

`--task archives` (archives.py): two librarians and an answerer, each of whom lacks what the others have.
`--task plan_path` (plan_path.py): a drafter and a planner walk a grid; a single agent does it as well. A tokenizer and
a Qwen3 of 0.4M parameters are made, and imitate demonstrations first.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path


os.environ.setdefault("HF_HUB_OFFLINE", "1")
# With a model so small a second thread gains little, and beside other work on the machine the two wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import archives
import plan_path
from training import positive, quiet


TASKS = {"archives": archives.run, "plan_path": plan_path.run}


def main() -> None:
    """Read the options and run the task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="archives")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="default: outputs/quickstart for archives, else outputs/TASK")
    parser.add_argument("--episodes", type=positive, default=500, help="held-out instances of each evaluation")
    parser.add_argument("--steps", type=positive, help="optimizer steps of the team; default: what the task says")
    options = parser.parse_args()
    options.output = options.output or Path("outputs") / ("quickstart" if options.task == "archives" else options.task)
    quiet()
    TASKS[options.task](options)


if __name__ == "__main__":
    main()
