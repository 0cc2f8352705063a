"""The scratch directory of native commands: whatever a command left in it is counted, copied out and removed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pettingllms_envs.sandbox.inside import scratch
from pettingllms_envs.sandbox.inside.watch import written


@pytest.fixture
def opened() -> Iterator[tuple[Path, int]]:
    """A folder, on a file system in memory where there is one, and a descriptor of it."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(dir=memory))
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    here = os.getcwd()
    yield folder, fd
    scratch.clear(fd)
    os.chdir(here)  # `clear` changes it
    os.close(fd)
    folder.rmdir()


def test_everything_is_removed_however_deep_and_whatever_its_name_and_mode(opened):
    folder, fd = opened
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "closed").write_text("x")
    (folder / "a" / "b" / "closed").chmod(0)
    (folder / "a" / "link").symlink_to("/etc")
    os.mkdir(os.fsencode(folder) + b"/\xff\n")
    (folder / "-rf").mkdir(mode=0)
    os.chdir(folder)
    for _ in range(1050):  # deeper than Python recurses, and 200 kB of a path
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    scratch.clear(fd)
    assert os.listdir(folder) == []
    assert os.path.exists("/etc")


def test_what_cannot_be_removed_in_time_stays_and_no_link_is_followed(opened, tmp_path):
    folder, fd = opened
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    os.chdir(folder)
    for _ in range(300):
        os.symlink(tmp_path / "kept", "link")
        os.mkdir("d")
        os.chdir("d")
    assert not scratch.clear(fd, 0.0)
    assert os.listdir(folder)
    assert scratch.clear(fd, 60.0)
    assert os.listdir(folder) == []
    assert (tmp_path / "kept" / "file").read_text() == "x"


def test_entries_are_counted_up_to_a_number_and_what_cannot_be_counted_is_as_many(opened, tmp_path):
    folder, _ = opened
    (folder / "a").mkdir()
    (folder / "a" / "file").write_text("x")
    assert scratch.num_entries(str(folder), 10) == 2
    assert scratch.num_entries(str(folder), 1) == 1
    assert scratch.num_entries(str(tmp_path / "absent"), 10) == 0
    os.chdir(folder)
    for _ in range(30):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    assert scratch.num_entries(str(folder), 1000) == 1000, "deeper than a path can be long"


def test_files_are_copied_out_in_order_and_nothing_else_is(opened, tmp_path):
    folder, fd = opened
    (tmp_path / "outside").write_text("secret")
    (folder / "a").mkdir()
    (folder / "a" / "one").write_text("1")
    (folder / "two").write_text("22")
    (folder / "large").write_text("x" * 100)
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "fifo")
    names = ["a/one", "link", "folder/outside", "fifo", "a", "absent", "large", "two", "two/x"]
    with open(tmp_path / "target", "w+b", buffering=0) as target:
        target.write(b"before ")
        sizes = list(scratch.copy_out(fd, names, target.fileno(), 50))
    none, large = scratch.ABSENT, scratch.TOO_LARGE
    assert sizes == [1, none, none, none, none, none, large, 2, none]
    assert (tmp_path / "target").read_bytes() == b"before 122"


def test_the_files_together_have_a_limit(opened, tmp_path):
    folder, fd = opened
    (folder / "file").write_text("x" * 30)
    with open(tmp_path / "target", "w+b", buffering=0) as target:
        assert list(scratch.copy_out(fd, ["file"] * 3, target.fileno(), 60)) == [30, 30, scratch.TOO_LARGE]


def test_a_folder_in_use_is_kept_and_that_of_a_killed_supervisor_is_removed(tmp_path):
    used, fd = scratch.make_folder(str(tmp_path), None)
    stale, lost = scratch.make_folder(str(tmp_path), None)
    Path(stale, "file").write_text("x")
    os.close(lost)  # as when its process dies
    here = os.getcwd()
    third, other = scratch.make_folder(str(tmp_path), None)
    assert os.getcwd() == here
    assert sorted(map(str, tmp_path.iterdir())) == sorted([used, third])
    scratch.remove_folder(used, fd)
    scratch.remove_folder(third, other)
    os.chdir(here)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_removed_in_time_stays_locked_and_a_stale_one_delays_no_start(tmp_path, monkeypatch):
    path, fd = scratch.make_folder(str(tmp_path), None)
    Path(path, "file").write_text("x")
    here = os.getcwd()
    assert not scratch.remove_folder(path, fd, 0.0)
    with pytest.raises(BlockingIOError):
        scratch._lock(path)
    os.close(fd)  # as when its process dies
    monkeypatch.setattr(scratch, "STALE_SECONDS", 0.0)
    os.chdir(here)
    mine, lock = scratch.make_folder(str(tmp_path), None)
    assert sorted(map(str, tmp_path.iterdir())) == sorted([path, mine])
    assert os.getcwd() == here
    os.close(scratch._lock(path))  # free again: the next server goes on with it
    assert scratch.remove_folder(mine, lock)
    os.chdir(here)


def test_the_folder_of_another_user_is_cleared_with_their_rights_or_not_at_all(tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder, fd = scratch.make_folder(str(tmp_path), 20_001)
    ours = Path(folder, "ours")
    ours.mkdir(mode=0o700)
    (ours / "file").write_text("x")
    here = os.getcwd()
    scratch.remove_folder(folder, fd)
    os.chdir(here)
    assert (ours / "file").read_text() == "x"
    monkeypatch.setattr(os, "geteuid", lambda: 20_002)
    left = scratch._lock(folder)
    scratch.remove_folder(folder, left)
    assert ours.exists()


def test_what_a_process_wrote_is_the_kernels_count_and_that_of_a_zombie_is_what_was_seen_last():
    before = written(os.getpid())
    with open(os.devnull, "wb", buffering=0) as file:
        file.write(b"x" * 100_000)
    assert 100_000 <= written(os.getpid()) - before < 110_000
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert written(pid, 7.0) in (7.0, written(pid)), "some kernels still tell"
    os.waitpid(pid, 0)
    assert written(pid, 7.0) == 0
