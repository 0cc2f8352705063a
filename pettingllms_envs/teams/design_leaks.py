"""Does a designer solve the task itself, and write the answer into a job? Two measurements of designs.

Both need the tasks' solutions, so they are for reports and never for rewards or prompts. They compare what the oracle
says, as it writes it: a job that leads to the answer in other words is found by `solved_without_question` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pettingllms_envs.core import Task, Unreadable, best_reply
from pettingllms_envs.replies.boxes import boxed
from pettingllms_envs.teams.channels import Sent
from pettingllms_envs.teams.designs import Design


_TOKEN = re.compile(r"-?\d+|[^\W\d_]+")
_LATEX = frozenset({"frac", "dfrac", "left", "right", "text", "boxed"})


class Leaks(NamedTuple):
    """In how many designs the answer is.

    Args:
        in_jobs: Those in a job of which the oracle's answer stands.
        by_chance: The same with the answer of the next design for another question: what words and small numbers alone
            give. 0 where all are for one question.
        without_question: Those from which a member solves the task that does not see the question.
    """

    num: int
    in_jobs: int
    by_chance: int
    without_question: int


def measure_leaks(task: Task[Any, Any], designs: Sequence[tuple[Any, Design]], member: Callable[[str], str]) -> Leaks:
    """How many designs hold the answer of the question that they were written for.

    Args:
        designs: Start states of instances, each with a design for it.
        member: Replies to a prompt, such as a model that acts as a member.
    """
    num, shown = len(designs), [task.show(state) for state, _ in designs]
    by_chance = 0
    for number, (_, design) in enumerate(designs):
        after = (each % num for each in range(number + 1, number + num))
        others = (designs[each][0] for each in after if shown[each] != shown[number])
        by_chance += any(answer_in_job(task, other, design) for other in islice(others, 1))
    return Leaks(
        num=num,
        in_jobs=sum(answer_in_job(task, state, design) for state, design in designs),
        by_chance=by_chance,
        without_question=sum(solved_without_question(task, state, design, member) for state, design in designs),
    )


def answer_in_job(task: Task[Any, Any], state: Any, design: Design) -> bool:
    """Whether the words and numbers of the oracle's answer stand in a job, one after the other.

    Of the oracle's reply it is the content of the box, else what follows the colon of its last line. An answer without
    words and numbers, such as the last line of a program in a block, stands in no job.
    """
    reply = best_reply(task, state)
    last = reply.strip().rpartition("\n")[2]
    answer = _tokens(boxed(reply) or last.partition(":")[2] or last)
    num = len(answer)
    for member in design.members:
        job = _tokens(member.job)
        if num and any(job[at : at + num] == answer for at in range(len(job) - num + 1)):
            return True
        if "".join(answer) in job and all(len(each) == 1 and each.isalpha() for each in answer):  # moves as one word
            return True
    return False


def solved_without_question(task: Task[Any, Any], state: Any, design: Design, member: Callable[[str], str]) -> bool:
    """Whether a member that sees the jobs of a design, and not the question, solves the task."""
    jobs = "\n".join(Sent("designer", each.job).shown for each in design.members)
    note = "You are not shown the question, but the jobs of a team that was made for it. Give the answer."
    move = task.parse(member("\n".join(filter(None, (task.rules(), note, jobs, task.reply_format())))))
    return not isinstance(move, Unreadable) and task.solved(task.apply(state, move))


def _tokens(text: str) -> list[str]:
    return [token for token in _TOKEN.findall(text.lower()) if token not in _LATEX]
