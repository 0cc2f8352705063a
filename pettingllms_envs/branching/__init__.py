"""Plays several replies from one state of an environment, in the way that the environment declares.

An environment declares it by `metadata["branching"]`; a wrapper may declare another way in a `metadata` of its own.

| declared     | a branch starts from                                            | its cost                        |
|--------------|-----------------------------------------------------------------|---------------------------------|
| `"snapshot"` | what `snapshot()` returned, by `restore()`                      | that of `restore()`             |
| `"copy"`     | a deep copy of the environment and of all that it holds         | that of the copy                |
| `"replay"`   | a reset with the same seed and options, and the same actions    | the steps that led to the state |
| `"none"`     | nothing: only one reply can be played from a state              |                                 |

One that declares nothing is restored if it has `snapshot()` and `restore()`, and copied if not. The trainer, the
conformance suite and the measures that play a recorded episode again use this package alone, and so agree.
"""

from typing import Literal, get_args

from pettingzoo import AECEnv

from pettingllms_envs.branching.replay import ReplayError, ReplayPoint, ReplayWrapper
from pettingllms_envs.branching.snapshots import SavedState, has_snapshots, layers_of
from pettingllms_envs.branching.views import name_of


__all__ = [
    "MODES",
    "BranchingMode",
    "ReplayError",
    "ReplayPoint",
    "ReplayWrapper",
    "SavedState",
    "branchable",
    "branching_of",
    "check_replayable",
    "save_state",
]

BranchingMode = Literal["snapshot", "copy", "replay", "none"]
MODES: tuple[BranchingMode, ...] = get_args(BranchingMode)


def branching_of(env: AECEnv) -> BranchingMode:
    """How an environment is branched: as `metadata["branching"]` declares or, without that, by what it has.

    With `snapshot()` and `restore()` it is restored, unless a wrapper around it defines how it is copied; else it is
    copied.
    """
    declared = getattr(env, "metadata", {}).get("branching")  # PettingZoo requires the metadata, but does not check it
    if declared is not None and declared not in MODES:
        raise ValueError(
            f'the environment {name_of(env)!r} has metadata["branching"] = {declared!r}; expected one of '
            f"{', '.join(map(repr, MODES))}. Declare one of them, or leave it out."
        )
    if declared == "snapshot" and not has_snapshots(env):
        raise ValueError(
            f"the environment {name_of(env)!r} has metadata[\"branching\"] = 'snapshot', but no snapshot() and "
            "restore(); expected both methods. Add them, or declare 'copy', 'replay' or 'none'."
        )
    if declared in ("copy", "replay", "none"):
        mode: BranchingMode = declared
        return mode
    return "snapshot" if layers_of(env) else "copy"


def branchable(env: AECEnv) -> AECEnv:
    """The environment in the form in which it is branched: in a `ReplayWrapper` if it is replayed, else itself.

    Args:
        env: An environment with all its wrappers, before it is reset.

    Raises:
        ValueError: It declares that it cannot be branched, or it declares something else than `branching_of` expects.
    """
    mode = branching_of(env)
    if mode == "none":
        raise ValueError(
            f"the environment {name_of(env)!r} has metadata[\"branching\"] = 'none', so that only one reply can be "
            "played from a state; tree sampling, continuations and crash_reward need a mode that plays several. Set "
            'sampling="parallel" (with credit="grpo", or another that compares episodes), num_continuations=0 and '
            "crash_reward=None."
        )
    if mode == "replay" and not isinstance(env, ReplayWrapper):
        return ReplayWrapper(env)
    return env


def save_state(env: AECEnv) -> SavedState | None:
    """Save the state of an environment, in the form that `branchable` returned; `None` if it is copied.

    Raises:
        Exception: From the environment, or from an attribute of a wrapper that cannot be copied.
    """
    return SavedState.of(env) if branching_of(env) in ("snapshot", "replay") else None


def check_replayable(env: AECEnv) -> None:
    """Raise `ValueError` if an environment declares that the same replies need not lead to the same episode."""
    if branching_of(env) == "none":
        raise ValueError(
            f"the environment {name_of(env)!r} has metadata[\"branching\"] = 'none', so that the same replies need "
            "not lead to the same episode; expected another mode, to play a recorded episode again. Declare 'replay' "
            "if it is deterministic."
        )
