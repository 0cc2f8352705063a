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

from pettingllms_envs.branching.modes import (
    MODES,
    BranchingMode,
    branchable,
    branching_of,
    check_replayable,
    save_state,
)
from pettingllms_envs.branching.replay import ReplayError, ReplayPoint, ReplayWrapper
from pettingllms_envs.branching.snapshots import SavedState


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
