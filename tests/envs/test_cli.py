"""The command line, as a person in a terminal meets it."""

import dataclasses
import importlib.metadata
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

import pettingllms_envs
from pettingllms_envs import cli, plan_path_v0, registry
from pettingllms_envs.commands import info, setting
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.replies.moves import between


ROOT = Path(__file__).parents[2]

# Shortest walk: R R D. Two cells from the start, at row 0, column 2, the goal is one down.
BOARD = """\
@ . .
# # G
. . .
"""


@pytest.fixture
def board(tmp_path: Path) -> str:
    file = tmp_path / "board.txt"
    file.write_text(BOARD)
    return str(file)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """The exit status, the output and the error output of a command, with these lines typed."""
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        status = cli.main(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return command


def plug_in(folder: Path, name: str, module: str) -> None:
    """What pip leaves of an installed package that offers an environment, beside its modules."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[pettingllms.envs]\n{module.rpartition('.')[2]} = {module}\n")


def elsewhere(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, where the packages in a folder are installed."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "pettingllms_envs.cli", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )


# --- version, list and info


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pettingllms {importlib.metadata.version('pettingllms')}\n"


def test_list_shows_every_environment_with_version_and_origin(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = run("list")
    rows = [line.split()[:4] for line in out.splitlines()[1:]]
    assert status == 0
    assert [row for row in rows if row[2:] == ["built", "in"]] == rows
    assert [row[0] for row in rows] == list(pettingllms_envs.list_environments())


def test_a_plug_in_that_cannot_be_imported_is_listed_with_its_error_and_hides_no_other(tmp_path: Path) -> None:
    plug_in(tmp_path, "broken", "broken.broken_v3")
    plug_in(tmp_path, "fine", "fine.fine_v0")
    for name, version, text in (("broken", 3, "1 / 0\n"), ("fine", 0, '"""A fine game.\n\nMore."""\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / f"{name}_v{version}.py").write_text(text)
    done = elsewhere(tmp_path, "list")
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert "broken v3 broken cannot be imported: ZeroDivisionError: division by zero" in rows
    assert "fine v0 fine A fine game." in rows
    assert any(row.startswith("plan_path v0 built in ") for row in rows)


def test_an_environment_that_two_packages_offer_is_listed_twice(tmp_path: Path) -> None:
    for name in ("one", "other"):
        plug_in(tmp_path, name, f"{name}.maze_v0")
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "maze_v0.py").write_text(f'"""The {name} maze."""\n')
    rows = [" ".join(line.split()) for line in elsewhere(tmp_path, "list").stdout.splitlines()]
    assert {"maze v0 one The one maze.", "maze v0 other The other maze."} <= set(rows)


def test_info_shows_agents_settings_options_rewards_and_every_prompt(
    run: Callable[..., tuple[int, str, str]],
) -> None:
    status, out, _ = run("info", "plan_path", "--set", "size=5", "--seed", "3")
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert status == 0
    assert "size 10 Rows and columns of the grid, 3 to 100." in rows
    assert "num_turns None Turn budget of an episode, at least 1; None is the workflow's own default." in rows
    assert "split 'train', 'validation', 'test'" in rows
    assert "level 1, 2, 3, 4, 5" in rows
    assert "board open" in rows
    assert "format -0.2 0" in rows
    assert "The team's parts add up to at most 2 over an episode." in rows
    env = pettingllms_envs.make("plan_path", size=5)
    env.reset(seed=3)
    for agent in env.possible_agents:
        assert env.observe(agent)["system"] in out
        assert env.observe(agent)["text"] in out


def test_the_meaning_of_an_argument_is_what_its_docstring_says() -> None:
    doc = """Title.

    Args:
        size: Rows
            and columns.
        width (int): Columns: at least 1.
        **kwargs: The rest.

    Raises:
        ValueError: No.
    """
    assert info.documented(doc) == {
        "size": "Rows and columns.",
        "width": "Columns: at least 1.",
        "kwargs": "The rest.",
    }
    assert info.documented(None) == {}


OWN = [entry for entry in registry.entries() if entry.origin == registry.BUILT_IN]


@pytest.mark.parametrize("entry", OWN, ids=[entry.full_name for entry in OWN])
def test_each_setting_of_an_environment_has_a_meaning(entry: registry.Entry) -> None:
    module = importlib.import_module(entry.module)
    for name in module.env().metadata["workflows"]:
        workflow = module.env(workflow=name).workflow
        unexplained = [setting for setting, _, said in info.settings(module, workflow.task, workflow) if not said]
        assert unexplained == []


def test_a_class_explains_a_setting_before_its_bases_do() -> None:
    @dataclasses.dataclass
    class Base:
        """A board.

        Args:
            size: Rows.
            seed: Of it.
        """

        size: int
        seed: int

    @dataclasses.dataclass
    class Own(Base):
        """A wide board.

        Args:
            size: Columns.
        """

    meanings = {name: meaning for name, _, meaning in info.settings(plan_path_v0, Own(1, 2), None)}
    assert meanings["size"] == "Columns."
    assert meanings["seed"] == "Of it."


# --- play


def test_a_person_plays_a_role_and_the_oracle_the_others(run: Callable[..., tuple[int, str, str]], board: str) -> None:
    arguments = ("play", "plan_path", "--set", "size=3", "--board", board, "--role", "planner")
    status, out, _ = run(*arguments, typed="Moves: R R D\n")
    assert status == 0
    assert "drafter_0: Moves: R R D" in out
    assert "rewards: progress +1 (team), success +1 (team), steps -0.03 (planner), settle +0.03 (drafter)" in out
    assert "Solved in turn 1 of 4: success True, regret 0, moves 3, optimal 3, distance 0." in out


def test_a_person_plays_every_role_unless_one_is_named(run: Callable[..., tuple[int, str, str]], board: str) -> None:
    typed = "Moves: R\nI do not know.\nMoves: R R D\nMoves: R R D\n"
    status, out, _ = run("play", "plan_path", "--set", "size=3", "--board", board, typed=typed)
    assert status == 0
    assert out.count("drafter_0> ") == out.count("planner_0> ") == 2
    # A draft one of three steps closer pays 1/3 - 0.01, and is taken back with the planner's unreadable reply.
    assert "rewards: draft +0.333 (drafter), steps -0.01 (drafter)" in out
    assert "rewards: format -0.2 (planner), settle -0.323 (drafter)" in out
    assert "Last turn the planner's reply was unreadable: its last line does not begin with 'Moves:'." in out
    assert "Solved in turn 2 of 4" in out


def test_the_prompt_the_oracle_and_help_are_there_for_the_asking(
    run: Callable[..., tuple[int, str, str]], board: str
) -> None:
    arguments = ("play", "plan_path", "--workflow", "single", "--set", "size=3", "--board", board)
    status, out, _ = run(*arguments, typed="?\n:oracle\n:orakle\n:quit\n")
    assert status == 0
    assert "You are the planner. Your moves are played." in out
    assert "planner_0> Moves: R R D\n" in out
    assert "There is no command ':orakle'" in out
    assert "Left in turn 1 of 4: success False" in out


def test_a_reply_may_have_several_lines(run: Callable[..., tuple[int, str, str]], board: str) -> None:
    arguments = ("play", "plan_path", "--workflow", "single", "--set", "size=3", "--board", board)
    _, out, _ = run(*arguments, typed="First right, then down.\\\nMoves: R R D\n")
    assert "Solved in turn 1 of 4" in out


def test_the_end_of_the_input_ends_the_game_politely(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = run("play", "plan_path", typed="Moves: U\n")
    assert (status, err) == (0, "")
    assert "The game is left as it is." in out
    assert "Left in turn 1 of 4" in out


def test_ctrl_c_ends_the_game_politely(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Console, "input", interrupted)
    status, out, err = run("play", "plan_path")
    assert (status, err) == (130, "")
    assert "The game is left as it is." in out


@pytest.mark.parametrize("workflow", ["single", "draft_plan"])
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_the_oracle_plays_alone_and_solves_it(
    run: Callable[..., tuple[int, str, str]], workflow: str, seed: str
) -> None:
    status, out, _ = run("play", "plan_path", "--auto", "oracle", "--workflow", workflow, "--seed", seed)
    assert status == 0
    assert "Solved in turn 1 of 4: success True, regret 0" in out


def test_chance_plays_the_same_game_from_the_same_seed(run: Callable[..., tuple[int, str, str]]) -> None:
    games = [run("play", "plan_path", "--auto", "random", "--seed", seed) for seed in ("5", "5", "6")]
    assert games[0] == games[1] != games[2]
    assert all(letter.isprintable() or letter == "\n" for letter in games[0][1])


def test_a_recorded_game_shows_the_board_after_every_move(
    run: Callable[..., tuple[int, str, str]], board: str, tmp_path: Path
) -> None:
    film = tmp_path / "game.gif"
    arguments = ("play", "plan_path", "--set", "size=3", "--board", board, "--auto", "oracle", "--record", str(film))
    _, out, _ = run(*arguments)
    assert f"Recorded 4 boards in {film}." in out  # the start, R, R, D
    with Image.open(film) as image:
        assert (image.n_frames, image.size) == (4, (480, 480))


def test_a_walk_that_is_cut_short_has_no_boards_after_its_end() -> None:
    task = PlanPath(size=3)
    start = task.generate(0, board=BOARD)
    # D is blocked at once; R R U walks two cells and is then blocked.
    assert list(between(task, start, "Moves: D R")) == []
    assert [state.position for state in between(task, start, "Moves: R R U D")] == [1]
    assert list(between(task, start, "no moves")) == []


def test_the_settings_of_an_environment_with_tools_are_those_that_it_has_without(
    run: Callable[..., tuple[int, str, str]],
) -> None:
    status, with_tools, _ = run("info", "plan_path", "--set", 'role_tools={"planner": ["python"]}')
    assert status == 0
    _, without, _ = run("info", "plan_path")
    of_settings = [text.partition("\nSettings")[2].partition("\nReset options")[0] for text in (with_tools, without)]
    assert "role_tools" in of_settings[0]
    assert of_settings[0] == of_settings[1]


# --- check and new


def test_check_holds_an_environment_to_the_contract(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = run("check", "plan_path", "--set", "size=5", "--set", "workflow=single", "--seeds", "3")
    assert status == 0, out
    assert "plan_path_v0" in out


def test_check_takes_any_pettingzoo_environment_as_module_and_callable(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (ROOT / "tests" / "envs" / "asking.py").read_text("utf-8")
    (tmp_path / "copied.py").write_text(f"{code}\nNUMBER = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # which the command adds the folder to
    status, out, _ = run("check", "copied:Ask", "--seeds", "1")
    assert status == 0, out
    assert out.startswith("Conformance of ask_v0\n")
    assert "passed   another process" in out
    for given, message in {
        "copied:Asked": "'copied:Asked': module 'copied' has no attribute 'Asked'; expected module:callable, such as",
        "nowhere:Ask": "'nowhere:Ask': No module named 'nowhere'; expected module:callable, such as",
        "copied:NUMBER": "copied:NUMBER is 3; expected a function or a class that makes an environment",
        "copied:": "'copied:': module 'copied' has no attribute ''; expected module:callable",
    }.items():
        status, out, err = run("check", given)
        assert (status, out) == (2, "")
        assert message in err
    del sys.modules["copied"]


def test_nothing_is_ever_overwritten(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    (tmp_path / "number_walk").mkdir()
    status, out, err = run("new", "number_walk", "--to", str(tmp_path))
    assert (status, out) == (2, "")
    assert "number_walk is there already; expected a new folder" in err
    assert list((tmp_path / "number_walk").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=false", False),
        ("a=False", False),
        ("a=true", True),
        ("a=null", None),
        ("a=8", 8),
        ("a=falsehood", "falsehood"),
    ],
)
def test_true_false_and_null_of_a_setting_are_values_and_not_texts(text: str, value: object) -> None:
    assert setting(text) == ("a", value)


# --- what a person gets wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("list all", "unrecognized arguments: all. `pettingllms list --help` shows what there is."),
        ("info plan_pth", "no environment 'plan_pth'. Did you mean 'plan_path'?"),
        ("info plan_path --set size", "'size' is no setting; expected KEY=VALUE, such as size=8."),
        ("info plan_path --set size=1", "size is 1; expected a whole number from 3 to 100."),
        ("info plan_path --set size=big", "size is 'big'; expected a whole number from 3 to 100."),
        ("info plan_path --set colour=1", "`pettingllms info plan_path` shows the settings."),
        (
            "info math:pi",
            "the environment is 'math:pi'; expected a name, as `pettingllms list` shows it, or FILE.py:NAME",
        ),
        ("check plan_path --seeds 0", "--seeds is 0; expected at least 1."),
        (
            "play plan_path --workflow solo",
            "workflow is 'solo'; expected one of 'draft_plan', 'single', 'tool_plan', 'describer_solver', 'designed'.",
        ),
        ("play plan_path --split exam", "split is 'exam'; expected one of 'train', 'validation', 'test'."),
        ("play plan_path --level 0", "level is 0; expected one of 1, 2, 3, 4, 5."),
        ("play plan_path --role boss", "--role is 'boss'; expected all, drafter, planner. Choose one of them."),
        ("play plan_path --board /no/file", "/no/file: No such file or directory; expected a path that can be used."),
        ("play plan_path --record /no/a.gif", "--record is /no/a.gif; expected a file in a folder that exists."),
        ("play plan_path --auto", "argument --auto: expected one argument."),
        ("new Lights", "the name is 'Lights'; expected lower-case words joined by _, such as lights_out."),
        ("new class", "the name is 'class'; expected lower-case words"),
        ("new ../lights", "the name is '../lights'; expected lower-case words"),
        ("new lights_v1", "the name 'lights_v1' ends with a version"),
        ("new plan_path", "there is an environment 'plan_path'; expected a new name."),
        ("new json", "there is a module 'json', which the package would hide; expected a new name."),
        ("new numpy", "there is a module 'numpy', which the package would hide"),
        ("new pettingllms", "there is a package 'pettingllms', which the new one would replace; expected a new name."),
        ("new lights --kind dice", "argument --kind: invalid choice: 'dice'"),
        ("new lights --data rows.jsonl", "--data is rows.jsonl, and --kind is game; expected data for rows only."),
        ("new lights --kind rows --data no.jsonl", "no.jsonl: No such file or directory; expected a path"),
        ("new lights --to /no/folder", "--to is /no/folder; expected a folder that exists. Make it first."),
    ],
)
def test_a_mistake_ends_with_one_line_and_status_2(
    run: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(*arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_drawing_libraries_are_loaded_only_by_those_who_look() -> None:
    program = (
        "import sys, pettingllms_envs; env = pettingllms_envs.make('plan_path', render_mode='ansi')\n"
        "env.reset(seed=0); env.render(); print(*sorted({'PIL', 'rich'} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.split() == []
