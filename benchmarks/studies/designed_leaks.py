"""What trained designers write, in the runs of an environment of `designed.yaml`, over all seeds.

    python benchmarks/studies/designed_leaks.py benchmarks/studies/designed.yaml archives --work WORK

WORK is the folder that `pettingllms study --work` was given. For `designed` and `disguised`, before training and
after, for each seed and then for all: of so many designs (`asked`) the readable ones, those of the most frequent kind
(`usual`), members and teams of one; episodes that succeed, also where the most frequent design is played for every
question; and `measure_leaks`, whether the answer stands in a job. Its member without the question is the run's own.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from designed_play import MEMBER, Team, play, torch

from pettingllms_envs.core import Unreadable
from pettingllms_envs.registry import make
from pettingllms_envs.research.studies.results import Cell
from pettingllms_envs.teams.design_leaks import measure_leaks
from pettingllms_envs.teams.designs import read_design
from pettingllms_trl.research.study.plans.study_file import read_study


def measured(fields: Mapping[str, Any], team: Team, number: int) -> dict[str, float]:
    """Counts over the first questions of the evaluation."""
    workflow = make(fields["env_id"], **fields["env_kwargs"]).unwrapped.workflow
    seeds, split = range(*fields["eval_seeds"])[:number], fields["eval_split"]
    episodes = play(team, fields, seeds, split)
    designs = []
    for seed, each in zip(seeds, episodes, strict=True):
        if not isinstance(design := read_design(each.design, workflow.limits), Unreadable):
            designs.append((workflow.task.generate(seed, split), design))
    ((usual, times),) = Counter(each.design for each in episodes).most_common(1)
    constant = play(team, fields, seeds, split, [usual] * len(episodes))
    system = workflow.system(f"{MEMBER}_0")
    prompts: list[tuple[str, str]] = []  # those of the members without the question, to be asked all at once
    measure_leaks(workflow.task, designs, lambda text: prompts.append((system, text)) or "")
    replies = iter(team.replies(MEMBER, prompts))
    leaks = measure_leaks(workflow.task, designs, lambda _: next(replies))
    return {
        "asked": len(episodes),
        "readable": len(designs),
        "members": sum(len(design.members) for _, design in designs),
        "teams_of_one": sum(len(design.members) == 1 for _, design in designs),
        "success": sum(each.outcome["success"] for each in episodes),
        "usual": times,
        "success_of_usual": sum(each.outcome["success"] for each in constant),
        **leaks._asdict(),
    }


def main() -> None:
    """Print a row for each method and seed, and a row of their sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("environment", choices=["archives", "plan_path"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["designed", "disguised"])
    parser.add_argument("--seeds", type=int, nargs="+", help="those of the study")
    parser.add_argument("--number", type=int, default=300, help="of questions")
    given = parser.parse_args()
    torch.set_num_threads(1)
    study = read_study(given.study)
    for method, when in product(given.methods, ("before training", "after")):
        total: Counter[str] = Counter()
        for seed in given.seeds or study.seeds:
            cell = Cell(phase="evaluation", environment=given.environment, method=method, seed=seed, setting={})
            fields = study.run(cell).config["train"]
            folder = given.work.joinpath("runs", *cell.parts, "team") if when == "after" else None
            torch.manual_seed(seed)
            found = measured(fields, Team(fields["model_name_or_path"], folder), given.number)
            print(json.dumps({"method": method, "when": when, "seed": seed, **found}), flush=True)
            total.update(found)
        print(json.dumps({"method": method, "when": when, "seed": "all", **total}), flush=True)


if __name__ == "__main__":
    main()
