"""Test cases that an agent writes for a problem: read from a reply, run on programs, and judged.

A case of a problem that reads and prints is an input and an output; one of a problem that names a function is its
arguments, one on a line, and what it returns, all written as JSON. In a reply each is a pair of blocks:

    ```input
    3 1 2
    ```
    ```output
    6
    ```

A case is *valid* if a right program agrees with it, and a set of cases *tells* a wrong program if a valid one of them
fails it. Wrong programs come from the data set or are mutants of its solution, never from the episode: what agents
write must not change what telling is worth. Neither right nor wrong programs are ever shown to an agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pettingllms_envs.caching import remembered
from pettingllms_envs.core import Unreadable
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.graders.code import golden, last_error, printed, run_tests, written
from pettingllms_envs.graders.copies import stand_in_a_row
from pettingllms_envs.graders.mutants import mutants
from pettingllms_envs.sandbox.compare import read_value, same_tokens, same_values
from pettingllms_envs.sandbox.values import CallTest, Limits, StdinTest, Verdict, as_bytes


MAX_CASE = 4_000
"""Characters of an input or an output."""
MAX_ARGUMENTS = 20
"""A call with more arguments is not looked for in a statement."""
MAX_DEPTH = 60
"""Brackets within brackets of an argument."""
KEPT = 4096
"""Judgements that are remembered; see `pettingllms_envs.graders.code.KEPT`."""
MAX_WRONG = 4
"""Wrong programs that cases are tried on."""
MAX_MUTANTS = 8
"""Mutants that are run to find wrong ones, once for a problem."""
MUTANT_CPU = 0.5
"""Seconds of CPU time at most for a test of a mutant then: the tests are short, and many a mutant does not end."""
MAX_CANDIDATES = 24
"""Golden tests, the shortest ones, among which `best_cases` looks and on which mutants are run."""


class CodeCase(NamedTuple):
    """A test case as an agent writes it."""

    input: str
    output: str


class Run(NamedTuple):
    """A program on a case.

    Args:
        printed: What it printed or returned, cut to a length for a prompt.
        error: The last line of the traceback, if it ended with one.
    """

    passed: bool
    printed: str
    verdict: Verdict
    error: str


class Review(NamedTuple):
    """What is known of a set of cases.

    Args:
        num_judged: Of how many it is known whether they are valid.
        num_valid: How many are, and are not copied from the statement.
        num_told: How many of those a valid case fails.
    """

    num_cases: int = 0
    num_judged: int = 0
    num_valid: int = 0
    num_wrong: int = 0
    num_told: int = 0

    @property
    def valid(self) -> float:
        """The share of the cases that is valid, from 0 to 1."""
        return self.num_valid / max(1, self.num_cases)

    @property
    def telling(self) -> float:
        """The share of the wrong programs that they tell, from 0 to 1."""
        return self.num_told / max(1, self.num_wrong)


def read_cases(
    blocks: Sequence[tuple[str, str]], problem: CodeProblem, most: int
) -> tuple[CodeCase, ...] | Unreadable:
    """The cases in a reply's blocks of the kinds `"input"` and `"output"`; more than `most` of them are unreadable."""
    if not blocks:
        return Unreadable("it has no test case")
    if len(blocks) % 2 or any(kind != ("input", "output")[i % 2] for i, (kind, _) in enumerate(blocks)):
        return Unreadable("its blocks are not pairs of an input and an output")
    cases = tuple(CodeCase(blocks[i][1], blocks[i + 1][1]) for i in range(0, len(blocks), 2))
    if len(cases) > most:
        return Unreadable(f"it has {len(cases)} test cases, and at most {most} are allowed")
    if any(len(text) > MAX_CASE for case in cases for text in case):
        return Unreadable(f"an input or output is longer than {MAX_CASE} characters")
    if problem.fn_name is not None:
        for case in cases:
            if not all(map(_is_value, [*_arguments(case), case.output])):
                return Unreadable("an argument, one on a line, or an output is no JSON")
    return cases


def as_test(problem: CodeProblem, case: CodeCase) -> StdinTest | CallTest:
    """A case as the sandbox takes it."""
    if problem.fn_name is None:
        return StdinTest(f"{case.input}\n", case.output)
    return CallTest([read_value(line.encode()) for line in _arguments(case)], read_value(case.output.encode()))


def as_case(test: StdinTest | CallTest) -> CodeCase:
    """A test of the data set as an agent would write it."""
    return CodeCase(*written(test))


def run_cases(problem: CodeProblem, program: str, cases: tuple[CodeCase, ...], limits: Limits) -> tuple[Run, ...]:
    """A program on cases, each in a process of its own."""
    return _run(problem, program, cases, limits, "per_test")


