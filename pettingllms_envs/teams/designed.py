"""Workflow `designed`: a designer writes the team that solves the task, and its members then act.

Roles: `designer`, whose reply is a design (`pettingllms_envs.teams.designs`), and `member`, one role for all
members, so that they share a policy. A design is read and never run. Members act in its order, each shown the
question, its job, the last replies of those it reads and, after the first round, the reply that ended the round
before. A reply with one block ```call NAME is a call of one of the member's tools; the same member is then asked
again. The last member's last reply is the team's move, and only one is played. Where calls or characters are used up
before, it is the last reply so far, also one that is a call.

Rewards: the team gets what the task pays for the move, `progress` and `success`. The designer pays `size`,
`member_cost` for each member of its design, or `format`, -0.2, for a design that cannot be read, which ends the
episode. The member whose reply is played pays the task's costs, or `format` if it is unreadable. A member that is not
asked takes no part.
Outcome: `unreadable_design`; `team_size`, `team_of_one`; `member_calls`; `cut_short`, whether calls or characters were
used up.
Source: the hierarchical rollouts of arXiv:2605.14212, whose designers write programs that are run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, check_choice, check_whole
from pettingllms_envs.observations import Observation
from pettingllms_envs.quoting import quote_inline
from pettingllms_envs.teams.design_team import MEMBER, MEMBER_JOB, DesignTeam
from pettingllms_envs.teams.designs import (
    JOBS,
    Design,
    HasDisguise,
    HasTools,
    Limits,
    Member,
    example,
    random_design,
    read_design,
    write_design,
)
from pettingllms_envs.teams.functions import Ask, FunctionState, Game, Questions


MOST_MEMBERS, MOST_JOB_CHARS = 16, 2_000
SUCCESS = 1.0  # the least that solving a task pays
RANDOM = "random_design"  # a bot, as a baseline

DESIGNER = "designer"
DESIGNER_JOB = (
    "You are the designer. You write the team that does this. Its members act in your order; each is shown the"
    " question, its job, and the replies of those it reads. The last member's reply is the team's answer. Each member"
    " costs a little."
)
DISGUISED_JOB = "You are shown a question of the same kind as the one that the team will be asked."


@dataclass(frozen=True)
class Designed(DesignTeam):
    """A designer and the members of its team; arguments in addition to those of `DesignTeam`:

    Args:
        max_members: Most members of a design, 1 to 16.
        max_rounds: Most rounds of a design, at least 1.
        member_tools: Most tools of a member, at least 0.
        job_chars: Most characters of a job, 1 to 2000.
        member_cost: What the designer pays for each member, from 0 to 0.2, so that a design that cannot be read is
            never cheaper than a team of one; for `max_members` less than a success.
        disguised: Whether the designer is shown a question with other numbers, names or another map, see
            `designs.HasDisguise`.

    Raises:
        ValueError: As `DesignTeam`; or the task cannot be disguised.
    """

    max_members: int = 4
    max_rounds: int = 2
    member_tools: int = 1
    job_chars: int = 400
    member_cost: float = 0.01
    disguised: bool = False

    name: ClassVar[str] = "designed"
    bots: ClassVar[tuple[str, ...]] = (RANDOM,)
    bot_roles: ClassVar[tuple[str, ...]] = (DESIGNER,)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("max_members", self.max_members, 1, MOST_MEMBERS)
        check_whole("job_chars", self.job_chars, 1, MOST_JOB_CHARS)
        check_whole("member_tools", self.member_tools, 0)
        check_whole("max_rounds", self.max_rounds, 1)
        check_choice("disguised", self.disguised, (True, False))
        if not 0 <= self.member_cost <= -UNREADABLE_PENALTY or self.member_cost * self.max_members >= SUCCESS:
            raise ValueError(
                f"member_cost is {self.member_cost!r} and max_members is {self.max_members}; expected a cost from 0 "
                f"to {-UNREADABLE_PENALTY:g}, which a design that cannot be read costs, and for all members less than "
                f"a success, {SUCCESS:g}. Choose another cost, or fewer members."
            )
        if self.disguised and not isinstance(self.task, HasDisguise):
            raise ValueError(
                f"disguised is True, but the task {self.task.name!r} cannot redraw its questions; expected a method "
                "disguised(state). Write one, or leave disguised out."
            )

    @cached_property
    def limits(self) -> Limits:
        names = tuple(spec.name for spec in self.specs)
        return Limits(self.max_members, self.max_rounds, self.job_chars, names, self.member_tools)

    @property
    def least_alpha(self) -> float:
        """The cost of the largest team, in successes."""
        return self.member_cost * self.max_members / SUCCESS

    @property
    def own_ranges(self) -> Mapping[str, tuple[float, float]]:  # type: ignore[override]
        return {"size": (-self.member_cost * self.max_members, 0.0)}

    @cached_property
    def roles(self) -> tuple[Role, ...]:  # type: ignore[override]
        """The designer, then as many members as a design may have."""
        job = "\n".join([DESIGNER_JOB, *([DISGUISED_JOB] if self.disguised else [])])
        tools = "".join(f"\nTool {spec.name}: {quote_inline(spec.description)}" for spec in self.specs)
        limits = (
            f"At most {self.max_members} members and {self.max_rounds} rounds, {self.job_chars} characters for a job,"
            f" and {self.member_tools if tools else 0} tools for a member. A member reads earlier members, by their"
            f" numbers from 0.{tools}\nReply with one JSON object and nothing else: {example(self.limits)}"
        )
        return (
            Role(DESIGNER, job, delayed=True, reply_format=limits),
            Role(MEMBER, MEMBER_JOB, delayed=True, count=self.max_members, reply_format=""),
        )

    def bot(self, state: FunctionState, name: str) -> str:
        """A random design, drawn by what the designer is shown.

        Raises:
            ValueError: A member is to act.
        """
        if state.ask.role != DESIGNER:
            raise ValueError(f"the bot {name!r} was to reply as {state.ask.role}; expected the {DESIGNER}.")
        return write_design(random_design(random.Random(str(state.ask.text)), self.limits))

    def observe(self, state: FunctionState, role: str) -> Observation:
        """The question to the agent; never the question itself to a designer that must not know it."""
        if role == DESIGNER and self.disguised:
            return self.shown_to_designer(state.start)
        return super().observe(state, role)

    def shown_to_designer(self, task_state: object) -> str:
        """The question, perhaps another one of its kind."""
        if self.disguised and isinstance(self.task, HasDisguise):
            return self.task.disguised(task_state)
        return self.task.show(task_state)

    def questions(self, game: Game) -> Questions:
        """The design, then its members in order, then the move."""
        game.report(unreadable_design=False, team_size=0, team_of_one=False, member_calls=0, cut_short=False)
        reply = yield Ask(DESIGNER, self.shown_to_designer(game.state), partial(self._best_design, game), ())
        design = game.read(reply, DESIGNER, partial(read_design, limits=self.limits))
        if design is None:
            game.report(unreadable_design=True)
            return True
        size = len(design.members)
        game.report(team_size=size, team_of_one=size == 1)
        game.pay(DESIGNER, "size", -self.member_cost * size)
        reply, author = yield from self._replies(game, design)
        game.play(reply, author)
        return None

    def _best_design(self, game: Game) -> str:
        """A chain of members with the tools that an optimal team calls; one member where it has none, or no time."""
        needed = self.task.tools_needed(game.state) if isinstance(self.task, HasTools) and self.member_tools else ()
        has_time = 2 * len(needed) <= self.max_calls  # a call and a reply of each
        job, tools = (JOBS[2], [(name,) for name in needed]) if needed and has_time else (JOBS[0], [()])
        chain = [Member(job[: self.job_chars], (n - 1,) if n else (), each) for n, each in enumerate(tools)]
        return write_design(Design(tuple(chain[: self.max_members])))
