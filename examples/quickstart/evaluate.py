"""Reloads the adapters that the quickstart wrote and plays the team on held-out instances again.

python examples/quickstart/evaluate.py outputs/quickstart [--episodes 500] [--swap]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from report import summary, table
from team import held_out, make_trainer, quiet


def main() -> None:
    """Reload, play, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder that the quickstart wrote")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the sampling; the instances are the same")
    parser.add_argument("--swap", action="store_true", help="give each role the other's adapter")
    options = parser.parse_args()
    folder = options.output / "adapters"
    for needed in (options.output / "base", folder / "drafter", folder / "planner"):
        if not needed.is_dir():
            parser.error(f"{needed} is not there; expected what quickstart.py writes. Run: make quickstart")
    quiet()
    adapters = {"drafter": folder / "drafter", "planner": folder / "planner"}
    if options.swap:
        adapters = {"drafter": folder / "planner", "planner": folder / "drafter"}
    trainer = make_trainer(
        options.output / "base",
        adapters,
        workflow="draft_plan",
        output=options.output / "runs" / "again",
        seed=options.seed,
    )
    name = "team, adapters swapped" if options.swap else "team"
    print(table({name: summary(held_out(trainer, options.episodes))}))


if __name__ == "__main__":
    main()