def is_shown(problem: CodeProblem, case: CodeCase) -> bool:
    """Whether a case is copied from the statement.

    Its input is a public test's, or it stands there: not every data set says which of its tests the statement shows.
    So is a test of it with more at the end, or with numbers in another form.
    """
    test = as_test(problem, case)
    shown = any(_same_input(test, public) for public in problem.tests[: problem.num_public])
    return shown or in_statement(problem, case) or any(_goes_on(case, each) for each in _shown_tests(problem))


@remembered(KEPT)
def _shown_tests(problem: CodeProblem) -> tuple[CodeCase, ...]:
    tests = enumerate(map(as_case, problem.tests))
    return tuple(case for at, case in tests if at < problem.num_public or in_statement(problem, case))


def _goes_on(case: CodeCase, shown: CodeCase) -> bool:
    """Whether a case begins like another, whose output it has; a program need not read the rest."""
    given, start = as_bytes(case.input).split(), as_bytes(shown.input).split()
    begins = same_tokens(b" ".join(given[: len(start)]), b" ".join(start), tolerance=0.0)
    return bool(start) and begins and same_tokens(as_bytes(case.output), as_bytes(shown.output), tolerance=0.0)


def in_statement(problem: CodeProblem, case: CodeCase) -> bool:
    """Whether the statement has the case's input and, soon after it, its output, both as whole words."""
    parts = [case.input] if problem.fn_name is None else _arguments(case)
    if len(parts) > MAX_ARGUMENTS:
        return False
    return stand_in_a_row(problem.statement, [*parts, case.output])


def review(problem: CodeProblem, cases: tuple[CodeCase, ...], *, right: str, limits: Limits) -> Review:
    """Judge cases. Case by case, whichever is found first decides whether it is valid:

    1. It is copied from the statement: not valid, for it says nothing new.
    2. A golden test has the same input: valid if the outputs agree.
    3. Its output is blank: not valid, for many programs print nothing where the input makes no sense.
    4. The data set has a golden solution, or else there is a program that passed all golden tests: valid if that
       program, on this input, gives this output.
    5. There is neither: not known, which counts like not valid.

    Args:
        right: A program of the episode that passes all golden tests; empty if there is none.
    """
    valid = _valid(problem, cases, golden(problem) or right, limits)
    sound = tuple(case for case, verdict in zip(cases, valid, strict=True) if verdict)
    wrong = wrong_programs(problem, limits)
    return Review(
        num_cases=len(cases),
        num_judged=sum(verdict is not None for verdict in valid),
        num_valid=len(sound),
        num_wrong=len(wrong),
        num_told=sum(not all(_passes(problem, program, sound, limits)) for program in wrong) if sound else 0,
    )


@remembered(KEPT)
def wrong_programs(problem: CodeProblem, limits: Limits) -> tuple[str, ...]:
    """The programs that cases are to tell, at most `MAX_WRONG`.

    Those that the data set says are wrong; where it names none, mutants of its solution; without one that passes
    all golden tests, none. Of the first `MAX_MUTANTS` mutants those count that fail a golden test which a tester could
    write (see `best_cases`), first those that pass most of these tests, and one of those that pass the same. A mutant
    that runs out of time or memory is left out: on another machine it might not.
    """
    if problem.wrong:
        return tuple({program.rstrip(): program for program in problem.wrong[:MAX_WRONG]}.values())
    candidates = _candidates(problem)
    right = golden(problem) if candidates else ""
    quick = replace(limits, cpu=min(limits.cpu, MUTANT_CPU))
    found: dict[tuple[bool, ...], str] = {}
    for mutant in mutants(right)[:MAX_MUTANTS]:
        runs = _run_once(problem, mutant, candidates, quick, "per_solution")
        passed = tuple(run.passed for run in runs)
        if not all(passed) and not any(run.verdict in (Verdict.TIMEOUT, Verdict.MEMORY) for run in runs):
            found.setdefault(passed, mutant)
    return tuple(found[passed] for passed in sorted(found, key=sum, reverse=True)[:MAX_WRONG])


@remembered(KEPT)
def best_cases(problem: CodeProblem, most: int, limits: Limits) -> tuple[CodeCase, ...]:
    """Valid cases, at most `most`, that together tell as many wrong programs as any found: what an oracle writes.

    They are golden tests that the statement does not show, where there are any short enough to write down.
    """
    candidates = _candidates(problem) or _shortest(problem, problem.tests[: problem.num_public])
    if not candidates:
        return ()
    tells = [_fails(problem, program, candidates, limits) for program in wrong_programs(problem, limits)]
    chosen: list[int] = []
    while len(chosen) < most:
        gains = [sum(each[i] and not any(each[j] for j in chosen) for each in tells) for i in range(len(candidates))]
        best = max(range(len(candidates)), key=gains.__getitem__)
        if chosen and not gains[best]:
            break
        chosen.append(best)
    return tuple(candidates[i] for i in chosen)


