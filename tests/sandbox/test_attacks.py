"""No attack gets a verdict, a secret or a foothold, in any configuration; and sound programs pass in each of them.

By default each program runs once, in the sandbox that a user of this machine gets, for half a second (those that only
go on and on for a quarter), and twice if it may leave something for its next run. With `-m slow` each runs twice in
every configuration, with a process for each test and with one for all, for a second.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from arena import BEST, CONFIGURATIONS, LIMITS, Machine, Secret, look, open_sandbox, said, secret, task_of
from attacks import ATTACKS, Attack
from pettingllms_envs.sandbox import CallTest, Limits, Report, StdinTest, Task, Verdict
from programs import PROGRAMS, Program


ARENAS = [
    pytest.param((BEST, "per_test"), id=BEST),
    *(
        pytest.param(arena, marks=pytest.mark.slow, id=", ".join(arena))
        for arena in itertools.product(CONFIGURATIONS, ("per_test", "per_solution"))
    ),
]


# A bomb of processes costs as much CPU time as all of its processes get until the clock ends them.
QUICK = replace(LIMITS, cpu=0.5, wall=0.75, total=1.5, processes=4)
# Most of these only go on and on until the clock ends them.
ENDLESS = ("time", "processes", "signals")
BRIEF = replace(QUICK, cpu=0.25, wall=0.4, total=0.8)


@dataclass(frozen=True)
class Battle:
    """What came of all attacks in one configuration."""

    reports: dict[str, Report]
    hidden: Secret
    before: Machine
    after: Machine
    sound: list[Report]


def is_alone(attack: Attack) -> bool:
    """Whether nothing of the attack could be meant for the program's next test."""
    return attack.category not in ("persistence", "forged verdict", "stolen answer")


@pytest.fixture(scope="module", params=ARENAS)
def battle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Battle]:
    configuration, isolation = request.param
    # Most of an attack's time is waiting for its end by the clock, so there are more slots than cores.
    with open_sandbox(configuration, num_slots=8) as sandbox, secret(tmp_path_factory.mktemp("hidden")) as hidden:
        sandbox.run_many([Task(program="", tests=[StdinTest("", "")])] * 48, limits=LIMITS)
        before = look(sandbox)
        quick = configuration == BEST
        reports: dict[str, Report] = {}
        for is_endless in (False, True):
            attacks = [attack for attack in ATTACKS if (attack.category in ENDLESS) is is_endless]
            tasks = [
                task_of(attack.program, attack.fn_name, hidden, times=1 if quick and is_alone(attack) else 2)
                for attack in attacks
            ]
            limits = (BRIEF if is_endless else QUICK) if quick else LIMITS
            found = sandbox.run_many(tasks, limits=limits, isolation=isolation)
            reports |= zip([attack.name for attack in attacks], found, strict=True)
        after = look(sandbox)
        sound = sandbox.run_many([Task(program="print(1)", tests=[StdinTest("", "1")])] * 24, limits=Limits())
        yield Battle(reports, hidden, before, after, sound)


def test_the_corpus_has_every_category_that_the_issue_names() -> None:
    names = {attack.category for attack in ATTACKS}
    assert {"forged verdict", "stolen answer", "files", "/proc", "processes", "signals", "tracing"} <= names
    assert {"network", "time", "memory", "output", "persistence", "hostile bytes", "crashes"} <= names
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 300


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_gets_neither_a_verdict_nor_the_secret(battle: Battle, attack: Attack) -> None:
    report = battle.reports[attack.name]
    assert report.pass_rate == 0.0, report
    assert report.verdict not in (Verdict.PASSED, Verdict.SANDBOX_ERROR), report
    assert not said(report, battle.hidden.text)
    assert not any(b"FOOTHOLD" in result.stdout for result in report.results)


def test_nothing_is_left_of_the_attacks_and_the_sandbox_lives(battle: Battle) -> None:
    assert battle.after.processes <= battle.before.processes
    assert battle.after.entries == battle.before.entries
    assert battle.after.shared_memory == battle.before.shared_memory
    assert battle.hidden.path.read_text() == battle.hidden.text + "\n"
    assert all(report.passed for report in battle.sound)


@pytest.fixture(scope="module", params=ARENAS)
def practice(request: pytest.FixtureRequest) -> Iterator[dict[str, Report]]:
    configuration, isolation = request.param
    with open_sandbox(configuration, num_slots=3) as sandbox:
        tasks = [
            Task(program=each.program, tests=[made_of(each)] * 2, fn_name=each.fn_name, prelude=each.prelude)
            for each in PROGRAMS
        ]
        reports = sandbox.run_many(tasks, isolation=isolation, limits=Limits(wall=30.0))
        yield dict(zip([each.name for each in PROGRAMS], reports, strict=True))


def made_of(program: Program) -> StdinTest | CallTest:
    if program.fn_name is None:
        return StdinTest(str(program.given), str(program.expected))
    assert isinstance(program.given, list)
    return CallTest(program.given, program.expected)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_sound_program_passes(practice: dict[str, Report], program: Program) -> None:
    report = practice[program.name]
    assert report.passed, [(result.verdict, result.detail, result.stderr[-400:]) for result in report.results]
