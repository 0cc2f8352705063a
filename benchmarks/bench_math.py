r"""Verdicts on answers of mathematics, beside TRL's `accuracy_reward` on the same replies in the same run.

    PYTHONPATH=. python benchmarks/bench_math.py --strict

`simple`: integers, decimals, fractions and named values, each pair new: what the exact path alone does on one core.
`groups`: GRPO groups of eight replies of 1,500 characters to problems whose answers are of many kinds; right ones in
several spellings, wrong ones near them, some repeated, as samples of one policy are. Ours grades each group by
`grade_many`, which needs one slot of the sandbox; TRL's reward gets the same groups, in turn with ours, in the main
thread, where it is safe. CPU seconds are those of the kernel's account, of this process and of all that it started but
for the start of the server; they depend little on what else the machine does. The wall's are printed beside them.
Every reply on which the two differ is printed.
`hanging`: one reply that no alarm interrupts, graded in a thread, as rollouts do.

The golds are of our own making; `--golds FILE` takes those of a JSONL file with a field `answer`.
"""

from __future__ import annotations

import json
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from figures import Figure, parser_of, write

from pettingllms_envs.graders.math import MathGrader, boxed
from pettingllms_envs.graders.workers import MathVerify


GOLDS = (
    *("7", "42", "1024", "-3", "0", "625", "18", "90", "133", "2016", "11", "5040", "256", "36"),
    *("\\frac{3}{8}", "\\frac{11}{13}", "-\\frac{40}{153}", "\\frac{1}{12}", "0.75", "13.18", "\\frac{16}{81}"),
    *("2\\sqrt{3}", "\\sqrt{2}+\\sqrt{5}", "\\frac{1+\\sqrt{5}}{2}", "\\frac{5\\sqrt{42}}{27}"),
    *("\\frac{\\pi}{6}", "12\\pi", "\\ln 2", "\\log_{10} 250"),
    *("4a-2", "x^2-2x+2", "\\frac{n(n+1)}{2}", "2^{n}-1"),
    *("(6,31,-1)", "(3,\\frac{\\pi}{2})", "(1,\\frac{9}{2})"),
    *("[-2,7]", "(-\\infty,-8)\\cup(8,\\infty)", "x=5", "1,3,5"),
)
NUM_REPLIES = 8
REASONING = "We expand the square, collect the terms and compare both sides, step by step, before we conclude. "
LENGTH = 1500
HANGING = "\\dfrac{5^{(5^{(5^{(5^5)})} - 4)} - 5}{16}"
PATIENCE = 20.0
SIMPLE_GOAL = 2000.0
RATIO_GOAL = 2.5


@dataclass(frozen=True)
class Group:
    """A problem's gold and the replies to it."""

    gold: str
    replies: tuple[str, ...]


class Seconds(NamedTuple):
    """Of CPU time, and by the clock on the wall."""

    cpu: float
    wall: float

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.cpu - other.cpu, self.wall - other.wall)

    @staticmethod
    def now() -> Seconds:
        return Seconds(time.process_time(), time.perf_counter())


@dataclass(frozen=True)
class Found:
    """What each took, and the answers on which they differ: gold, answer, ours, theirs."""

    ours: Seconds
    theirs: Seconds
    differences: tuple[tuple[str, str, bool, bool], ...]

    @property
    def ratio(self) -> float:
        """How many times as much CPU time theirs took."""
        return self.theirs.cpu / self.ours.cpu


def spellings(gold: str) -> list[str]:
    """The gold as models write it."""
    bare = re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", gold)
    return list(dict.fromkeys([gold, gold.replace("\\frac", "\\dfrac"), bare, gold.replace(",", ", ")]))


def near_misses(gold: str, rng: random.Random) -> list[str]:
    """Wrong answers like it: a number changed, a sign changed."""
    digits = list(re.finditer(r"\d+", gold))
    wrong = []
    for match in rng.sample(digits, min(2, len(digits))):
        wrong.append(gold[: match.start()] + str(int(match.group()) + rng.randint(1, 3)) + gold[match.end() :])
    return [*wrong, f"-{gold}" if gold[0].isdigit() and gold != "0" else f"{gold}+1"]


