"""Checkpoint folders: whole or not there, at whatever moment a save is killed; damage is found and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pettingllms_trl.checkpoints import atomic
from pettingllms_trl.checkpoints.atomic import CorruptCheckpoint, NoManifest, newest, rotate, staged, sweep, verify


ROOT = Path(__file__).parents[3]


def save(folder: Path, content: str = "weights") -> Path:
    """A checkpoint of a file and, in a folder of its own, another."""
    with staged(folder, about={"step": 7, "packages": {"torch": "2.13"}}) as staging:
        (staging / "model.safetensors").write_text(content)
        (staging / "planner").mkdir()
        (staging / "planner" / "adapter.bin").write_bytes(bytes(range(100)))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- A save -------------------------------------------------------------------------------------------------------


def test_the_manifest_lists_every_file_with_its_size_and_checksum(tmp_path: Path) -> None:
    manifest = json.loads((save(tmp_path / "checkpoint-7") / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert manifest["step"] == 7
    assert manifest["packages"] == {"torch": "2.13"}
    assert manifest["files"] == {
        "model.safetensors": {"size": 7, "crc32": f"{zlib.crc32(b'weights'):08x}"},
        "planner/adapter.bin": {"size": 100, "crc32": f"{zlib.crc32(bytes(range(100))):08x}"},
    }
    verify(tmp_path / "checkpoint-7")


def test_a_save_leaves_nothing_but_the_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint-7")
    assert names(tmp_path) == ["checkpoint-7"]
    assert names(tmp_path / "checkpoint-7") == ["manifest.json", "model.safetensors", "planner"]


def test_all_is_on_the_disk_before_the_rename_and_the_rename_before_the_save_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    opened: dict[int, str] = {}
    plain_open, fsync, rename = os.open, os.fsync, Path.rename

    def open_and_note(path: Path, *rest: Any, **options: Any) -> int:
        descriptor = plain_open(path, *rest, **options)
        opened[descriptor] = Path(path).name
        return descriptor

    def rename_and_note(path: Path, target: Path) -> Path:
        done.append(f"-> {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "open", open_and_note)
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append(opened[descriptor]), fsync(descriptor)))
    monkeypatch.setattr(Path, "rename", rename_and_note)
    save(tmp_path / "checkpoint-7")
    assert sorted(done[:3]) == ["adapter.bin", "model.safetensors", "planner"]
    assert done[3:] == ["manifest.json", "checkpoint-7", "-> checkpoint-7", tmp_path.name]


def test_a_save_that_fails_leaves_the_older_checkpoints_and_says_so(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint-6")
    save(tmp_path / "checkpoint-7", "older")

    def fill_the_disk() -> None:
        with staged(tmp_path / "checkpoint-7", about={}) as staging:
            (staging / "model.safetensors").write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        fill_the_disk()
    assert caught.value.__notes__ == [
        f"{tmp_path}/checkpoint-7 was not saved; the checkpoints beside it are as they were."
    ]
    assert names(tmp_path) == ["checkpoint-6", "checkpoint-7"]
    verify(tmp_path / "checkpoint-6")
    verify(tmp_path / "checkpoint-7")
    assert (tmp_path / "checkpoint-7" / "model.safetensors").read_text() == "older"


def test_a_rename_that_fails_puts_the_older_checkpoint_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "checkpoint-7", "older")
    rename = Path.rename

    def fails_the_second_time(path: Path, target: Path) -> Path:
        if path.name == "checkpoint-7" and path.parent != tmp_path:
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails_the_second_time)
    with pytest.raises(OSError, match="Input/output error"):
        save(tmp_path / "checkpoint-7", "newer")
    assert names(tmp_path) == ["checkpoint-7"]
    assert (tmp_path / "checkpoint-7" / "model.safetensors").read_text() == "older"


# ---- A kill -------------------------------------------------------------------------------------------------------

SAVE_AND_DIE = """
import os, sys
from pathlib import Path
from pettingllms_trl.checkpoints.atomic import rotate, staged

def save(out, left):
    def die(event, arguments):  # at the file operation whose number was given, as kill -9 does: no `finally` runs
        nonlocal left
        if event in {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "fcntl.flock"}:
            left -= 1
            if left < 0:
                os._exit(9)

    sys.addaudithook(die)
    with staged(out / "checkpoint-2", about={"step": 2}) as staging:
        (staging / "model.safetensors").write_text("second")
        (staging / "planner").mkdir()
        (staging / "planner" / "adapter.bin").write_text("second")
    rotate(out, saved=out / "checkpoint-2", keep=1)
    os._exit(0)

