"""The conformance suite: one call checks any AEC environment with text observations, ours or third-party.

    >>> from functools import partial
    >>> import pettingllms_envs
    >>> from pettingllms_envs.testing import check
    >>> report = check(partial(pettingllms_envs.make, "plan_path", size=6))
    >>> report.ok
    True

`print(report)` shows a line for each check: what was played, with numbers; for a failed one the seed and the replies
that reproduce it, and the expected and actual values. An environment that cannot be made and reset has one line only.
In a test, `conforms(make)` raises an error with the report instead.

Checks of optional features are skipped with a reason. The optional features are:
`snapshot()` and `restore()` (else it is copied, unless `metadata["branching"]` declares otherwise),
`unwrapped.oracle()` (a reply of the acting agent), `metadata["max_return"]`, `["competitive"]`, `["reward_ranges"]`,
`["reset_options"]`, `["delayed_roles"]` and `["cooperation"]`,
`infos[agent]["rewards"]` (parts by name) and `infos[agent]["outcome"]["success"]`,
`unwrapped.workflow.task.blind_replies`. See `pettingllms_envs.aec.TextEnv`.
"""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pettingzoo import AECEnv

from pettingllms_envs.episodes.observing import task_of
from pettingllms_envs.failures import Unavailable
from pettingllms_envs.testing import (
    cooperation,
    determinism,
    features,
    forged_prompts,
    learning_signal,
    observations,
    pairs,
    pettingzoo_api,
    potential,
    questions,
    replies,
    rewards,
    states,
)
from pettingllms_envs.testing.play import Case, Failed, Skipped, Start, Warned, reply_pool


Status = Literal["passed", "warning", "failed", "skipped"]


