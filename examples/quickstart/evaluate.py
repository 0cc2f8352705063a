"""Reloads the adapters that the quickstart wrote and plays the team on held-out instances again.

python examples/quickstart/evaluate.py outputs/quickstart [--episodes 500] [--first 0] [--cut | --swap]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import archives
import plan_path
from report import interval_table, summary, table
from training import positive, quiet


def main() -> None:
    """Reload, play, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder that the quickstart wrote")
    parser.add_argument("--episodes", type=positive, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first of the held-out instances")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling; the instances are the same")
    parser.add_argument("--cut", action="store_true", help="archives: no message arrives")
    parser.add_argument("--swap", action="store_true", help="plan_path: give each role the other's adapter")
    options = parser.parse_args()
    folder: Path = options.output / "adapters"
    agents = sorted(path.name for path in folder.glob("*") if path.is_dir())
    if not agents:
        parser.error(f"no team in {options.output}; expected what quickstart.py writes. Run: make quickstart")
    quiet()
    of_archives = set(agents) == set(archives.TEAM.agents)
    if (options.swap and of_archives) or (options.cut and not of_archives):
        parser.error("--cut goes with the task archives, --swap with plan_path; leave it out")
    print(_archives(options, folder) if of_archives else _plan_path(options, folder))


def _archives(options: Any, adapters: Path) -> str:
    form = archives.CUT if options.cut else archives.TEAM
    output = options.output / "runs" / "again"
    trainer = archives.make_trainer(form, output=output, seed=options.seed, adapters=adapters)
    return interval_table(
        {form.title: archives.successes(archives.held_out(trainer, options.episodes, options.first))}
    )


def _plan_path(options: Any, folder: Path) -> str:
    roles = ("planner", "drafter") if options.swap else ("drafter", "planner")
    trainer = plan_path.make_trainer(
        options.output / "base",
        {role: folder / adapter for role, adapter in zip(("drafter", "planner"), roles, strict=True)},
        workflow="draft_plan",
        output=options.output / "runs" / "again",
        seed=options.seed,
    )
    name = "team, adapters swapped" if options.swap else "team"
    return table({name: summary(plan_path.held_out(trainer, options.episodes, options.first))})


if __name__ == "__main__":
    main()