for line in sys.stdin:  # each save in a process of its own, forked from one that has imported what it needs
    number, out = line.rstrip().split(" ", 1)
    if not (child := os.fork()):
        save(Path(out), int(number))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def is_killed() -> Iterator[Callable[[Path, int], bool]]:
    """Save in a folder, and die at the file operation of a number; whether there were that many."""
    with subprocess.Popen(
        [sys.executable, "-c", SAVE_AND_DIE], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as saves:

        def is_killed(out: Path, number: int) -> bool:
            saves.stdin.write(f"{number} {out}\n")
            saves.stdin.flush()
            status = int(saves.stdout.readline())
            assert status in (0, 9)
            return status == 9

        yield is_killed
        saves.stdin.close()


@pytest.mark.parametrize("stands", ["older", "same", "both"])
def test_a_kill_before_any_file_operation_of_a_save_leaves_a_whole_checkpoint_to_go_on_from(
    stands: str, tmp_path: Path, is_killed: Callable[[Path, int], bool]
) -> None:
    found, killed = [], True
    while killed:
        out = tmp_path / str(len(found))
        for step in {"older": (1,), "same": (2,), "both": (1, 2)}[stands]:
            save(out / f"checkpoint-{step}", "first")
        killed = is_killed(out, len(found))
        best = newest(out)
        assert best is not None
        verify(best)
        found.append((best.name, (best / "model.safetensors").read_text()))
        assert [name for name in names(out) if "checkpoint-" not in name or "_tmp" in name or "corrupt" in name] == []
    before = {"older": ("checkpoint-1", "first"), "same": ("checkpoint-2", "first"), "both": ("checkpoint-2", "first")}
    after = ("checkpoint-2", "second")
    turn = found.index(after)
    assert turn > 10
    assert found == [before[stands]] * turn + [after] * (len(found) - turn)


def test_what_a_dead_process_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    dead = tmp_path / "_tmp-checkpoint-3-1" / "checkpoint-3"
    dead.mkdir(parents=True)
    (dead / "model.safetensors").write_text("half")
    with staged(tmp_path / "checkpoint-4", about={}) as staging:
        sweep(tmp_path)
        assert names(tmp_path) == [f"_tmp-checkpoint-4-{os.getpid()}"]
        (staging / "model.safetensors").write_text("whole")
    assert names(tmp_path) == ["checkpoint-4"]


# ---- Damage -------------------------------------------------------------------------------------------------------


def flip(path: Path, place: int = 3) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a flipped bit": (
        lambda folder: flip(folder / "planner" / "adapter.bin"),
        r"planner/adapter.bin has the CRC-32 \w{8}, expected",
    ),
    "a lost tail": (
        lambda folder: (folder / "model.safetensors").write_text("weig"),
        r"model.safetensors has 4 bytes, expected 7",
    ),
    "a missing file": (
        lambda folder: (folder / "model.safetensors").unlink(),
        r"model.safetensors is missing",
    ),
    "a manifest cut off": (
        lambda folder: (folder / "manifest.json").write_text('{"format'),
        r"manifest.json is no JSON",
    ),
    "a manifest of zeros": (
        lambda folder: (folder / "manifest.json").write_bytes(bytes(300)),
        r"manifest.json is no JSON",
    ),
    "another manifest": (
        lambda folder: (folder / "manifest.json").write_text("[]"),
        r"manifest.json does not match its own CRC-32",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_older_one_used(
    damage: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    older, bad = save(tmp_path / "checkpoint-6"), save(tmp_path / "checkpoint-10")
    damage(bad)
    with pytest.raises(CorruptCheckpoint, match=rf"checkpoint-10: {message}"):
        verify(bad)
    with pytest.warns(UserWarning, match=rf"{message}.* Renamed to checkpoint-10.corrupt; the next older"):
        assert newest(tmp_path) == older
    assert names(tmp_path) == ["checkpoint-10.corrupt", "checkpoint-6"]
    assert newest(tmp_path) == older


def test_no_bit_of_any_file_can_flip_unnoticed(tmp_path: Path) -> None:
    folder = save(tmp_path / "checkpoint-7")
    for path in (folder / "model.safetensors", folder / "manifest.json"):
        for place in range(path.stat().st_size):
            before = path.read_bytes()
            flip(path, place)
            with pytest.raises(CorruptCheckpoint):
                verify(folder)
            path.write_bytes(before)
    verify(folder)


def test_files_that_were_added_later_do_no_harm(tmp_path: Path) -> None:
    (save(tmp_path / "checkpoint-7") / "README.md").write_text("a note of mine")
    verify(tmp_path / "checkpoint-7")


def test_a_second_bad_checkpoint_of_a_step_is_kept_beside_the_first(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint-6")
    for expected in ("checkpoint-7.corrupt", "checkpoint-7.corrupt.2"):
        flip(save(tmp_path / "checkpoint-7") / "model.safetensors")
        with pytest.warns(UserWarning, match=f"Renamed to {expected};"):
            newest(tmp_path)
    assert names(tmp_path) == ["checkpoint-6", "checkpoint-7.corrupt", "checkpoint-7.corrupt.2"]


def test_where_no_checkpoint_verifies_a_run_does_not_start_anew_unasked_now_or_later(tmp_path: Path) -> None:
    flip(save(tmp_path / "checkpoint-7") / "model.safetensors")
    with (
        pytest.warns(UserWarning, match="corrupt"),
        pytest.raises(
            CorruptCheckpoint, match=r"no checkpoint in .* can be resumed from.*\n.*model.safetensors has the"
        ),
    ):
        newest(tmp_path)
    with pytest.raises(CorruptCheckpoint, match=r"checkpoint-7.corrupt was found corrupt before"):
        newest(tmp_path)


def test_a_checkpoint_without_manifest_is_passed_over_and_left_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-9").mkdir()
    with pytest.raises(
        NoManifest, match=r"checkpoint-9 has no manifest.json: it was not saved by MultiAgentGRPOTrainer"
    ):
        verify(tmp_path / "checkpoint-9")
    with (
        pytest.warns(UserWarning, match="passed over: .*checkpoint-9 has no manifest"),
        pytest.raises(CorruptCheckpoint, match="Name one by its path"),
    ):
        newest(tmp_path)
    older = save(tmp_path / "checkpoint-8")
    with pytest.warns(UserWarning, match="passed over"):
        assert newest(tmp_path) == older
    assert names(tmp_path) == ["checkpoint-8", "checkpoint-9"]


def test_a_manifest_of_a_later_format_is_not_taken_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(atomic, "FORMAT", 2)
        save(tmp_path / "checkpoint-7")
    with pytest.raises(ValueError, match=r"is of the format 2, expected 1. Resume with the version"):
        newest(tmp_path)
    assert names(tmp_path) == ["checkpoint-7"]


def test_nothing_saved_is_no_checkpoint(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    assert newest(tmp_path / "not there") is None
    (tmp_path / "checkpoint-best").mkdir()
    assert newest(tmp_path) is None


# ---- Rotation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "saved", "protected", "left"),
    [
        (None, 40, (), [9, 10, 20, 40]),
        (4, 40, (), [9, 10, 20, 40]),
        (2, 40, (), [20, 40]),
        (1, 40, (), [40]),
        (2, 40, (9,), [9, 40]),
        (1, 40, (9,), [9, 40]),
        (2, 9, (), [9, 40]),  # of a run begun anew beside those of another
    ],
)
def test_rotation_keeps_the_newest_the_one_just_saved_and_the_protected(
    keep: int | None, saved: int, protected: tuple[int, ...], left: list[int], tmp_path: Path
) -> None:
    for step in (10, 9, 40, 20):
        save(tmp_path / f"checkpoint-{step}")
    (tmp_path / "checkpoint-5.corrupt").mkdir()
    of = {step: tmp_path / f"checkpoint-{step}" for step in (9, 10, 20, 40)}
    rotate(tmp_path, saved=of[saved], keep=keep, protected=[of[step] for step in protected])
    assert atomic.checkpoints(tmp_path) == [of[step] for step in left]
    assert len(names(tmp_path)) == len(left) + 1


def test_nothing_is_rotated_away_for_a_checkpoint_that_does_not_verify(tmp_path: Path) -> None:
    old, new = save(tmp_path / "checkpoint-1"), save(tmp_path / "checkpoint-2")
    flip(new / "model.safetensors")
    with pytest.raises(CorruptCheckpoint, match=r"checkpoint-2: model.safetensors"):
        rotate(tmp_path, saved=new, keep=1)
    with warnings.catch_warnings(action="ignore"):
        assert newest(tmp_path) == old
