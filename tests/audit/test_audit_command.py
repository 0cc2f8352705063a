"""`pettingllms audit`, as a person in a terminal meets it, on records, benchmarks and TRL's tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs import cli
from pettingllms_envs.audit.designs import UnreadableDesigns
from pettingllms_envs.episodes import files
from pettingllms_envs.research import influence
from rollouts import NOT_RECORDED_EARLIER, Row, tree_header, tree_rows


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The exit status, the output with single spaces, and the error output, of a command in an empty folder."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def command(line: str) -> tuple[int, str, str]:
        status = cli.main(line.split())
        out, err = capsys.readouterr()
        return status, "\n".join(" ".join(each.split()) for each in out.splitlines()), err

    return command


def write(folder: Path, rows: Sequence[Row], header: Row | None = None) -> None:
    folder.mkdir(parents=True)
    files.write_json(folder / "run.json", header or tree_header())
    (folder / "episodes.jsonl").write_text("".join(map(files.write_line, rows)))


def test_a_sound_training_is_audited_by_its_output_folder(run: Run) -> None:
    write(Path("out/rollouts"), tree_rows())
    Path("out/checkpoint-8").mkdir()
    log = [{"entropy": 1.0, "reward": 0.5}] * 6
    Path("out/checkpoint-8/trainer_state.json").write_text(json.dumps({"log_history": log}))
    status, out, _ = run("audit out --json findings.json")
    assert status == 0
    assert out.startswith("out/rollouts: 16 episodes of a training\n")
    assert "mixed prompts passed 64 groups: one prompt in each." in out
    assert "falling entropy passed nats per token, first to last third: 1 -> 1; mean reward 0.5 -> 0.5." in out
    assert out.endswith("0 checks failed, 0 warnings.")
    found = json.loads(Path("findings.json").read_text())
    statuses = {finding["name"]: finding["status"] for finding in found["findings"]}
    for name in NOT_RECORDED_EARLIER:
        assert statuses.pop(name) == "not recorded"
    assert set(statuses.values()) == {"passed"}
    for place in ("out/rollouts", "out/rollouts/episodes.jsonl"):
        assert "falling entropy passed" in run(f"audit {place}")[1]


def test_a_failed_check_ends_with_status_1_and_says_where_and_what_to_do(run: Run) -> None:
    rows = tree_rows()
    del rows[3]["steps"][1]["candidates"][2:]
    write(Path("out"), rows)
    status, out, _ = run("audit out")
    assert status == 1
    assert "missing candidates failed 1 of 64 groups are of another size (2 candidates, expected 4)." in out
    assert "missing candidates: First: line 4: step 2, instance 5, planner_0, turn 1. A smaller group has" in out
    assert out.endswith("1 check failed, 0 warnings.")
    assert "falling entropy not recorded" in out


def test_a_warning_alone_ends_with_status_0(run: Run) -> None:
    rows = tree_rows()
    for each in (c for row in rows for step in row["steps"][::2] for c in step["candidates"]):
        each["reply"] = "ok"
    for step in (step for row in rows for step in row["steps"][::2]):
        step["reply"] = "ok"
    write(Path("out"), rows)
    status, out, _ = run("audit out")
    assert status == 0
    assert "lazy role warning 'ok' is 128 of 128 replies of drafter" in out
    assert out.endswith("0 checks failed, 1 warning.")


def test_a_damaged_line_is_one_error(run: Run) -> None:
    write(Path("out"), tree_rows())
    with open("out/episodes.jsonl", "a") as stream:
        stream.write("{]\n")
    status, out, err = run("audit out")
    assert (status, out) == (2, "")
    assert err.startswith("error: out/episodes.jsonl, line 17 is no episode (it is not JSON); expected")
    assert err.count("\n") == 1


def damage(rows: list[Row], at: str, value: Any) -> list[Row]:
    rows[2]["steps"][0]["candidates"][1][at] = value
    return rows


@pytest.mark.parametrize(("at", "value"), [("reply", None), ("advantage", "much"), ("reward", [1])])
def test_a_candidate_that_is_none_is_one_error(run: Run, at: str, value: Any) -> None:
    write(Path("out"), damage(tree_rows(), at, value))
    status, _, err = run("audit out")
    assert status == 2
    assert f"line 3: steps[0].candidates[1].{at} is {value!r}" in err


def test_a_folder_without_a_run_is_one_error(run: Run) -> None:
    Path("out").mkdir()
    status, _, err = run("audit out")
    assert status == 2
    assert "error: out has no run.json with episodes.jsonl, no rollouts/ with them" in err
    assert run("audit nowhere")[0] == 2


# ---- Benchmarks and replays -----------------------------------------------------------------------------------------


def test_a_benchmarks_roles_are_replaced_and_their_influence_is_told(run: Run) -> None:
    run("bench plan_path --agents oracle --limit 6 --output bench")
    status, out, _ = run("audit bench --replay")
    assert status == 0
    assert "wrong sums of advantages not applicable a benchmark has no advantages." in out
    line = next(line for line in out.splitlines() if line.startswith("no influence"))
    # The oracle's drafter and planner each find the way: a drafter who says nothing loses 0.2 of its own return.
    assert line.startswith("no influence passed drafter silent -0.10 [-0.10, -0.10], with a reply from elsewhere")
    assert "(6 of 6 changed a return); planner silent -" in line


def lines_of_bench() -> list[str]:
    return Path("bench/episodes.jsonl").read_text().splitlines(keepends=True)


def as_it_was(lines: list[str]) -> list[str]:
    return lines


def without_an_error(lines: list[str]) -> list[str]:
    """As a killed command leaves it that was to play the errors of an earlier one again."""
    report = json.loads(Path("bench/report.json").read_text())
    report["episodes"] |= {"ended": 5, "errors": {"environment": 1}}
    files.write_json(Path("bench/report.json"), report)
    return lines[:5]


def without_a_report(lines: list[str]) -> list[str]:
    """As a killed command leaves it."""
    Path("bench/report.json").unlink()
    return [lines[3], lines[0], lines[2], lines[1][:50]]


@pytest.mark.parametrize("sound", [as_it_was, without_an_error, without_a_report], ids=lambda sound: sound.__name__)
def test_a_sound_benchmark_has_no_finding(run: Run, sound: Callable[[list[str]], list[str]]) -> None:
    run("bench plan_path --agents oracle --limit 6 --output bench")
    Path("bench/episodes.jsonl").write_text("".join(sound(lines_of_bench())))
    status, out, _ = run("audit bench")
    assert status == 0
    assert out.endswith("0 checks failed, 0 warnings.")


def first_twice(lines: list[str]) -> list[str]:
    return [*lines, lines[0]]


def half_gone(lines: list[str]) -> list[str]:
    return lines[:3]


def returns_changed(lines: list[str]) -> list[str]:
    row = json.loads(lines[2])
    row["returns"] = {agent: value + 1 for agent, value in row["returns"].items()}
    return [*lines[:2], files.write_line({**row, "digest": files.digest(row)}), *lines[3:]]


def reply_changed(lines: list[str]) -> list[str]:
    row = json.loads(lines[2])
    row["steps"][0]["reply"] += " "
    return [*lines[:2], files.write_line(row), *lines[3:]]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (first_twice, "repeated episodes failed 1 of 7 episodes are repeated (it is there already)."),
        (half_gone, "missing episodes failed 3 of 6 episodes that the run says it wrote."),
        (returns_changed, "wrong returns failed 2 of 12 returns are not the sums of their episodes' rewards"),
        (reply_changed, "changed rows failed 1 of 6 rows were changed after they were written"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_damaged_benchmark_fails(run: Run, damage: Callable[[list[str]], list[str]], said: str) -> None:
    run("bench plan_path --agents oracle --limit 6 --output bench")
    Path("bench/episodes.jsonl").write_text("".join(damage(lines_of_bench())))
    status, out, _ = run("audit bench")
    assert status == 1
    assert said in out
    assert out.endswith("1 check failed, 0 warnings.")


def test_a_role_whose_replies_change_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    env = Deaf()
    monkeypatch.setattr(influence.pettingllms_envs, "make", lambda name, **settings: env)
    rows = [
        {
            "instance": {"index": i, "env": "deaf_v0", "seed": i, "options": {}, "problem": None},
            "sample": 0,
            "steps": [{"agent": "talker_0", "reply": f"hello {i}"}, {"agent": "doer_0", "reply": "do"}],
            "returns": {"talker_0": 1.0, "doer_0": 1.0},
            "error": None,
        }
        for i in range(5)
    ]
    found = influence.of_roles({"kind": "bench", "config": {"env": "deaf_v0"}}, lambda: rows, num_replies=3)
    assert not isinstance(found, str)
    assert (found["talker"].num, found["talker"].num_changed, found["talker"].silence) == (3, 0, 0.0)
    assert (found["doer"].num, found["doer"].num_changed, found["doer"].silence) == (3, 3, -1.0)


class Deaf:
    """Pays both for the doer's "do", whatever the talker says."""

    metadata = {"name": "deaf_v0"}

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = ["talker_0", "doer_0"]
        self.agent_selection = "talker_0"
        self.terminations = self.truncations = dict.fromkeys(self.agents, False)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.infos: dict[str, Any] = {}

    @property
    def unwrapped(self) -> Deaf:
        return self

    def observe(self, agent: str) -> str:
        return "Go."

    def step(self, action: str | None) -> None:
        if action is None:
            self.agents = []
            return
        is_last = self.agent_selection == "doer_0"
        self.rewards = dict.fromkeys(self.agents, float(is_last and action == "do"))
        self.terminations = dict.fromkeys(self.agents, is_last)
        self.agent_selection = "doer_0"


