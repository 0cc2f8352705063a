"""The published test sets: 200 instances a game, 40 of each level, the same on this machine as on ours.

    python tests/envs/test_published.py

writes the sets that are missing, and never one that is there: a new version of a game needs a new file.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs import instances


GAMES = ("plan_path_v0", "sokoban_v0", "sudoku_v0")
FOLDER = Path(instances.__file__).parent / "data"


def rows(name: str) -> list[dict[str, Any]]:
    task = pettingllms_envs.make(name).workflow.task
    made = []
    for seed in range(200):
        level = 1 + seed % 5
        state = task.generate(seed, "test", level)
        made.append(
            {
                "seed": seed,
                "split": "test",
                "level": level,
                "text": task.show(state),
                "outcome": dict(task.outcome(state)),
                "digest": hashlib.sha256(repr(state).encode()).hexdigest(),
            }
        )
    return made


@pytest.mark.parametrize("name", GAMES)
def test_this_machine_generates_the_published_instances(name: str) -> None:
    published = [dict(row) for row in instances.published(name)]
    assert rows(name) == published
    assert len({row["digest"] for row in published}) == 200


@pytest.mark.parametrize("name", GAMES)
def test_a_test_set_is_rows_that_an_environment_plays(name: str) -> None:
    env = pettingllms_envs.make(name)
    test_set = pettingllms_envs.test_set(name)
    assert len(test_set) == 200
    for row, published in zip(test_set[:10], instances.published(name), strict=False):
        env.reset(seed=row.pop("seed"), options=row)
        assert published["text"] in env.last()[0]["text"]


def test_what_was_not_published_or_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no published test set of 'chess_v0'; there are those of plan_path_v0, sok"):
        pettingllms_envs.test_set("chess")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "SHA256SUMS").write_text(f"{'0' * 64}  game_v0_test.jsonl\n")
    (tmp_path / "data" / "game_v0_test.jsonl").write_text("{}\n")
    monkeypatch.setattr(instances.resources, "files", lambda package: tmp_path)
    with pytest.raises(ValueError, match=r"game_v0_test.jsonl is not the file that was published. Install the pack"):
        pettingllms_envs.test_set("game")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in GAMES:
        path = FOLDER / f"{name}_test.jsonl"
        if not path.exists():
            path.write_text("".join(json.dumps(row) + "\n" for row in rows(name)), encoding="ascii")
    files = sorted(FOLDER.glob("*.jsonl"))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (FOLDER / "SHA256SUMS").write_text("".join(sums), encoding="ascii")
