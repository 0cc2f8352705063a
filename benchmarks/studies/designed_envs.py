"""The environments of `designed.yaml`: teams that are designed, and the same teams with a design that nobody learns.

`archives` and `plan_path` have the workflows `designed`, and `fixed`, whose members are asked exactly as those of
`designed`, without a designer. Its setting `team` names one of ten designs; `one` or `check`, one agent, perhaps with
the tools of all, alone or checking itself; `random`, a readable design that is drawn for each question by the
question's words; or a file with a design.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import check_choice
from pettingllms_envs.environments.archives.rules import Archives
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.teams.designed import RANDOM, Designed
from pettingllms_envs.teams.designs import JOBS, Design, Member, random_design, read_design
from pettingllms_envs.teams.functions import Game, Questions


SOLVE, FIRST, USE, CHECK, GO_ON = JOBS
ZERO, ONE = ("archive_0",), ("archive_1",)
BOTH = (*ZERO, *ONE)
ALONE = ("one", "check")
"""In archives these may search both."""


def chain(*members: Member) -> Design:
    """Each reads the one before."""
    return Design(tuple(each._replace(reads=(i - 1,) if i else ()) for i, each in enumerate(members)))


TEAMS: Mapping[str, Mapping[str, Design]] = {
    "archives": {
        "zero": chain(Member(USE, (), ZERO)),
        "zero_one": chain(Member(USE, (), ZERO), Member(USE, (), ONE)),
        "one_zero": chain(Member(USE, (), ONE), Member(USE, (), ZERO)),
        "zero_one_zero": chain(Member(USE, (), ZERO), Member(USE, (), ONE), Member(USE, (), ZERO)),
        "one_zero_one": chain(Member(USE, (), ONE), Member(USE, (), ZERO), Member(USE, (), ONE)),
        "zero_one_judge": chain(Member(USE, (), ZERO), Member(USE, (), ONE), Member(GO_ON)),
        "one_zero_judge": chain(Member(USE, (), ONE), Member(USE, (), ZERO), Member(GO_ON)),
        "both_judge": Design((Member(USE, (), ZERO), Member(USE, (), ONE), Member(SOLVE, (0, 1)))),
        "zero_one_all": Design((Member(USE, (), ZERO), Member(USE, (0,), ONE), Member(CHECK, (0, 1), ZERO))),
        "one_zero_all": Design((Member(USE, (), ONE), Member(USE, (0,), ZERO), Member(CHECK, (0, 1), ONE))),
        "one": Design((Member(SOLVE, (), BOTH),)),
        "check": chain(Member(SOLVE, (), BOTH), Member(CHECK, (), BOTH)),
    },
    "plan_path": {
        "one": chain(Member(SOLVE)),
        "go_on_alone": chain(Member(GO_ON)),
        "check": chain(Member(SOLVE), Member(CHECK)),
        "solve_check_twice": chain(Member(SOLVE), Member(CHECK), Member(CHECK)),
        "solve_go_on": chain(Member(SOLVE), Member(GO_ON)),
        "first_go_on": chain(Member(FIRST), Member(GO_ON)),
        "first_go_on_twice": chain(Member(FIRST), Member(GO_ON), Member(GO_ON)),
        "first_go_on_check": chain(Member(FIRST), Member(GO_ON), Member(CHECK)),
        "two_solve_check": Design((Member(SOLVE), Member(SOLVE), Member(CHECK, (0, 1)))),
        "first_solve_check": Design((Member(FIRST), Member(SOLVE, (0,)), Member(CHECK, (0, 1)))),
    },
}
"""Ten designs for each task, and for archives two of one agent, or policy, alone."""


@dataclass(frozen=True)
class Fixed(Designed):
    """The members of a team that nobody learns to design. The role `designer` is never asked, and so takes no part.

    Args:
        team: A name of `TEAMS`, `"random"`, or a file with a design, `*.json`, which is read when it is played.
    """

    team: str = "random"

    name: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        Designed.__post_init__(self)
        if not self.team.endswith(".json"):
            check_choice("team", self.team, ("random", *TEAMS[self.task.name]))

    def design(self, game: Game) -> Design:
        """The team of this question."""
        if self.team == "random":
            return random_design(random.Random(f"{RANDOM} {self.task.show(game.state)}"), self.limits)
        found = TEAMS[self.task.name].get(self.team) or read_design(Path(self.team).read_text("utf-8"), self.limits)
        assert isinstance(found, Design), f"no design in {self.team}"
        return found

    def questions(self, game: Game) -> Questions:
        """The members in order, then the move."""
        design = self.design(game)
        size = len(design.members)
        game.report(unreadable_design=False, team_size=size, team_of_one=size == 1, member_calls=0, cut_short=False)
        reply, author = yield from self._replies(game, design)
        game.play(reply, author)


archives = assemble(Archives, __name__, (Designed, Fixed), name="designed_archives_v0").raw_env
plan_path = assemble(PlanPath, __name__, (Designed, Fixed), name="designed_plan_path_v0").raw_env
