"""Every command names an environment in one way: by its short name, with its version, or as PettingZoo has it."""

from __future__ import annotations

import sys
from types import ModuleType

import pettingzoo
import pytest

from pettingllms_envs import registry
from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.registry import Entry
from pettingllms_trl.rollout.env_checks import env_maker


NAMES = ["sokoban", "sokoban_v0", "pettingllms/sokoban-v0"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("imported", [True, False], ids=["imported before", "not imported"])
def test_every_spelling_of_a_name_makes_the_environment(
    name: str, imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not imported:  # as it is where nobody has imported pettingllms_envs: PettingZoo knows none of its environments
        monkeypatch.setattr(pettingzoo, "aec_registry", {})
    env = env_maker(name, {"boxes": 2})().unwrapped
    assert (env.metadata["name"], env.workflow.task.boxes) == ("sokoban_v0", 2)


def test_a_plug_in_is_found_by_its_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("walk_v0")
    module.env = assemble(PlanPath, "walk_v0").env  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "walk_v0", module)
    monkeypatch.setattr(registry, "_plug_ins", lambda: (Entry("walk", 0, "walk_v0", "someone"),))
    assert env_maker("walk", {"size": 4})().metadata["name"] == "walk_v0"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sokobann", r"no environment 'sokobann'\. Did you mean 'sokoban'\? There are: aime, .*; or give a function"),
        ("classic/nim-v9", r"no environment 'classic/nim-v9'\..* is known once its package was imported"),
    ],
)
def test_a_name_that_nobody_knows_raises(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        env_maker(name)