# ---- TRL's tables ---------------------------------------------------------------------------------------------------


def table(folder: Path, step: int, *, shift: float = 0.0, generation: int | None = None) -> None:
    """A table as TRL's `log_completions=True` writes it: chat messages, one reward function, two prompts of four."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    from pyarrow import parquet

    generation = step if generation is None else generation
    rows = [
        {
            "step": step,
            "prompt": [{"role": "user", "content": f"{prompt} {generation}"}],
            "completion": [{"role": "assistant", "content": f"{prompt} {generation} {k}"}],
            "reward_len": (1.0, 0.0, 0.0, 1.0)[k],
            "advantage": (0.866, -0.866, -0.866, 0.866)[k] + shift,
        }
        for prompt in ("x", "y")
        for k in range(4)
    ]
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "completions" / f"completions_{step:05d}.parquet")


def test_tables_of_trl_are_audited_as_far_as_they_go(run: Run) -> None:
    for step in range(1, 9):
        table(Path("out"), step, generation=(step + 1) // 2)  # each generation is in two tables
    status, out, _ = run("audit out")
    assert status == 0
    assert out.startswith("out/completions: 32 completions in 8 tables of a training by TRL\n")
    assert "mixed prompts passed 8 groups: one prompt in each." in out
    assert "wrong sums of advantages passed 8 groups" in out
    for name in ("changed state", "cut-off replies", "changing length", "falling entropy"):
        assert f"{name} not recorded" in out or f"{name} not applicable fewer than 6 steps" in out
    assert "not recorded the rows do not say which state" in out


def test_wrong_sums_in_a_table_of_trl_fail(run: Run) -> None:
    table(Path("out"), 1)
    table(Path("out"), 2, shift=0.2)
    status, out, _ = run("audit out/completions")
    assert status == 1
    assert "wrong sums of advantages failed 2 of 4 groups do not sum to zero (+0.8 over 4 advantages)." in out
    assert "First: completions_00002.parquet: step 2, instance 0, model, turn 0." in out


def test_tables_with_another_group_size_than_said_fail(run: Run) -> None:
    table(Path("out"), 1)
    assert run("audit out --num-generations 4")[0] == 0
    status, out, _ = run("audit out --num-generations 8")
    assert status == 1
    assert "mixed prompts failed 1 of 1 group compare replies to different prompts (2 prompts for 8" in out


def test_replaying_tables_is_refused(run: Run) -> None:
    table(Path("out"), 1)
    status, _, err = run("audit out --replay")
    assert status == 2
    assert "--replay got completions tables; expected a record" in err


def test_a_damaged_table_is_one_error(run: Run) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra `data`")
    Path("out").mkdir()
    Path("out/completions_00001.parquet").write_bytes(b"PAR1 no")
    status, _, err = run("audit out")
    assert status == 2
    assert "error: out/completions_00001.parquet is no parquet file (" in err


def failed(kind: str) -> Row:
    return {"error": {"kind": kind, "message": "gone"}, "end": "error", "success": None, "outcome": None}


@pytest.mark.parametrize(
    ("num_failed", "status", "said"),
    [
        (0, 0, "episodes with errors passed 16 episodes: none ended with an error."),
        (
            7,
            0,
            "episodes with errors warning 7 of 16 episodes ended with an error (environment 7) and are in no rate.",
        ),
        (8, 1, "episodes with errors failed 8 of 16 episodes ended with an error (environment 8) and are in no rate."),
    ],
)
def test_episodes_that_ended_with_an_error_are_told_and_half_of_them_fail(
    run: Run, num_failed: int, status: int, said: str
) -> None:
    rows = tree_rows()
    assert len(rows) == 16
    write(Path("out"), [{**row, **failed("environment")} if i < num_failed else row for i, row in enumerate(rows)])
    found, out, _ = run("audit out")
    assert said in out
    assert found == status


def test_designs_that_stay_unreadable_are_a_warning_and_other_runs_do_not_speak_of_designs(run: Run) -> None:
    rows = tree_rows()
    for number, row in enumerate(rows):
        row["outcome"] = {"unreadable_design": number != 3}
    write(Path("designed"), rows)
    status, out, _ = run("audit designed")
    assert status == 0
    assert "unreadable designs warning 94% of 16 designs, 94% of the latest." in out  # 15 of 16
    assert "unreadable designs: Warm the designer up on readable designs" in out
    write(Path("other"), tree_rows())
    assert "design" not in run("audit other")[1]


def test_all_designs_of_a_tree_are_counted_and_not_only_the_one_that_went_on() -> None:
    candidates = [{"parts": {"designer": {"format": -0.2}}}] * 3 + [{"parts": {"designer": {"size": -0.02}}}]
    designs = UnreadableDesigns()
    for _ in range(4):
        designs.observe({"outcome": {"unreadable_design": False}, "steps": [{"candidates": candidates}, {}]})
    (finding,) = designs.conclude()
    assert (finding.status, finding.text) == ("warning", "75% of 16 designs, 75% of the latest.")


@pytest.mark.parametrize(
    ("unreadable", "status"),
    [
        ([True] * 15, "not applicable"),
        ([True] * 8 + [False] * 8, "passed"),  # half
        ([True] * 200 + [False] * 64, "passed"),  # it has learned
        ([False] * 100 + [True] * 64, "passed"),  # not more than half in all
        ([True] * 9 + [False] * 7, "warning"),
    ],
)
def test_designs_are_unreadable_for_good_if_most_are_in_all_and_of_the_latest(
    unreadable: list[bool], status: str
) -> None:
    designs = UnreadableDesigns()
    for each in unreadable:
        designs.observe({"outcome": {"unreadable_design": each}, "steps": [{}]})
    designs.observe({"outcome": None, "steps": []})
    (finding,) = designs.conclude()
    assert finding.status == status
