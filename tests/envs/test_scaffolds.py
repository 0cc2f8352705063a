"""`pettingllms new`: what it writes is a small environment of each kind that works at once."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs import cli, installing, testing
from pettingllms_envs.commands import new
from pettingllms_envs.episodes import files
from pettingllms_envs.teams.designs import Design, Member, write_design


ROOT = Path(__file__).parents[2]
SLOW = {"another process", "floors", "fuzzed replies", "long replies"}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The module of a package that the command has just written, imported."""

    def make(name: str, *options: str) -> Any:
        assert cli.main(["new", name, "--to", str(tmp_path), *options]) == 0
        monkeypatch.syspath_prepend(tmp_path / name)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / name), prepend=os.pathsep)
        return importlib.import_module(f"{name}.{name}_v0")

    return make


@pytest.mark.parametrize("kind", new.KINDS)
def test_a_new_package_keeps_the_contract(kind: str, made: Callable[..., Any]) -> None:
    module = made(f"fresh_{kind}", "--kind", kind)
    env = module.env()
    assert env.metadata["name"] == f"fresh_{kind}_v0"
    testing.conforms(module.env, make_parallel=module.parallel_env, seeds=range(2), only=set(testing.CHECKS) - SLOW)


def test_a_new_package_is_a_game_unless_another_kind_is_asked_for(tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["new", "number_walk", "--to", str(tmp_path)]) == 0
    package = tmp_path / "number_walk"
    assert sorted(str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()) == [
        ".github/workflows/test.yml",
        ".gitignore",
        "LICENSE",
        "MANIFEST.in",
        "PUBLISHING.md",
        "README.md",
        "number_walk/__init__.py",
        "number_walk/number_walk_v0.py",
        "number_walk/rules.py",
        "number_walk/team.py",
        "pyproject.toml",
        "requirements.txt",
        "tests/test_number_walk.py",
    ]
    out = capsys.readouterr().out
    assert "    pip install -r requirements.txt -e '.[test]'\n    pettingllms check number_walk\n" in out
    for path, text in new.files("number_walk", "game").items():
        assert (package / path).read_text("utf-8") == text


@pytest.mark.parametrize("kind", new.KINDS)
def test_a_new_package_is_named_in_its_entry_point_and_has_no_name_of_the_scaffold(kind: str) -> None:
    files = new.files("number_walk", kind)
    assert (
        '[project.entry-points."pettingllms.envs"]\nnumber_walk_v0 = "number_walk.number_walk_v0"\n'
        in (files["pyproject.toml"])
    )
    assert "\nraw_env, env, parallel_env = assemble(" in files["number_walk/number_walk_v0.py"]
    assert not [path for path, text in files.items() if "my_game" in path + text or "MyGame" in text]


def test_a_new_game_is_a_folder_of_rules_and_team_that_says_in_which_order_to_read(made: Callable[..., Any]) -> None:
    module = made("number_hop")
    folder = sys.modules["number_hop"]
    assert folder.__doc__ == (
        "number_hop. Read `rules`, then its workflow, `team`. The environment is made by its door, `number_hop_v0`."
    )
    assert [module.NumberHop.__module__, module.advised.__module__] == ["number_hop.rules", "number_hop.team"]
    env = module.env()
    env.reset(seed=0)
    env.step("Double it twice.")
    assert "The adviser wrote:\n> Double it twice." in env.observe("player_0")["text"]
    assert env.metadata["workflows"] == ("advised", "draft_plan", "single", "tool_plan")


def test_a_new_tool_has_an_entry_point_that_leads_to_it(made: Callable[..., Any], tmp_path: Path) -> None:
    module = made("price_tool", "--kind", "tool")
    text = (tmp_path / "price_tool" / "pyproject.toml").read_text("utf-8")
    assert '[project.entry-points."pettingllms.tools"]\nprice_tool = "price_tool.price_tool_v0:PriceList"\n' in text
    tool = module.PriceList()
    assert tool.spec.name == "price_tool"
    assert tool("Tea").text == "340"
    assert tool("gold").error == "no such item"
    env = module.env()
    env.reset(seed=0)
    env.step("```call price_tool\ntea\n```")
    assert "340" in env.observe("planner_0")["text"]