def reply(answer: str) -> str:
    """A reply that ends in a box."""
    return (REASONING * (LENGTH // len(REASONING) + 1))[:LENGTH] + f"\nThe answer is $\\boxed{{{answer}}}$."


def make_groups(golds: Sequence[str], num_groups: int, seed: int) -> list[Group]:
    """Groups with a policy's mixture: about half right, most of one spelling, and repetitions."""
    rng = random.Random(seed)
    groups = []
    for at in range(num_groups):
        gold = golds[at % len(golds)]
        right, wrong = spellings(gold), near_misses(gold, rng)
        weights = [8.0 / 2**rank for rank in range(len(right))] + [4.0] * len(wrong)
        answers = rng.choices([*right, *wrong], weights, k=NUM_REPLIES)
        groups.append(Group(gold, tuple(map(reply, answers))))
    return groups


FIRST = Group("2\\sqrt{2}", (reply("\\sqrt{8}"),))


def grade_ours(grader: MathGrader, group: Group) -> list[bool]:
    """Our verdicts on a group."""
    answers = [boxed(each) or "" for each in group.replies]
    return [each.correct for each in grader.grade_many(answers, group.gold)]


def grade_theirs(group: Group) -> list[bool]:
    """TRL's verdicts on a group."""
    from trl.rewards import accuracy_reward

    completions = [[{"role": "assistant", "content": each}] for each in group.replies]
    return [bool(each) for each in accuracy_reward(completions, [f"${group.gold}$"] * len(completions))]


def compare(groups: Sequence[Group]) -> Found:
    """Both on each group, in turn."""
    start = start_seconds()
    took = dict.fromkeys(("ours", "theirs"), Seconds(0.0, 0.0))
    verify = MathVerify(num_slots=1)
    calls = {"ours": partial(grade_ours, MathGrader(verify)), "theirs": grade_theirs}
    before = children()
    for call in calls.values():
        call(FIRST)
    differences = []
    for at, group in enumerate(groups):
        verdicts = {}
        for name in ("ours", "theirs") if at % 2 else ("theirs", "ours"):
            began = Seconds.now()
            verdicts[name] = calls[name](group)
            took[name] = took[name] - (began - Seconds.now())
        rows = zip(map(str, map(boxed, group.replies)), verdicts["ours"], verdicts["theirs"], strict=True)
        differences += [(group.gold, *row) for row in rows if row[1] != row[2]]
    verify.close()
    took["ours"] = took["ours"]._replace(cpu=took["ours"].cpu + children() - before - start)
    return Found(took["ours"], took["theirs"], tuple(dict.fromkeys(differences)))


def children() -> float:
    """CPU seconds of all processes that this one started, and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def start_seconds() -> float:
    """CPU seconds of the sandbox for its start and one question."""
    before = children()
    verify = MathVerify(num_slots=1)
    grade_ours(MathGrader(verify), FIRST)
    verify.close()
    return children() - before


def simple_rate(num_pairs: int, seed: int) -> float:
    """Verdicts a CPU second on pairs that need no algebra, all different."""
    rng = random.Random(seed)
    pairs = []
    for number in range(num_pairs):
        near = number + rng.randint(0, 1)
        kinds = (
            (f"{near}", f"{number}"),
            (f"{near}.5", f"\\frac{{{2 * number + 1}}}{{2}}"),
            (f"\\dfrac{{{near}}}{{7}}", f"\\frac{{{number}}}{{7}}"),
            (f"x={near}", f"{number}"),
            (f"({near}, {number})", f"({number},{number})"),
        )
        pairs.append(kinds[number % len(kinds)])
    grader = MathGrader()
    began = time.process_time()
    for answer, gold in pairs:
        grader.grade(answer, gold)
    return num_pairs / (time.process_time() - began)


THREAD = """
import sys, threading
from functools import partial
from pettingllms_envs.graders.math import default
from bench_math import FIRST, HANGING, Group, grade_ours, grade_theirs, reply
grade = {"ours": partial(grade_ours, default()), "theirs": grade_theirs}[sys.argv[1]]
grade(FIRST)
print("ready", flush=True)
thread = threading.Thread(target=lambda: print(grade(Group("7", (reply(HANGING),)))))
thread.start()
thread.join()
print("done", flush=True)
"""


def seconds_to_end(whose: str) -> float | None:
    """Seconds until the hanging reply is graded in a thread; None if it still is not after `PATIENCE`."""
    here = Path(__file__).parent
    with subprocess.Popen(
        [sys.executable, "-c", THREAD, whose], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", f"{whose} did not start"
        began = time.perf_counter()
        try:
            process.communicate(timeout=PATIENCE)
            return time.perf_counter() - began
        except subprocess.TimeoutExpired:
            process.kill()
            return None


def goals(rate: float, ratio: float, ended: float | None) -> list[tuple[str, bool]]:
    """The issue's goals, and whether they are met."""
    return [
        (f"at least {SIMPLE_GOAL:,.0f} simple verdicts a second: {rate:,.0f}", rate >= SIMPLE_GOAL),
        (f"at least {RATIO_GOAL} times as fast as TRL's reward on groups: {ratio:.1f}", ratio >= RATIO_GOAL),
        ("a hanging reply ends within 5 s", ended is not None and ended <= 5.0),
    ]


def figures(
    rate: float, found: Found, ended: float | None, theirs_ended: float | None, num_replies: int
) -> list[Figure]:
    """What is saved. A reply that was not graded in time counts as `PATIENCE`."""
    (simple, simple_met), (ratio, ratio_met), (hang, hang_met) = goals(rate, found.ratio, ended)
    ours, theirs = 1e3 * found.ours.cpu / num_replies, 1e3 * found.theirs.cpu / num_replies
    unit, name = "verdicts/CPU s", "TRL accuracy_reward"
    return [
        Figure(
            name="simple verdicts", unit=unit, ours=(rate,), better="more", goal=simple.split(":")[0], met=simple_met
        ),
        Figure(
            name="a reply of a group, graded",
            unit="CPU ms",
            ours=(ours,),
            peer_name=name,
            peer=(theirs,),
            goal=ratio.split(":")[0],
            met=ratio_met,
        ),
        Figure(
            name="a hanging reply, in a thread",
            unit="s",
            ours=(ended or PATIENCE,),
            peer_name=name + ("" if theirs_ended else ", not ended by then"),
            peer=(theirs_ended or PATIENCE,),
            goal=hang,
            met=hang_met,
        ),
        Figure(name="replies judged otherwise than TRL", unit="", ours=(len(found.differences),), better="neither"),
    ]


def read_golds(path: Path) -> list[str]:
    """The answers of a JSONL file."""
    return [str(json.loads(line)["answer"]) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """Measure and print; the exit code is 1 with `--strict` and a goal missed."""
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument("--groups", type=int, default=80)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--golds", type=Path)
    arguments = parser.parse_args()
    rate = simple_rate(arguments.pairs, arguments.seed)
    golds = read_golds(arguments.golds) if arguments.golds else GOLDS
    found = compare(make_groups(golds, arguments.groups, arguments.seed))
    num_replies = arguments.groups * NUM_REPLIES
    print(f"simple       ours {rate:8,.0f} verdicts a CPU second")
    for name, seconds in (("ours", found.ours), ("TRL", found.theirs)):
        cpu, wall = (1e3 * each / num_replies for each in seconds)
        print(f"groups  {name:>9} {cpu:8.2f} ms of CPU time a reply, {wall:.2f} ms by the wall")
    print(f"groups  the ratio {found.ratio:8.1f}")
    for gold, answer, mine, theirs in found.differences:
        print(f"differ  gold {gold!r}, answer {answer!r}: ours {mine}, TRL {theirs}")
    ended = seconds_to_end("ours")
    theirs_ended = seconds_to_end("theirs")
    for name, seconds in (("ours", ended), ("TRL", theirs_ended)):
        print(
            f"hanging {name:>9} " + (f"{seconds:8.1f} s" if seconds is not None else f"not ended after {PATIENCE:g} s")
        )
    met = goals(rate, found.ratio, ended)
    for text, is_met in met:
        print(f"{'met ' if is_met else 'MISSED'}  {text}")
    write(arguments.json, figures(rate, found, ended, theirs_ended, num_replies))
    return int(arguments.strict and not all(is_met for _, is_met in met))


if __name__ == "__main__":
    sys.exit(main())
