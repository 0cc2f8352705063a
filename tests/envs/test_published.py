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
from pettingllms_envs import environments, published


GAMES = ("plan_path_v0", "sokoban_v0", "sudoku_v0")
FOLDER = Path(environments.__file__).parent


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
    found = [dict(row) for row in published.published(name)]
    assert rows(name) == found
    assert len({row["digest"] for row in found}) == 200


@pytest.mark.parametrize("name", GAMES)
def test_a_test_set_is_rows_that_an_environment_plays(name: str) -> None:
    env = pettingllms_envs.make(name)
    test_set = pettingllms_envs.test_set(name)
    assert len(test_set) == 200
    for row, instance in zip(test_set[:10], published.published(name), strict=False):
        env.reset(seed=row.pop("seed"), options=row)
        assert instance["text"] in env.last()[0]["text"]


def test_what_was_not_published_or_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no published test set of 'chess_v0'; there are those of plan_path_v0, sok"):
        pettingllms_envs.test_set("chess")
    folder = tmp_path / "environments" / "game" / "data"
    folder.mkdir(parents=True)
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  game_v0_test.jsonl\n")
    (folder / "game_v0_test.jsonl").write_text("{}\n")
    monkeypatch.setattr(published.resources, "files", lambda package: tmp_path)
    with pytest.raises(ValueError, match=r"game_v0_test.jsonl is not the file that was published. Install the pack"):
        pettingllms_envs.test_set("game")


if __name__ == "__main__":
    for name in GAMES:
        folder = FOLDER / name.removesuffix("_v0") / "data"
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}_test.jsonl"
        if not path.exists():
            path.write_text("".join(json.dumps(row) + "\n" for row in rows(name)), encoding="ascii")
        files = sorted(folder.glob("*.jsonl"))
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
        (folder / "SHA256SUMS").write_text("".join(sums), encoding="ascii")