@pytest.mark.parametrize("kind", new.KINDS)
def test_a_new_package_is_clean_to_a_linter(kind: str, tmp_path: Path) -> None:
    for path, text in new.files("number_walk", kind).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    settings = ["--isolated", "--no-cache", "--line-length", "119"]
    for command in (["check", "--select", "B,C4,E,F,I,RET,RUF,SIM,UP,W"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, *settings, "."]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", new.KINDS)
def test_the_own_tests_of_a_new_package_pass(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("pettingllms_trl.testing", reason="needs the extra `trl`", exc_type=ImportError)
    assert cli.main(["new", "number_walk", "--to", str(tmp_path), "--kind", kind]) == 0
    folder = tmp_path / "number_walk"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


ROWS = (
    {"question": "Capital of Peru?", "answer": "Lima", "split": "train"},
    {"question": "Capital of Chad?", "answer": "N'Djamena", "split": "test", "note": "kept"},
)


def test_rows_of_ones_own_are_played_and_graded_at_once(made: Callable[..., Any], tmp_path: Path) -> None:
    module = made("capitals", "--kind", "rows", "--data", write(tmp_path / "mine.jsonl", *ROWS))
    env = module.env(workflow="single")
    assert env.metadata["reset_options"] == {"split": ("train", "test"), "row": ()}
    env.reset(seed=5, options={"split": "test"})
    assert env.snapshot().play.task.row["note"] == "kept"
    assert "Capital of Chad?" in env.observe("planner_0")["text"]
    env.step("Lima")
    assert env.rewards == {"planner_0": 0.0}
    env.step(" n'djamena\n")
    assert env.rewards == {"planner_0": 2.0}  # progress 1 and success 1
    assert env.infos["planner_0"]["outcome"] == {"success": True}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (({"question": "1 + 1?"},), "has a row with 'question'; expected an 'answer'"),
        (({"prompt": "1 + 1?", "answer": "2"},), "row 0 of mine.jsonl has the question None; expected a text."),
        (
            ({"question": "1 + 1?", "answer": "2", "split": "dev"},),
            "the split of row 0 of mine.jsonl is 'dev'; expected",
        ),
        ((), "mine.jsonl has no rows; expected at least one with a 'question'."),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_and_nothing_is_written(
    rows: tuple[dict[str, Any], ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "mine.jsonl", *rows)
    assert cli.main(["new", "world_capitals", "--to", str(tmp_path), "--kind", "rows", "--data", data]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "world_capitals").exists()


@pytest.mark.parametrize("kind", new.KINDS)
@pytest.mark.parametrize(
    "name", ["my_game", "game", "open_task", "plan_path_game", "assemble", "env", "int", "none", "role", "price_list"]
)
def test_any_valid_name_gives_a_package_that_plays(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, text in new.files(name, kind).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    env = importlib.import_module(f"{name}.{name}_v0").env()
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]  # the next kind has the same name
    assert env.metadata["name"] == f"{name}_v0"
    env.reset(seed=0)
    while not env.standing():
        env.step(env.oracle())
    assert env.standing() == "solved"


@pytest.mark.parametrize(
    ("repository", "line"),
    [
        (installing.REPOSITORY, f"-e {ROOT}"),
        ("https://host.org/team/pettingllms", "pettingllms @ git+https://host.org/team/pettingllms"),
    ],
    ids=["placeholder", "address"],
)
def test_a_new_package_says_where_pip_finds_this_one(
    repository: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "REPOSITORY", repository)
    assert new.files("number_walk")["requirements.txt"].splitlines()[-1] == line


@pytest.mark.parametrize("name", ["number_walk", "number_walk_v0", "pettingllms/number_walk-v0"])
def test_a_name_that_the_folder_declares_and_nobody_installed_says_how_to_install_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = r"The pyproject.toml here declares it, and `pip install -e \.` installs it"
    (tmp_path / "pyproject.toml").write_text(new.files("number_walk")["pyproject.toml"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=hint):
        pettingllms_envs.find(name)
    with pytest.raises(ValueError, match=r"no environment 'number_wal'\. There are"):
        pettingllms_envs.find("number_wal")


def test_the_source_distribution_has_what_the_readme_names(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="builds a package, as pip does")
    for path, text in new.files("number_walk").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    build = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True)
    with tarfile.open(next((tmp_path / "dist").iterdir())) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"README.md", "LICENSE", "PUBLISHING.md", "requirements.txt", "tests/test_number_walk.py"}


def test_the_page_on_publishing_names_every_placeholder() -> None:
    made = new.files("number_walk")
    project = tomllib.loads(made["pyproject.toml"])["project"]
    assert project["authors"] == [{"name": "The authors of number_walk"}]
    assert ".invalid" in project["urls"]["Repository"]  # leads nowhere: RFC 2606
    for placeholder in ("`authors`", "`Repository`", "`requirements.txt`", "the authors of number_walk"):
        assert placeholder in made["PUBLISHING.md"]


def test_a_new_tool_is_not_called_like_one_that_exists(tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["new", "python", "--kind", "tool", "--to", str(tmp_path)]) == 2
    assert "there is a tool 'python'; expected a new name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


HOSTILE_JOB = (
    'MyGame my_game TASK_CLASS DESIGN_ROUNDS """\n\'\'\' + __import__("os").abort() + \\"\\N{BULLET} \ud800 {0} "'
    + "Then go on from what you read, step by step, until there is no step left to be taken. " * 3
)
DESIGNS = [
    Design((Member("Find the source.", (), ("archive_1",)), Member(HOSTILE_JOB, (0,), ("archive_0",))), 2),
    Design((Member(HOSTILE_JOB),), 2),
]


@pytest.fixture
def designs(tmp_path: Path) -> Path:
    """A run of episodes with a design each, and of one without."""
    for number, first in enumerate([*map(write_design, DESIGNS), "Two members should do."]):
        replies = [first, "```call archive_1\nRamin\n```", "I go on.", "```call archive_0\nGafon\n```"]
        (tmp_path / "replies.json").write_text(json.dumps([*replies, *["Answer: Popos"] * 9]))
        options = ["--set", "workflow=designed", "--set", "size=8", "--set", "max_calls=5", "--set", "job_chars=500"]
        agents = f"scripted:{tmp_path / 'replies.json'}"
        run = ["bench", "archives", *options, "--agents", agents, "--limit", "1", "--output"]
        assert cli.main([*run, str(tmp_path / str(number))]) == 0
    rows = [row for number in range(3) for row in files.read(tmp_path / str(number))]
    for number, row in enumerate(rows):
        row["instance"]["index"] = number
    files.write_rows(tmp_path / "0" / "episodes.jsonl", rows)
    return tmp_path / "0"


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_package_of_a_design_shows_its_members_the_same_prompts(
    number: int, designs: Path, made: Callable[..., Any]
) -> None:
    module = made(f"scribes_{number}", "--kind", "roles", "--from", str(designs), "--episode", str(number))
    (team,) = [kind for kind in vars(module).values() if isinstance(kind, type) and "design" in vars(kind)]
    assert team.design == DESIGNS[number - 1]  # type: ignore[attr-defined]
    row = files.read(designs)[number - 1]
    env = module.env()
    env.reset(seed=row["instance"]["seed"], options=row["instance"]["options"])
    assert len(row["steps"]) > 2
    for step in row["steps"][1:]:
        assert (env.agent_selection, env.observe(env.agent_selection)) == (step["agent"], step["prompt"])
        env.step(step["reply"])
    assert env.standing()
    testing.conforms(module.env, make_parallel=module.parallel_env, seeds=range(2), only=set(testing.CHECKS) - SLOW)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--kind roles --from RUN --episode 3", "episode 3 of RUN has no design: it is not one JSON object;"),
        ("--kind roles --from RUN --episode 4", "--episode is 4, and RUN has 3; expected one of them, from 1."),
        ("--kind roles --episode 2", "--episode is 2 without a run; expected it with --from"),
        ("--kind game --from RUN", "expected it for roles. Add --kind roles."),
        ("--kind roles --from OTHER", "is one of plan_path_v0, in which nobody designs; expected workflow=designed."),
        ("--kind roles --from SEEN", "episode 1 of SEEN was played with view; expected it without, for the team"),
        ("--kind roles --from NONE", "NONE/run.json: No such file or directory;"),
    ],
)
def test_an_episode_without_a_design_makes_no_package(
    options: str, message: str, designs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    assert cli.main(["bench", "plan_path", "--agents", "oracle", "--limit", "1", "--output", str(other)]) == 0
    seen = tmp_path / "seen"
    pictured = ["bench", "plan_path", "--workflow", "designed", "--set", "view=both", "--agents", "oracle"]
    assert cli.main([*pictured, "--limit", "1", "--output", str(seen)]) == 0
    for word, path in (("RUN", designs), ("OTHER", other), ("SEEN", seen), ("NONE", tmp_path / "none")):
        options, message = options.replace(word, str(path)), message.replace(word, str(path))
    assert cli.main(["new", "scribes", "--to", str(tmp_path), *options.split()]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "scribes").exists()