def _candidates(problem: CodeProblem) -> tuple[CodeCase, ...]:
    """The shortest of the golden tests that the statement does not show and that can be written down."""
    hidden = _shortest(problem, problem.tests[problem.num_public :], most=len(problem.tests))
    return tuple(case for case in hidden if not is_shown(problem, case))[:MAX_CANDIDATES]


def _shortest(
    problem: CodeProblem, tests: Sequence[StdinTest | CallTest], most: int = MAX_CANDIDATES
) -> tuple[CodeCase, ...]:
    fit = dict.fromkeys(case for case in map(as_case, tests) if _writable(problem, case))
    return tuple(sorted(fit, key=lambda case: len(case.input) + len(case.output))[:most])


def _fails(problem: CodeProblem, program: str, cases: tuple[CodeCase, ...], limits: Limits) -> list[bool]:
    """Which cases a program is known to fail; those after its first timeout were not run."""
    runs = _run(problem, program, cases, limits, "per_solution")
    first = next((i for i, run in enumerate(runs) if run.verdict == Verdict.TIMEOUT), len(runs))
    return [not run.passed and i <= first for i, run in enumerate(runs)]


def _valid(problem: CodeProblem, cases: tuple[CodeCase, ...], right: str, limits: Limits) -> tuple[bool | None, ...]:
    found = [False if is_shown(problem, case) else _as_tested(problem, case) for case in cases]
    open_cases = tuple(case for case, verdict in zip(cases, found, strict=True) if verdict is None)
    if right and open_cases:
        agrees = iter(_passes(problem, right, open_cases, limits))
        return tuple(next(agrees) if verdict is None else verdict for verdict in found)
    return tuple(found)


def _as_tested(problem: CodeProblem, case: CodeCase) -> bool | None:
    """Whether the output is that of the golden test with the same input. Without such a test, a blank one is none.

    None if this does not tell.
    """
    ours = as_test(problem, case)
    same = next((test for test in problem.tests if _same_input(ours, test)), None)
    if same is None:
        return None if case.output.strip() else False
    if isinstance(ours, StdinTest):
        return same_tokens(
            as_bytes(ours.expected),
            as_bytes(same.expected),
            problem.tolerance,
            problem.tolerance_kind,
            problem.case_free,
        )
    return same_values(ours.expected, same.expected, problem.tolerance, problem.tolerance_kind)


def _passes(problem: CodeProblem, program: str, cases: tuple[CodeCase, ...], limits: Limits) -> tuple[bool, ...]:
    """On which cases a program passes; all in one process, for what is at stake is not the program's reward."""
    return tuple(run.passed for run in _run(problem, program, cases, limits, "per_solution"))


def _run_once(
    problem: CodeProblem, program: str, cases: tuple[CodeCase, ...], limits: Limits, isolation: str
) -> tuple[Run, ...]:
    tests = [as_test(problem, case) for case in cases]
    report = run_tests(problem, program, tests, limits=limits, isolation=isolation)
    return tuple(
        Run(result.verdict == Verdict.PASSED, printed(result), result.verdict, last_error(result))
        for result in report.results
    )


_run = remembered(KEPT)(_run_once)


def _same_input(one: StdinTest | CallTest, other: StdinTest | CallTest) -> bool:
    if isinstance(one, StdinTest):
        if not isinstance(other, StdinTest) or len(other.stdin) > 4 * MAX_CASE:  # what is long was not written by hand
            return False
        return as_bytes(one.stdin).split() == as_bytes(other.stdin).split()
    return isinstance(other, CallTest) and same_values(list(one.args), list(other.args))


def _writable(problem: CodeProblem, case: CodeCase) -> bool:
    """Whether the case, written in a reply, reads as the test that it is made of."""
    return "```" not in case.input + case.output and not isinstance(
        read_cases([("input", case.input), ("output", case.output)], problem, 1), Unreadable
    )


def _arguments(case: CodeCase) -> list[str]:
    return [line for line in case.input.split("\n") if line.strip()]


def _is_value(line: str) -> bool:
    """Whether the line is a JSON document that is not nested too deeply to be compared."""
    depth = deepest = 0
    for letter in line:
        depth += (letter in "[{") - (letter in "]}")
        deepest = max(deepest, depth)
    try:
        read_value(line.encode("utf-8", "surrogatepass"))
    except ValueError:
        return False
    return deepest <= MAX_DEPTH
