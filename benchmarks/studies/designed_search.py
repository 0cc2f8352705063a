"""Search among the untrained designer's designs, without learning: the best one is a fixed team of `designed.yaml`.

    python benchmarks/studies/designed_search.py benchmarks/studies/designed.yaml archives --seed 11 --output FOLDER

writes `FOLDER/team.json`. The untrained members play different designs on questions of the training split, in four
rounds of a quarter of the study's tokens each; after each the best third stays, by its successes so far.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from designed_play import Team, play, torch

from pettingllms_envs.research.studies.results import Cell
from pettingllms_trl.research.study.plans.study_file import read_study


ROUNDS, KEPT = 4, 3
"""Rounds, and the share that stays after each is one in so many."""
NUM_DESIGNS, AT_ONCE = KEPT**ROUNDS, 256


def search(study_file: Path, environment: str, seed: int) -> str:
    """The best design found."""
    study = read_study(study_file)
    cell = Cell(phase="evaluation", environment=environment, method="untrained", seed=seed)
    fields = study.run(cell).config["train"]
    torch.manual_seed(seed)
    team, rng = Team(fields["model_name_or_path"]), random.Random(seed)

    def questions(number: int) -> list[int]:
        return [rng.randrange(*fields["train_seeds"]) for _ in range(number)]

    wins: dict[str, int] = {}
    while len(wins) < NUM_DESIGNS:
        for each in play(team, fields, questions(AT_ONCE), "train"):
            if not each.outcome["unreadable_design"]:
                wins[each.design] = wins.get(each.design, 0) + each.outcome["success"]
    for round in range(1, ROUNDS + 1):
        while team.num_generated < round * study.tokens / ROUNDS:
            played = list(wins) * max(1, AT_ONCE // len(wins))
            for each in play(team, fields, questions(len(played)), "train", played):
                wins[each.design] += each.outcome["success"]
        best = sorted(wins, key=lambda design: -wins[design])
        wins = {design: wins[design] for design in best[: len(wins) // KEPT]}
    return next(iter(wins))


def main() -> None:
    """Read the options and write the design."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("environment", choices=["archives", "plan_path"])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True, help="folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    design = search(given.study, given.environment, given.seed)
    given.output.mkdir(parents=True, exist_ok=True)
    given.output.joinpath("team.json").write_text(design, "utf-8")
    print(design)


if __name__ == "__main__":
    main()