class Result(NamedTuple):
    """The result of one check.

    Args:
        status: `"passed"`, `"warning"`, `"failed"` or `"skipped"`.
        detail: What was played, with numbers; or the expected and actual values and the play that reproduces them; or
            why the check does not apply.
    """

    name: str
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one environment; `str` of it is a table."""

    env: str
    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.status == "failed")

    def raise_if_failed(self) -> None:
        """Raise AssertionError with the report as its message if a check failed."""
        if not self.ok:
            raise AssertionError(f"the environment does not conform.\n{self}")

    def __getitem__(self, name: str) -> Result:
        return {result.name: result for result in self.results}[name]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __str__(self) -> str:
        width = max(len(result.name) for result in self.results)
        rows = [f"Conformance of {self.env}"]
        for name, status, detail in self.results:
            first, *more = detail.splitlines() or [""]
            word = status.upper() if status == "failed" else status
            rows += [f"  {word:7}  {name:{width}}  {first}", *(f"  {'':7}  {'':{width}}  {line}" for line in more)]
        counts = [f"{sum(r.status == status for r in self.results)} {status}" for status in ("passed", "failed")]
        if warnings := sum(r.status == "warning" for r in self.results):
            counts.append(f"{warnings} with a warning")
        rows.append(f"{', '.join(counts)}, {sum(r.status == 'skipped' for r in self.results)} skipped")
        return "\n".join(rows)


__all__ = ["CHECKS", "Report", "Result", "check", "conforms"]

MOST_WORDS = 300  # characters of an environment's error message that are reported

CHECKS: Mapping[str, Callable[[Case], str]] = {
    "pettingzoo": pettingzoo_api.check_pettingzoo,
    "parallel": pettingzoo_api.check_parallel,
    "determinism": determinism.check_determinism,
    "another process": determinism.check_another_process,
    "snapshots": determinism.check_snapshots,
    "branches": determinism.check_branches,
    "states": states.check_states,
    "global random state": determinism.check_global_random_state,
    "observations": observations.check_observations,
    "infos": observations.check_infos,
    "options": observations.check_options,
    "fuzzed replies": replies.check_fuzzed_replies,
    "long replies": replies.check_long_replies,
    "oracle": rewards.check_oracle,
    "floors": rewards.check_floors,
    "rewards": rewards.check_rewards,
    "learning signal": learning_signal.check_learning_signal,
    "no solution shown": observations.check_no_solution_shown,
    "pairs of roles": pairs.check_pairs,
    "potential": potential.check_potential,
    "wrappers": features.check_wrappers,
    "gymnasium": pettingzoo_api.check_gymnasium,
    "images": features.check_images,
    "tools": features.check_tools,
    "channel": features.check_channel,
    "forged prompts": forged_prompts.check_forged_prompts,
    "questions": questions.check_questions,
    "zero sum": pairs.check_zero_sum,
    "cooperation": cooperation.check_cooperation,
}


def check(
    make: Callable[..., AECEnv[Any, Any, Any]],
    *,
    make_parallel: Callable[..., Any] | None = None,
    options: Sequence[Mapping[str, Any]] = ({},),
    seeds: Iterable[int] = range(20),
    floor: float = 0.25,
    blind: Sequence[str] = (),
    max_steps: int = 200,
    only: Collection[str] = tuple(CHECKS),
) -> Report:
    """Run the conformance suite on an environment.

    Args:
        make: Makes a new environment. If it accepts `max_cycles` or `render_mode`, PettingZoo's tests of those are
            run; if it can be pickled, an episode is compared with one in another process.
        make_parallel: Makes its parallel form, for PettingZoo's parallel tests.
        options: Reset options to play with; every seed is played with each of them.
        floor: Greatest mean success, and share of the oracle's return, in [0, 1], of a policy that ignores the state.
        blind: Replies that ignore the state, in addition to those that the task declares.
        max_steps: Most steps for which an episode is followed.
    """
    starts = tuple(Start(seed, dict(each)) for each in options for seed in seeds)
    if not starts:
        raise ValueError("check() got no seeds or no options; expected one of each at least. Leave them out for 20.")
    if unknown := set(only) - set(CHECKS):
        raise ValueError(f"check() got only={sorted(unknown)}; expected names among {', '.join(CHECKS)}.")
    try:
        with _quietly():
            env = make()
            env.reset(seed=starts[0].seed, options=dict(starts[0].options) or None)
            known = tuple(dict.fromkeys((*blind, *getattr(task_of(env), "blind_replies", ()))))
            pool = reply_pool(env, known)
    except Unavailable:  # no fault of the environment's
        raise
    except Exception as error:  # noqa: BLE001 - any error of a third-party environment is something to report
        return Report("an environment that could not be made and reset", (Result("start", "failed", _words(error)),))
    case = Case(
        make=make, make_parallel=make_parallel, starts=starts, floor=floor, blind=known, pool=pool, max_steps=max_steps
    )
    return Report(str(env.unwrapped), tuple(_result(name, case) for name in CHECKS if name in only))


def conforms(make: Callable[..., AECEnv[Any, Any, Any]], **settings: Any) -> None:
    """Raise AssertionError with the report unless an environment passes; for the settings see `check`."""
    check(make, **settings).raise_if_failed()


def _result(name: str, case: Case) -> Result:
    """Run one check. Whatever the environment raises counts as its failure."""
    status: Status = "passed"
    try:
        with _quietly():
            detail = CHECKS[name](case)
    except Skipped as reason:
        status, detail = "skipped", str(reason)
    except Warned as reason:
        status, detail = "warning", str(reason)
    except Unavailable:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of a third-party environment is something to report
        status, detail = "failed", _words(error)
    return Result(name, status, detail)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Suppress output and warnings of the environment and PettingZoo's tests, which count warnings themselves."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _words(error: BaseException) -> str:
    """The error message, its location, and the play that reproduces it."""
    words = str(error)
    if not isinstance(error, Failed):
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        first = next(iter(words.splitlines()), "")[:MOST_WORDS]
        words = f"{type(error).__name__}: {first} (line {innermost.lineno} of {innermost.filename})"
    return "\n".join([words, *getattr(error, "__notes__", ())[:1]])
