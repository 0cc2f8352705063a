"""Commands write the files that they are asked for, and never over a record, whatever it is called."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs import cli
from pettingllms_envs.episodes import files, outputs
from pettingllms_envs.page import cooperation


Run = Callable[[str], tuple[int, str]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, `a` and `b`, and a page of the first."""
    path = tmp_path_factory.mktemp("recorded")
    for name in "ab":
        cli.main(["bench", "plan_path", "--agents", "oracle", "--limit", "2", "--output", str(path / name)])
    cli.main(["view", str(path / "a")])
    return path


@pytest.fixture
def run(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    """The exit status and the errors of a command beside the runs."""
    shutil.copytree(recorded, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")

    def command(line: str) -> tuple[int, str]:
        status = cli.main(line.split())
        return status, capsys.readouterr().err

    return command


def record() -> dict[str, bytes]:
    names = ("run.json", "episodes.jsonl", "report.json")
    return {f"{run}/{name}": Path(run, name).read_bytes() for run in "ab" for name in names}


COMMANDS = (
    "view a --output {}",
    "audit a --json {}",
    "compare a b --json {}",
    "play plan_path --auto oracle --record {}",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_writes_over_a_record_however_it_is_spelled(run: Run, command: str) -> None:
    os.symlink("b/run.json", "link.json")
    os.symlink("b", "folder")
    os.link("b/episodes.jsonl", "hard.html")
    before = record()
    files = ("run.json", "episodes.jsonl", "report.json")
    spelled = [f"{folder}/{name}" for folder in ("a", "b", "a/../b", "folder", Path.cwd() / "b") for name in files]
    for place in [*spelled, "link.json", "hard.html", "a/RUN.json", "new/run.json"]:
        Path("new").mkdir(exist_ok=True)
        status, err = run(command.format(place))
        assert (status, err.count("\n")) == (2, 1), place
        assert "; expected a" in err
    assert record() == before
    assert os.listdir("new") == []


def test_a_report_that_a_killed_run_does_not_have_yet_is_no_page(run: Run) -> None:
    Path("a/report.json").unlink()
    assert run("view a --output a/report.json")[0] == 2
    assert run("audit a --json report.json")[0] == 0  # of no run


@pytest.mark.parametrize("command", COMMANDS)
def test_an_earlier_output_and_an_empty_file_are_replaced_and_other_files_are_not(run: Run, command: str) -> None:
    Path("out").touch()
    assert run(command.format("out"))[0] == 0
    written = Path("out").read_bytes()
    assert written
    Path("out").write_bytes(written + b"old")
    assert run(command.format("out"))[0] == 0
    assert Path("out").read_bytes() == written
    Path("notes").write_text("mine")
    status, err = run(command.format("notes"))
    assert (status, Path("notes").read_text()) == (2, "mine")
    assert "notes exists, and is not what this command writes; expected a new file" in err


def test_the_page_of_a_run_is_written_in_its_folder_and_not_where_a_link_leads(run: Run) -> None:
    shutil.copy("a/page.html", "elsewhere.html")
    for name in ("page.html", "page.html.new"):
        Path("a", name).unlink(missing_ok=True)
        Path("a", name).symlink_to("../elsewhere.html")
    old = Path("elsewhere.html").read_bytes()
    assert run("view a")[0] == 0
    assert not Path("a/page.html").is_symlink()
    assert Path("elsewhere.html").read_bytes() == old
    assert Path("a/page.html.new").is_symlink()


def test_a_file_of_the_users_beside_an_output_stays_and_nothing_else_is_left_there(run: Run) -> None:
    Path("a/page.html.new").write_text("mine")
    before = set(Path("a").iterdir()) | {Path("a/page.html")}
    assert run("view a")[0] == 0
    assert Path("a/page.html.new").read_text() == "mine"
    assert set(Path("a").iterdir()) == before


def test_an_error_while_a_file_is_written_leaves_the_old_one_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")
    with pytest.raises(ValueError, match="half"), files.replacing(file) as stream:  # noqa: PT012
        stream.write(b"new")
        raise ValueError("half of it")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("report.json", "old")]


def test_a_missing_folder_is_named(run: Run) -> None:
    status, error = run("view a --output nowhere/page.html")
    assert (status, error.partition(";")[0]) == (2, "error: nowhere: the folder does not exist")


def test_what_is_no_file_is_written_to(run: Run) -> None:
    assert run("audit a --json /dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["run.json", "episodes.jsonl", "report.json"])
def test_runs_are_written_into_folders_without_a_part_of_another(run: Run, name: str) -> None:
    Path("c").mkdir()
    shutil.copy(f"b/{name}", "c")
    kept = Path("c", name).read_bytes()
    assert run("replay a --rescore c")[0] == 2
    assert run("bench sudoku --agents null --limit 1 --output c")[0] == 2
    assert Path("c", name).read_bytes() == kept
    assert {each.name for each in Path("c").iterdir()} <= {name, ".lock"}


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", ""])
def test_a_name_of_a_record_leads_to_no_other_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="expected a name without '/'"):
        outputs.inside(tmp_path, name)
    assert outputs.inside(tmp_path, "curves-a.png") == tmp_path / "curves-a.png"


@pytest.mark.parametrize(
    "text", ["[]", "{}", "{", '{"format": 1}', '{"format": 1, "env": 3, "sentences": [], "arms": 3}']
)
def test_damaged_numbers_of_cooperation_are_one_line(run: Run, text: str) -> None:
    Path("c").mkdir()
    Path("c", cooperation.NUMBERS).write_text(text)
    status, err = run("view c")
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith("error: c/cooperation.json is damaged (")
