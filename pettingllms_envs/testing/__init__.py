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
from typing import Any

from pettingzoo import AECEnv

from pettingllms_envs.episodes.observing import task_of
from pettingllms_envs.failures import Unavailable
from pettingllms_envs.testing.cooperation import check_cooperation
from pettingllms_envs.testing.determinism import (
    check_another_process,
    check_branches,
    check_determinism,
    check_global_random_state,
    check_snapshots,
)
from pettingllms_envs.testing.features import check_channel, check_images, check_tools, check_wrappers
from pettingllms_envs.testing.forged_prompts import check_forged_prompts
from pettingllms_envs.testing.learning_signal import check_learning_signal
from pettingllms_envs.testing.observations import (
    check_infos,
    check_no_solution_shown,
    check_observations,
    check_options,
)
from pettingllms_envs.testing.pairs import check_pairs
from pettingllms_envs.testing.pettingzoo_api import check_gymnasium, check_parallel, check_pettingzoo
from pettingllms_envs.testing.play import Case, Failed, Skipped, Start, Warned, reply_pool
from pettingllms_envs.testing.potential import check_potential
from pettingllms_envs.testing.questions import check_questions
from pettingllms_envs.testing.replies import check_fuzzed_replies, check_long_replies
from pettingllms_envs.testing.report import Report, Result, Status
from pettingllms_envs.testing.rewards import check_floors, check_oracle, check_rewards
from pettingllms_envs.testing.states import check_states
from pettingllms_envs.testing.zero_sum import check_zero_sum


__all__ = ["CHECKS", "Report", "Result", "check", "conforms"]

MOST_WORDS = 300  # characters of an environment's error message that are reported

CHECKS: Mapping[str, Callable[[Case], str]] = {
    "pettingzoo": check_pettingzoo,
    "parallel": check_parallel,
    "determinism": check_determinism,
    "another process": check_another_process,
    "snapshots": check_snapshots,
    "branches": check_branches,
    "states": check_states,
    "global random state": check_global_random_state,
    "observations": check_observations,
    "infos": check_infos,
    "options": check_options,
    "fuzzed replies": check_fuzzed_replies,
    "long replies": check_long_replies,
    "oracle": check_oracle,
    "floors": check_floors,
    "rewards": check_rewards,
    "learning signal": check_learning_signal,
    "no solution shown": check_no_solution_shown,
    "pairs of roles": check_pairs,
    "potential": check_potential,
    "wrappers": check_wrappers,
    "gymnasium": check_gymnasium,
    "images": check_images,
    "tools": check_tools,
    "channel": check_channel,
    "forged prompts": check_forged_prompts,
    "questions": check_questions,
    "zero sum": check_zero_sum,
    "cooperation": check_cooperation,
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
        make=make,
        make_parallel=make_parallel,
        starts=starts,
        floor=floor,
        blind=known,
        pool=pool,
        max_steps=max_steps,
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
