"""Files of a run that is somebody else's: none is read that is no file of it, or has no end."""

import inspect
import json
import os
import sys
from pathlib import Path

import pytest

from pettingllms_envs.agents import spec
from pettingllms_envs.cli import main
from pettingllms_envs.commands import setting
from pettingllms_envs.episodes import files, index, media, origin
from pettingllms_envs.evaluation import suites, teams


def test_a_link_out_of_the_folder_is_not_opened_and_one_within_it_is(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    run = tmp_path / "run"
    run.mkdir()
    (run / "page.html").symlink_to("../key")
    with pytest.raises(ValueError, match=r"page.html is a link out of its folder"):
        files.opened(run / "page.html")
    (run / "report.json").write_text("{}")
    (run / "other.json").symlink_to("report.json")
    with files.opened(run / "other.json") as stream:
        assert stream.read() == b"{}"


@pytest.mark.parametrize("name", [files.RUN, files.EPISODES, files.REPORT])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    read = {files.RUN: files.read_header, files.EPISODES: files.read, files.REPORT: files.read_report}[name]
    with pytest.raises(ValueError, match=f"{name} is no regular file"):
        read(tmp_path)


def test_an_image_that_is_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / f"{'0' * 64}.png").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="is a link out of its folder"):
        media.read_image(tmp_path, "0" * 64)


def test_files_and_lines_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (files.MOST_JSON, files.MOST_LINE) == (16 * 1024**2, 64 * 1024**2)
    monkeypatch.setattr(files, "MOST_JSON", 100)
    monkeypatch.setattr(files, "MOST_LINE", 100)
    (tmp_path / files.RUN).write_text(" " * 101)
    (tmp_path / files.EPISODES).write_text("[" * 101)
    with pytest.raises(ValueError, match=r"run.json has more than 100 bytes"):
        files.read_header(tmp_path)
    with pytest.raises(ValueError, match=r"line 1 has more than 100 bytes"):
        files.read(tmp_path)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("/home/ada/rows.jsonl", "rows.jsonl"),
        ("C:\\Users\\ada\\rows.jsonl", "rows.jsonl"),
        ("~/data/rows.jsonl", "rows.jsonl"),
        ("program:/home/ada/team.py:team", "program:team.py:team"),
        (["--data=/home/ada/rows.jsonl", 7], ["--data=rows.jsonl", 7]),
        ({"a": "bench --data '/home/ada/rows.jsonl' -o x"}, {"a": "bench --data 'rows.jsonl' -o x"}),
        ("me/team", "me/team"),
        ("http://127.0.0.1:8000/v1/chat", "http://127.0.0.1:8000/v1/chat"),
        ("data/rows.jsonl", "data/rows.jsonl"),
        ("/no_think and/or </think> 1/2", "/no_think and/or </think> 1/2"),
    ],
)
def test_of_an_absolute_path_the_last_name_is_uploaded(value: object, shown: object) -> None:
    assert origin.without_paths(value) == shown


def test_no_control_character_of_an_error_or_a_path_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "\x1b]0;title\x07\u202e"
    run.mkdir()
    (run / files.RUN).write_text(json.dumps({"format": "\x1b[2J"}))
    assert main(["view", str(run)]) == 2
    shown = "".join(capsys.readouterr())
    assert "title" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_what_is_no_file_of_a_run_is_said_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / files.RUN)
    with pytest.raises(ValueError, match=r"run.json is no regular file; expected one of a run. Name another folder.$"):
        files.read_header(tmp_path)


def test_a_link_to_itself_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / files.RUN).symlink_to(files.RUN)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        files.opened(tmp_path / files.RUN)


def test_a_team_in_the_cache_of_the_hub_is_a_link_and_is_read(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text('{"format": 1, "environment": "game", "agents": {}, "policies": {}}')
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / teams.TEAM).symlink_to("../blob")
    assert teams.read_team(tmp_path / "snapshot").environment == "game"


def test_what_is_nested_too_deeply_is_no_traceback(tmp_path: Path) -> None:
    deep = "[" * 100_000
    (tmp_path / "deep.yaml").write_text(deep)
    with pytest.raises(ValueError, match=r"deep.yaml is not YAML"):
        suites.read_suite(str(tmp_path / "deep.yaml"))
    (tmp_path / suites.RECORD).write_text(deep)
    assert suites.read_record(tmp_path) == {}
    assert setting(f"size={deep}") == ("size", deep)
    with pytest.raises(ValueError, match="expected a JSON object"):
        spec.option("extra", deep)


def test_runs_are_found_in_folders_deeper_than_the_stack(tmp_path: Path) -> None:
    (deep := tmp_path / "/".join("a" * 300)).mkdir(parents=True)  # no deeper than pytest removes again
    (deep / files.RUN).touch()
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack(0)) + 100)
        found = list(index.run_folders(tmp_path))
    finally:
        sys.setrecursionlimit(limit)
    assert found == [deep]
