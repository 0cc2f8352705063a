"""Several environments, models and teams in one command: what is played, what is refused, and what a kill costs."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import runpy
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import pettingllms_envs
from chat_server import serving
from pettingllms_envs.agents.servers import with_server
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.commands.runs import asked
from pettingllms_envs.commands.suite import cells_of
from pettingllms_envs.episodes import files
from pettingllms_envs.evaluation import runner
from pettingllms_envs.evaluation.suites import Player, is_suite, read_suite, shipped, suite_of
from pettingllms_envs.teams.designs import Design, Limits, read_design


ROOT = Path(__file__).parents[2]

Run = Callable[..., tuple[int, str, str]]


# ---- Suite files ----------------------------------------------------------------------------------------------------


def test_a_suite_names_environments_models_and_teams() -> None:
    text = """
    samples: 2
    environments: [plan_path, {env: sokoban, set: {size: 6}, limit: 3}]
    models: [org/a, {model: b, name: cold, temperature: 0}]
    teams: {best: oracle, mixed: {drafter: oracle, planner: "api:b,temperature=0.5"}}
    """
    suite = suite_of(yaml.safe_load(text), default_name="mine", source="mine.yaml")
    assert (suite.name, suite.options) == ("mine", {"samples": 2})
    assert suite.environments == [{"env": "plan_path"}, {"env": "sokoban", "set": {"size": 6}, "limit": 3}]
    assert suite.players == [
        Player(name="org/a", model="org/a"),
        Player(name="cold", model="b", options={"temperature": 0}),
        Player(name="best", agents=["oracle"]),
        Player(name="mixed", agents=["drafter=oracle", "planner=api:b,temperature=0.5"]),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"f is \[\]; expected a mapping of name, environments, models, teams"),
        ("models: [a]", "f has no environments; expected some."),
        ("environments: plan_path", "environments: 'plan_path'; expected list"),
        ("{environments: [plan_path], modls: [a]}", "has 'modls'; expected one of: .* Did you mean 'models'"),
        ("environments: [{env: plan_path, limt: 3}]", "has 'limt'; expected one of: .* Did you mean 'limit'"),
        ("environments: [{set: {size: 3}}]", "has no 'env'; expected it"),
        ("{environments: [plan_path], limit: many}", "has limit: 'many'; expected int"),
        ("{environments: [plan_path], limit: true}", "has limit: True; expected int"),
        ("{environments: [plan_path], models: [3]}", "the model 3, is 3; expected a mapping of model"),
        ("{environments: [plan_path], models: [a, a]}", "has a player called 'a' twice"),
        ("{environments: [plan_path], models: [a], teams: {a: oracle}}", "has a player called 'a' twice"),
        (
            "{environments: [plan_path], teams: {a: [oracle]}}",
            "has the team 'a' as .*expected an agent for every role",
        ),
        ("{environments: [plan_path], teams: {a: 'api:'}}", "the agent 'api:' cannot be read"),
        ("{name: ../x, environments: [plan_path]}", "has the name '../x'; expected one that a folder may have"),
    ],
)
def test_a_mistake_in_a_suite_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        suite_of(yaml.safe_load(text), default_name="f", source="f")


def test_what_is_no_yaml_is_refused_in_a_line(run: Run) -> None:
    Path("a.yaml").write_text("environments: [plan_path\nmodels: {")
    status, out, err = run("bench a.yaml --model m")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: a.yaml is not YAML (")


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_suite_has_environments_and_settings_that_there_are(name: str) -> None:
    assert is_suite(name)
    suite = read_suite(name)
    assert (suite.name, suite.players) == (name, [])
    for entry in suite.environments:
        settings = {key: value for key, value in entry.get("set", {}).items() if key not in ("data", "year")}
        pettingllms_envs.make(entry["env"], **settings)


def test_the_suites_that_are_documented_are_shipped() -> None:
    assert {"code", "cooperation", "games", "mathematics", "smoke"} <= set(shipped())


# ---- Options --------------------------------------------------------------------------------------------------------


def cells(suite: str, **given: Any) -> list[Namespace]:
    parsed = suite_of(yaml.safe_load(suite), default_name="s", source="s.yaml")
    args = {"settings": [], "reset_options": [], "agents": [], "team": None, "row": None, **given}
    return [cell.args for cell in cells_of(Namespace(**args), parsed)]


def test_the_command_comes_before_an_environment_and_that_before_the_suite_but_a_model_before_all() -> None:
    suite = """
    {limit: 1, temperature: 0.1, environments: [{env: plan_path, limit: 2}, sudoku],
     models: [a, {model: b, temperature: 0.9}]}
    """
    assert [cell.limit for cell in cells(suite)] == [2, 2, 1, 1]
    assert [cell.limit for cell in cells(suite, limit=7)] == [7] * 4
    assert [cell.temperature for cell in cells(suite)] == [0.1, 0.9] * 2
    assert [cell.temperature for cell in cells(suite, temperature="0.5")] == ["0.5", 0.9] * 2


def test_a_setting_holds_for_the_environments_that_have_it() -> None:
    suite = "{set: {size: 5}, environments: [plan_path, {env: sokoban, set: {size: 7}}, aime], models: [a]}"
    assert [cell.settings for cell in cells(suite)] == [[("size", 5)], [("size", 7)], []]
    assert [cell.settings for cell in cells(suite, settings=[("size", 6)])] == [[("size", 6)], [("size", 6)], []]
    levels = cells("{level: 2, environments: [plan_path, archives], models: [a]}")
    assert [cell.reset_options for cell in levels] == [[("level", 2)], []]


def test_the_papers_games_are_played_on_the_published_test_sets() -> None:
    whole = yaml.safe_load((ROOT / "examples/suites/untrained.yaml").read_text("utf-8"))
    games = [entry for entry in whole["environments"] if entry["env"] in ("sudoku", "sokoban", "plan_path")]
    suite = yaml.safe_dump({"environments": games, "teams": {"best": "oracle"}})
    found = [asked(cell)[0] for cell in cells(suite, limit=None, episode_tokens=None, generated_tokens=None)]
    assert [(bench.chosen.source, len(bench.chosen.instances)) for bench in found] == [("published", 200)] * 6


def test_ten_fixed_designs_and_random_ones_are_compared_with_a_learned_one() -> None:
    fixed, others = (
        read_suite(str(ROOT / f"examples/suites/designed_{name}.yaml")) for name in ("fixed", "baselines")
    )
    assert [(each["env"], each["workflow"]) for each in fixed.environments] == [
        ("math", "designed"),
        ("apps", "designed"),
        ("plan_path", "designed"),
    ]
    designs = {}
    for player in fixed.players:
        (designer,) = [each for each in player.agents if each.startswith("designer=")]
        if designer != "designer=bot:random_design":
            text = (ROOT / designer.removeprefix("designer=scripted:")).read_text("utf-8")
            designs[player.name] = read_design(text, Limits())
    assert len({*designs.values()}) == 10
    assert all(isinstance(each, Design) for each in designs.values())
    single = {(each["env"], each["workflow"]) for each in others.environments}
    assert single == {
        *((env, workflow) for env in ("math", "apps", "plan_path") for workflow in ("single", "designed")),
        ("math", "self_verification"),
        ("archives", "full"),
        ("archives", "designed"),
    }


def test_the_fixed_designs_of_archives_are_played_by_members_with_searches() -> None:
    suite = read_suite(str(ROOT / "examples/suites/designed_archives.yaml"))
    (entry,) = suite.environments
    limits = pettingllms_envs.make(entry["env"], workflow=entry["workflow"], **entry["set"]).workflow.limits
    files = [each.agents[0].removeprefix("designer=scripted:") for each in suite.players[1:]]
    designs = [read_design((ROOT / file).read_text("utf-8"), limits) for file in files]
    assert [[len(member.tools) for member in each.members] for each in designs] == [[2], [2], [1, 1], [1, 1]]
    assert [each.rounds for each in designs] == [1, 2, 1, 1]


def test_the_designs_of_a_run_that_did_best_become_a_suite_of_fixed_teams(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, agents = "--set workflow=designed --set size=3", "designer=bot:random_design member=oracle"
    assert run(f"bench plan_path {settings} --agents {agents} --limit 5 --output runs/a")[0] == 0
    monkeypatch.setattr(
        "sys.argv", ["search_designs.py", "runs/a", "--member", "oracle", "--most", "3", "--output", "found"]
    )
    runpy.run_path(str(ROOT / "examples/search_designs.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("3 designs, and found/suite.yaml")
    monkeypatch.setattr("sys.argv", ["search_designs.py", "runs/none", "--member", "oracle"])
    assert run("bench plan_path --set size=3 --agents oracle --limit 1 --output runs/none")[0] == 0
    with pytest.raises(SystemExit):
        runpy.run_path(str(ROOT / "examples/search_designs.py"), run_name="__main__")
    assert "runs/none has no design that can be read; expected some." in " ".join(capsys.readouterr().err.split())
    assert run("bench found/suite.yaml --limit 2 --output runs/b")[0] == 0
    written = {file.parent.name: files.read(file) for file in Path("runs/b").rglob("episodes.jsonl")}
    assert len(written) == 3
    played = [{row["steps"][0]["reply"] for row in rows} for rows in written.values()]
    assert [len(designs) for designs in played] == [1] * 3  # each plays its own design on all questions
    assert len(set().union(*played)) == 3


def test_a_setting_that_no_environment_has_is_refused_with_their_names(run: Run) -> None:
    status, out, err = run("bench plan_path aime --model m --base-url http://h/v1 --set colour=1")
    assert (status, out) == (2, "")
    assert err.startswith("error: 'colour' was given, but none of plan_path, aime has it; expected a setting")


# ---- Servers --------------------------------------------------------------------------------------------------------


def test_the_server_is_the_alias_or_that_of_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("config/pettingllms").mkdir(parents=True)
    Path("config/pettingllms/servers.toml").write_text(
        '[near]\nbase_url = "http://near/v1"\n[far]\nbase_url = "http://far/v1"\nkey_env = "FAR"\nmax_tokens = 9\n'
    )

    def asked(target: str, **options: Any) -> tuple[str | None, dict[str, Any]]:
        spec = with_server(AgentSpec("api", target, options))
        return spec.target, dict(spec.options)

    assert asked("m@far") == ("m", {"base_url": "http://far/v1", "key_env": "FAR", "max_tokens": 9})
    assert asked("org/m", base_url="near") == ("org/m", {"base_url": "http://near/v1"})
    # A key that is meant for one server does not go to another, and a name may have an @ of its own.
    assert asked("m@near", base_url="http://h/v1", key_env="H") == ("m", {"base_url": "http://near/v1"})
    assert asked("m@2024", base_url="http://h/v1") == ("m@2024", {"base_url": "http://h/v1"})
    with pytest.raises(ValueError, match=r"the server is 'nea'; expected a URL .* near, far\. Did you mean 'near'?"):
        asked("m", base_url="nea")
    with pytest.raises(ValueError, match=r"the model is 'm@nea', but .*servers.toml has no server 'nea'.*'near'"):
        asked("m@nea")
    assert asked("m@nea", base_url="http://h/v1") == ("m@nea", {"base_url": "http://h/v1"})
    assert asked("m@2024") == ("m@2024", {})
    assert asked("m") == ("m", {})
    monkeypatch.setenv("OPENAI_BASE_URL", "http://env/v1")
    assert asked("m") == ("m", {"base_url": "http://env/v1"})
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert asked("m") == ("m", {"base_url": "http://env/v1", "key_env": "OPENAI_API_KEY"})
    assert asked("m", base_url="http://h/v1") == ("m", {"base_url": "http://h/v1"})
    Path("config/pettingllms/servers.toml").write_text("near = 'http://near/v1'")
    with pytest.raises(ValueError, match=r"has near = 'http://near/v1'; expected a table \[near\] with a base_url"):
        asked("m@near")


def test_a_server_of_the_environment_is_asked_with_its_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(key="secret", skill=1.0) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        assert run("bench plan_path --model tiny --limit 2 --output a")[0] == 0
    assert files.read_header(Path("a"))["config"]["agents"]["planner_0"]["key_env"] == "OPENAI_API_KEY"
    assert "secret" not in Path("a/run.json").read_text()


# ---- Playing --------------------------------------------------------------------------------------------------------

FOUR = "bench plan_path sokoban sudoku note_taking --model tiny --model b --model c --limit 4 --concurrency 2"


def without_times(text: str) -> str:
    return re.sub(r"\d+-\d+-\d+|[\d.]+ s\b", "0", text)


@pytest.mark.slow
def test_a_suite_that_is_killed_twice_has_the_leaderboard_of_one_that_was_not(run: Run) -> None:
    with serving(others={"b": 0.9, "c": 0.1}, latency=0.002) as server:
        line = f"{FOUR} --base-url {server.url}"
        assert run(f"{line} --output whole")[0] == 0
        num = len(server.bodies)
        command = [sys.executable, "-m", "pettingllms_envs.cli", *line.split(), "--output", "killed"]
        rng = random.Random()
        for share in (0.3, 0.7):
            server.bodies.clear()
            until = rng.randint(1, int(num * share / 2))
            process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
            give_up = time.monotonic() + 120
            while len(server.bodies) < until and process.poll() is None and time.monotonic() < give_up:
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL, f"it ended before {until} requests"
        server.bodies.clear()
        status, out, _ = run(f"{line} --output killed")
        assert status == 0
        assert len(server.bodies) < num  # it went on where it was
        server.bodies.clear()
        status, again, _ = run(f"{line} --output killed")
        assert (status, len(server.bodies), again.count("(complete)")) == (0, 0, 12)
    for form in ("table", "md", "html"):
        shown = [without_times(run(f"leaderboard {name} --format {form}")[1]) for name in ("whole", "killed")]
        assert shown[0] == shown[1]
    assert "12 runs in killed" in out
    rows = [
        [row["digest"] for folder in sorted(Path(name).iterdir()) for row in files.read(folder)]
        for name in ("whole", "killed")
    ]
    assert rows[0] == rows[1]


def test_a_cell_that_cannot_be_played_says_why_and_leaves_the_others(run: Run) -> None:
    Path("s.yaml").write_text(
        "{limit: 2, environments: [plan_path, sokobn, {env: sudoku, level: 99}, sokoban],"
        " models: [tiny, gone, leaving], teams: {mixed: {drafter: oracle, judge: oracle}}}"
    )
    with serving(others={"leaving": 0.0}, leaves={"leaving": 12}) as server:
        status, out, err = run(f"bench s.yaml --base-url {server.url} --concurrency 1")
    assert (status, err) == (2, "")
    lines = out.splitlines()
    assert "error: sokobn, tiny: no environment 'sokobn'. Did you mean 'sokoban'?" in out
    assert "error: sudoku level=99, tiny: level is 99; expected one of" in out
    assert "error: plan_path, mixed: there is no role 'judge'" in out
    assert "6 runs in outputs/bench/s" in lines
    assert any(
        re.match(r"\[1/6\] plan_path, tiny, 2 of the published test set: .*%.* 2 episodes", line) for line in lines
    )
    assert any(
        re.match(r"\[2/6\] plan_path, gone, .*: error: .*refused \(404\) the model 'gone'", line) for line in lines
    )
    partial = r"\[3/6\] plan_path, leaving, .*: [\d.]+% to [\d.]+% \(partial\), 1 of 2 episodes, errors: 1 refused"
    assert any(re.match(partial, line) for line in lines)
    assert any(re.match(r"\[4/6\] sokoban, tiny, .*: .*%.* 2 episodes", line) for line in lines)
    kept = sorted(re.sub(r"-\d+-.*", "", path.name) for path in Path("outputs/bench/s").iterdir())
    assert kept == ["plan_path_v0-leaving", "plan_path_v0-tiny", "sokoban_v0-tiny", "suite.json"]
    assert re.search(r"plan_path_v0-leaving.*: of 2 episodes 1 are errors; the same command plays them", out)
    below = out.partition("Not in the table")[2]
    assert "* sokobn, tiny: no environment 'sokobn'." in below
    assert "* plan_path, gone: error: " in below
    assert out.endswith("The same command plays what is missing.")


def test_only_what_a_second_try_can_play_is_called_missing(run: Run) -> None:
    status, out, _ = run("bench plan_path nosuch --agents oracle --limit 2 --output r")
    assert status == 2
    assert out.endswith("`pettingllms leaderboard r` shows these runs again; --output leaderboard.html writes a page.")
    out = run("bench plan_path sudoku --agents null --limit 2 --output r")[1]
    assert out.endswith("shows these runs again with the others there; --output leaderboard.html writes a page.")


def test_a_resumed_cell_says_how_many_episodes_it_had(run: Run) -> None:
    run("bench plan_path --agents oracle --limit 4")
    (folder,) = Path("outputs/bench").iterdir()
    kept = (folder / "episodes.jsonl").read_bytes().splitlines(keepends=True)[:3]
    (folder / "episodes.jsonl").write_bytes(b"".join(kept))
    (folder / "report.json").unlink()
    out = run("bench plan_path sudoku --agents oracle --limit 4")[1]
    assert re.search(r"\[1/2\] plan_path, oracle, .*, 4 episodes, wall time .*; 3 of them were there", out)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bench game --agents oracle", "no suite 'game'. Did you mean 'games'? And no environment 'game'."),
        ("bench nosuch.yaml", "there is no suite nosuch.yaml; expected a file of yours, or one of code, cooperation"),
        ("bench smoke games --model m", "the suite smoke was given with games; expected it alone."),
        ("bench plan_path --model a b", "unrecognized arguments: b."),
        ("bench plan_path --model a b", "For several models repeat --model."),
    ],
)
def test_a_mistyped_suite_or_model_is_told_from_an_environment(run: Run, line: str, said: str) -> None:
    status, _, err = run(line)
    assert status == 2
    assert said in err


def test_where_nothing_can_be_played_it_is_one_line_and_nothing_is_left(run: Run) -> None:
    status, out, err = run("bench plan_pth sokobn --model m --base-url http://h/v1")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "error: none of 2 cells can be played. plan_pth, m: no environment 'plan_pth'." in err
    for line in ("bench plan_path games --model m", "bench games", "bench plan_path sokoban --cooperation --model m"):
        assert run(line)[0] == 2
    assert list(Path().iterdir()) == []
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    Path("s.yaml").write_text("{limit: 1, environments: [plan_path], models: [m]}")
    assert run("bench s.yaml --output mine --base-url http://127.0.0.1:9/v1")[0] == 2  # where no server is
    assert [path.name for path in Path("mine").iterdir()] == ["notes.txt"]


def test_a_leaderboard_calls_players_as_their_suite_does(run: Run) -> None:
    Path("s.yaml").write_text(
        "{limit: 2, environments: [plan_path, sudoku], models: [tiny, {model: tiny, name: cold, temperature: 0}],"
        " teams: {half: {drafter: oracle, planner: 'api:tiny'}}}"
    )
    with serving() as server:
        out = run(f"bench s.yaml --base-url {server.url}")[1]
        assert run(f"bench s.yaml --base-url {server.url} --model late")[0] == 2  # nobody serves it
    assert re.search(r"^player plan_path_v0 sudoku_v0 mean\n(cold|half|tiny) ", out, re.M)
    table = run("leaderboard outputs --format csv")[1]
    assert {line.split(",")[1] for line in table.splitlines()[1:]} == {"tiny", "cold", "half"}
    for broken in ("{", "[]", '{"players": 3}'):
        Path("outputs/bench/s/suite.json").write_text(broken)
        assert "tiny (temperature=0.0)" in run("leaderboard outputs")[1]


def test_a_cell_that_raises_what_nobody_expected_leaves_the_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from pettingllms_envs.commands import suite

    watched = suite.watched

    def raising(bench: Any, *rest: Any) -> Any:
        if bench.env == "sokoban_v0":
            raise ZeroDivisionError("oh")
        return watched(bench, *rest)

    monkeypatch.setattr(suite, "watched", raising)
    status, out, _ = run("bench sokoban plan_path --agents oracle --limit 2")
    assert status == 2
    assert "[1/2] sokoban, oracle, 2 of the published test set: error: ZeroDivisionError: oh" in out
    assert "[2/2] plan_path, oracle, 2 of the published test set: 100.0%" in out


def test_two_suites_of_one_name_do_not_share_a_folder(run: Run) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "mine.yaml").write_text("{limit: 1, environments: [plan_path], teams: {best: oracle}}")
    assert run("bench a/mine.yaml")[0] == 0
    before = {path: path.stat().st_mtime_ns for path in Path("outputs").rglob("*")}
    status, _, err = run("bench b/mine.yaml")
    assert (status, err.count("\n")) == (2, 1)
    assert "outputs/bench/mine has the runs of the suite of" in err
    assert {path: path.stat().st_mtime_ns for path in Path("outputs").rglob("*")} == before
    assert run("bench b/mine.yaml --output other")[0] == 0
    assert "other has the runs of the suite of" in run("bench a/mine.yaml --output other")[2]


def test_a_cell_of_another_version_is_refused_and_not_ranked(run: Run) -> None:
    line = "bench plan_path sudoku --agents oracle --limit 2"
    assert run(line)[0] == 0
    (folder,) = Path("outputs/bench").glob("plan_path*")
    head = files.read_header(folder)
    head["versions"]["pettingllms"] = "0.0.1"
    files.write_json(folder / "run.json", head)
    status, out, _ = run(line)
    assert status == 2
    table, _, below = out.partition("Not in the table")
    assert "plan_path_v0" not in table.partition("Leaderboard")[2]
    assert re.search(r"\* plan_path, oracle: error: .* pettingllms is .*, was 0.0.1", below)


def test_the_same_run_named_twice_is_played_once(run: Run) -> None:
    status, out, _ = run("bench plan_path plan_path_v0 --agents oracle --limit 2")
    assert status == 0
    assert "plan_path_v0, oracle is the same run as plan_path, oracle: played once." in out
    assert "1 run in outputs/bench" in out


def test_names_of_models_become_names_of_folders(run: Run) -> None:
    names = ["org/模型 7B|x", "../../etc", "x" * 300, "a*b?c"]
    Path("s.yaml").write_text(json.dumps({"limit": 1, "environments": ["plan_path"], "models": names}))
    with serving(others=dict.fromkeys(names, 1.0)) as server:
        assert run(f"bench s.yaml --base-url {server.url}")[0] == 0
    folders = [path.name for path in Path("outputs/bench/s").iterdir() if path.is_dir()]
    found = [re.fullmatch(r"plan_path_v0-(.+)-\d{4}-\d\d-\d\d-[0-9a-f]+", name) for name in folders]
    assert sorted(match[1] for match in found) == sorted(["模型-7B-x", "etc", "x" * 60, "a-b-c"])
    assert "| org/模型 7B\\|x |" in run("leaderboard outputs/bench/s --format md")[1]


def test_a_run_is_found_by_its_configuration_whatever_its_folder_is_called(run: Run) -> None:
    line = "bench plan_path --agents oracle --limit 3"
    run(line)
    (folder,) = Path("outputs/bench").iterdir()
    digest = folder.name.rpartition("-")[2]
    for earlier in (f"plan_path_v0-oracle-{digest}", f"plan_path_v0-oracle-2020-02-29-{digest}"):
        folder = folder.rename(folder.with_name(earlier))
        kept = (folder / "episodes.jsonl").read_bytes().splitlines(keepends=True)[:1]
        (folder / "episodes.jsonl").write_bytes(kept[0])
        assert run(line)[0] == 0
        assert [path.name for path in Path("outputs/bench").iterdir()] == [earlier]
        assert (folder / "episodes.jsonl").read_bytes().splitlines(keepends=True)[0] == kept[0]


def test_a_full_disk_ends_a_cell_and_not_the_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order = runner.Folder.put_in_order

    def full(folder: Any) -> Any:
        if "plan_path" in folder.path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "episodes.jsonl.new")
        return order(folder)

    line = "bench plan_path sokoban --agents oracle --limit 2"
    with monkeypatch.context() as patched:
        patched.setattr(runner.Folder, "put_in_order", full)
        status, out, _ = run(line)
    assert status == 2
    assert re.search(
        r"\[1/2\] plan_path, oracle, .*: error: .*No space left on device; expected room for the rest", out
    )
    assert "[2/2] sokoban, oracle, 2 of the published test set: 100.0%" in out
    assert run(line)[0] == 0
