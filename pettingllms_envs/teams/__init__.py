"""Teams: who acts in which order, what each role sees, how its reply is used and scored. One file each.

These are the workflows of more than one environment, and what workflows are made of. One that only a certain
environment has lies in its folder, `pettingllms_envs.environments`.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple


class Later(NamedTuple):
    """A workflow that is imported when an environment is played in it: its name, its module, and its class there."""

    name: str
    module: str
    kind: str

    def load(self) -> type[Any]:
        return getattr(importlib.import_module(self.module), self.kind)  # type: ignore[no-any-return]
