"""The page of a run: what is in the file, and what a real headless Chromium makes of it."""

import base64
import gzip
import html
import json
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.cli import main
from pettingllms_envs.core import ToolResult
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.media import write_image
from pettingllms_envs.episodes.prompts import recorded
from pettingllms_envs.evaluation.statistics import studentized_bootstrap, wilson
from pettingllms_envs.observations import Image
from pettingllms_envs.page import build, page
from pettingllms_envs.page.boards import Boards
from pettingllms_envs.page.read import index_of
from pettingllms_envs.page.serve import server
from pettingllms_envs.prompts import read_observation
from pettingllms_envs.sandbox import ToolExecutor


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)  # a PNG file
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --virtual-time-budget=8000 --dump-dom"
)


def blocks(text: str) -> dict[str, Any]:
    found = re.findall(r'<script type="text/plain" id="([\w-]+)">([^<]*)</script>', text)
    return {name: json.loads(gzip.decompress(base64.b64decode(packed))) for name, packed in found}


def shown(file: Path, tmp_path: Path, place: str = "", keys: str = "") -> str:
    """The document after Chromium drew it and the keys were pressed, one after the other."""
    if keys:
        script = (
            "<script>setTimeout(async () => { for (const key of %s) {"
            " dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));"
            " await new Promise((done) => setTimeout(done, 300)); } }, 1500)</script></body>"
        )
        copy = tmp_path / "keys.html"
        copy.write_text(file.read_text("utf-8").replace("</body>", script % json.dumps(keys.split())), "utf-8")
        file = copy
    run = subprocess.run(
        [str(CHROMIUM), *FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}", f"file://{file}{place}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    # The packed data and the libraries say nothing about what is seen.
    return html.unescape(re.sub(r"<script.*?</script>|<style.*?</style>", "", run.stdout, flags=re.S))


def test_the_file_holds_every_episode_and_the_index_says_what_is_in_it(bench: Path) -> None:
    found = blocks(page(bench))
    rows = files.read(bench)
    episodes = [episode for name in ("piece-0", "piece-1") for episode in found[name]]
    assert [[step["reply"] for step in episode["steps"]] for episode in episodes] == [
        [step["reply"] for step in row["steps"]] for row in rows
    ]
    index = dict(zip(found["index"]["names"], found["index"]["columns"], strict=True))
    assert index["success"] == [row["success"] for row in rows]
    assert index["error"][3] == "unreachable: connection reset"
    assert index["num_steps"] == [len(row["steps"]) for row in rows]
    assert found["run"]["groups"] == ["sokoban_v0, level 1", "sokoban_v0, level 2"]


def test_an_error_is_in_no_rate(bench: Path) -> None:
    rows = files.read(bench)
    solved = [row["success"] for row in rows if row["error"] is None]
    assert len(solved) == 23
    overall = blocks(page(bench))["run"]["groups_table"][0]
    assert (overall["name"], overall["n"], overall["value"]) == ("all", 23, sum(solved) / 23)
    assert (overall["low"], overall["high"]) == pytest.approx(wilson(sum(solved), 23))


def test_samples_of_one_problem_count_as_one(bench: Path) -> None:
    rows = [row for row in files.read(bench) if row["error"] is None][:4]
    made = [
        {**row, "instance": {**row["instance"], "index": index, "options": {}}, "sample": sample, "success": success}
        for index, (row, successes) in enumerate(zip(rows, ((1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0)), strict=True))
        for sample, success in enumerate(map(bool, successes))
    ]
    files.write_rows(bench / "episodes.jsonl", made)
    run = blocks(page(bench))["run"]
    rate = run["groups_table"][0]
    assert rate["n"] == 12
    assert (rate["low"], rate["high"]) == pytest.approx(wilson(2, 4))  # of four problems, not of twelve episodes
    for agent in rows[0]["returns"]:
        card = next(card for card in run["cards"] if card["name"] == f"return of {agent}")
        shown = [float(end) for end in card["note"].removeprefix("95%: ").split(" to ")]
        of_problems = studentized_bootstrap([row["returns"][agent] for row in rows])  # as in the report
        assert shown == pytest.approx(of_problems, rel=0.01)


def test_success_of_a_tree_is_said_to_be_that_of_the_best_candidates(rollouts: Path, bench: Path) -> None:
    of_tree, plain = ([card["name"] for card in blocks(page(run))["run"]["cards"]] for run in (rollouts, bench))
    assert of_tree[1] == "success, best of 4 played on"
    assert plain[1] == "success"


def test_the_parts_of_an_episode_are_summed_by_scope() -> None:
    parts = [{"team": {"progress": 0.5}}, {"team": {"progress": 0.25}, "planner": {"format": -0.2}}, None]
    row = {
        "instance": {"index": 4, "env": "sokoban_v0", "seed": 9, "options": {}, "problem": "apps/7"},
        "sample": 1,
        "steps": [{"agent": "planner_0", "parts": each, "tokens": {"completion": 3}} for each in parts],
        "success": None,
        "error": None,
        "returns": None,
        "outcome": {"success": False, "moves": 2},
    }
    name, group, problem, success, error, steps, tokens, returns, summed, unreadable, step, about, sampled = index_of(
        row
    )
    assert (name, group, problem) == ("5: apps/7, sample 2", "sokoban_v0", 4)
    assert (success, error, steps, tokens, returns, step) == (None, None, 3, 9, {}, None)
    assert summed == {"team.progress": 0.75, "planner.format": -0.2}
    assert unreadable
    assert (about, sampled) == ("success=False moves=2", None)


def test_boards_are_those_that_were_played(bench: Path) -> None:
    row = next(row for row in files.read(bench) if row["success"])
    boards = Boards({"kind": "rollouts", "config": {}})
    pictures = boards.of(row)
    assert len(pictures) == len(row["steps"]) + 1
    first, last = pictures[0], pictures[-1]
    assert first is not None
    assert last is not None
    assert [len(line) for line in first] == [6] * 6
    shapes = [[boards.palette[tile]["shape"] for tile in line] for line in last]
    assert sum(shape == "square" for line in shapes for shape in line) == 1  # the box
    assert first != last


def test_a_board_is_left_out_where_the_replies_lead_elsewhere(bench: Path) -> None:
    row = next(row for row in files.read(bench) if len(row["steps"]) >= 4)
    row["steps"][2]["state"] = "0" * 64
    found = [board is not None for board in Boards({"kind": "rollouts", "config": {}}).of(row)]
    assert found == [True, True] + [False] * (len(row["steps"]) - 1)


def test_boards_of_roles_with_tools_are_drawn_without_calling_the_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter(("1", "2"))
    monkeypatch.setattr(ToolExecutor, "__call__", lambda self, request: ToolResult(next(results)))
    env = pettingllms_envs.make("plan_path_v0", size=4, role_tools={"planner": ["python"]})
    env.reset(seed=0)
    steps = []
    for reply in ("The draft.", "```call python\nprint(1)\n```", env.oracle()):
        steps.append({"agent": env.agent_selection, "state": env.state_hash(), "reply": reply})
        env.step(reply)
    row = {"instance": {"env": "plan_path_v0", "seed": 0, "options": {}}, "steps": steps}
    pictures = Boards({"kind": "bench", "config": {"settings": env.metadata["settings"]}}).of(row)
    assert [picture is not None for picture in pictures] == [True] * 4
    assert next(results) == "2"  # the page called no tool


@pytest.mark.parametrize(("fields", "drawn"), [({}, [True] * 3), ({"state_form": 3}, [False] * 3)])
def test_states_of_another_form_than_the_environments_hide_no_board(fields: dict[str, int], drawn: list[bool]) -> None:
    env = pettingllms_envs.make("plan_path_v0", size=4, workflow="describer_solver")
    env.reset(seed=0)
    steps = []
    for _ in range(2):
        steps.append({"agent": env.agent_selection, "state": "0" * 64, "reply": env.oracle()})
        env.step(steps[-1]["reply"])
    row = {"instance": {"env": "plan_path_v0", "seed": 0, "options": {}}, "steps": steps, **fields}
    pictures = Boards({"kind": "bench", "config": {"settings": env.metadata["settings"]}}).of(row)
    assert [picture is not None for picture in pictures] == drawn


def test_other_settings_than_the_runs_draw_no_board(bench: Path) -> None:
    row = files.read(bench)[0]
    assert Boards({"kind": "bench", "config": {"env": "sokoban_v0", "settings": {"num_turns": 3}}}).of(row) == [
        None
    ] * (len(row["steps"]) + 1)


def test_an_unknown_environment_has_no_boards(bench: Path) -> None:
    row = files.read(bench)[0]
    row["instance"]["env"] = "strange_v3"
    assert Boards({"kind": "rollouts", "config": {}}).of(row) == [None] * (len(row["steps"]) + 1)


def test_what_a_model_wrote_is_no_part_of_the_source(bench: Path) -> None:
    text = page(bench)
    assert "taken" in str(blocks(text))
    assert "taken" not in text
    assert "connect-src" not in text
    assert "default-src 'none'" in text


def test_a_folder_without_a_run_is_refused(tmp_path: Path, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(tmp_path / "nothing")]) == 2
    assert "run.json: No such file or directory" in capsys.readouterr().err
    (bench / "episodes.jsonl").write_text("")
    assert main(["view", str(bench)]) == 2
    assert "has no episode yet; expected at least one" in capsys.readouterr().err
    assert main(["view", str(bench), "--serve", "--output", "a.html"]) == 2
    assert "--serve got --output" in capsys.readouterr().err


def test_a_port_that_is_taken_or_is_none_is_refused(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["view", str(bench), "--serve", "--port", port]) == 2
    expected = "expected a free one, 0 to 65535. Give --port 0 for any."
    assert capsys.readouterr().err == f"error: --port is {port} (Address already in use); {expected}\n"
    assert main(["view", str(bench), "--serve", "--port", "99999"]) == 2
    assert capsys.readouterr().err == f"error: --port is 99999 (no such port); {expected}\n"


def test_the_command_writes_the_page(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(bench)]) == 0
    assert str(bench / "page.html") in capsys.readouterr().out
    assert (bench / "page.html").read_text("utf-8") == page(bench)
    (bench / "page.html").unlink()
    assert main(["view", str(bench / "episodes.jsonl")]) == 0
    assert (bench / "page.html").exists()


def test_the_server_shows_a_run_that_grows_and_answers_this_machine_alone(bench: Path) -> None:
    rows = files.read(bench)
    files.write_rows(bench / "episodes.jsonl", rows[:2])
    shown_there = server(bench / "episodes.jsonl", lambda: page(bench))
    address = f"http://127.0.0.1:{shown_there.server_address[1]}/"
    threading.Thread(target=shown_there.serve_forever, daemon=True).start()
    try:
        numbers = []
        for so_far in (rows[:2], rows):
            files.write_rows(bench / "episodes.jsonl", so_far)
            with urllib.request.urlopen(address, timeout=20) as answer:
                numbers.append(len(blocks(answer.read().decode("utf-8"))["index"]["columns"][0]))
        assert numbers == [2, 24]
        for wrong in (
            urllib.request.Request(address, headers={"Host": "evil.example"}),
            urllib.request.Request(address + "../episodes.jsonl"),
        ):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(wrong, timeout=20)
    finally:
        shown_there.shutdown()
        shown_there.server_close()


@in_a_browser
def test_the_summary_is_drawn(bench: Path, tmp_path: Path) -> None:
    seen = shown(build(bench), tmp_path)
    rate = blocks(page(bench))["run"]["groups_table"][0]["value"]
    assert "sokoban_v0: bench" in seen
    assert f"{100 * rate:.1f}%" in seen
    assert "1 error, no verdict" in seen
    assert seen.count("<figure>") == 4  # success, parts, steps, tokens
    assert seen.count('aria-label="dot"') == 2


@in_a_browser
def test_an_episode_is_a_conversation_with_boards_and_hostile_text_stays_text(bench: Path, tmp_path: Path) -> None:
    rows = files.read(bench)
    at = next(at for at, row in enumerate(rows) if any("taken" in step["reply"] for step in row["steps"]))
    seen = shown(build(bench), tmp_path, f"#/{at + 1}")
    assert seen.count('aria-label="board"') == len(rows[at]["steps"]) + 1
    assert "document.title = 'taken'</script><b>bold</b>" in seen
    assert "<title>taken" not in seen
    assert rows[at]["steps"][0]["prompt"]["text"].splitlines()[-1] in seen


@in_a_browser
def test_a_reply_without_an_end_is_cut_until_it_is_asked_for(bench: Path, tmp_path: Path) -> None:
    rows = files.read(bench)
    rows[0]["steps"][0]["reply"] = "A" * 1_000_000
    files.write_rows(bench / "episodes.jsonl", rows)
    seen = shown(build(bench), tmp_path, "#/1")
    assert "… all 1,000,000 characters" in seen
    assert len(seen) < 300_000
    assert "A" * 10_000 in seen


@in_a_browser
def test_what_is_too_different_to_compare_does_not_stop_the_page(bench: Path, tmp_path: Path) -> None:
    rows = files.read(bench)
    at = next(at for at, row in enumerate(rows) if len({step["agent"] for step in row["steps"]}) < len(row["steps"]))
    for number, step in enumerate(rows[at]["steps"]):
        step["reply"] = "\n".join(str(line * 2 + number % 4 // 2) for line in range(30_000))
    files.write_rows(bench / "episodes.jsonl", rows)
    seen = shown(build(bench), tmp_path, f"#/{at + 1}", keys="d")
    assert "(too long, or too different, to tell the changes)" in seen


@in_a_browser
def test_the_rate_of_the_list_is_of_problems_with_a_verdict(bench: Path, tmp_path: Path) -> None:
    row = next(row for row in files.read(bench) if row["success"])
    made = [
        {**row, "instance": {**row["instance"], "index": index}, "sample": sample, "success": success}
        for index, successes in enumerate(((True, True), (False, False), (None, None)))
        for sample, success in enumerate(successes)
    ]
    files.write_rows(bench / "episodes.jsonl", made)
    low, high = wilson(1, 2)
    seen = re.sub(r"<[^>]*>", "", shown(build(bench), tmp_path))
    assert f"6 episodes, 50.0% solved [{100 * low:.1f}%, {100 * high:.1f}%]" in seen


@in_a_browser
def test_steps_are_counted_in_whole_numbers(bench: Path, tmp_path: Path) -> None:
    rows = [row for row in files.read(bench) if len(row["steps"]) in (2, 8)]
    assert {len(row["steps"]) for row in rows} == {2, 8}
    files.write_rows(bench / "episodes.jsonl", rows)
    seen = shown(build(bench), tmp_path)
    assert ">8</text>" in seen
    assert "8.0" not in re.sub(r"<[^>]*>", " ", seen)


@in_a_browser
def test_steps_that_are_all_alike_are_not_drawn(bench: Path, tmp_path: Path) -> None:
    rows = [row for row in files.read(bench) if len(row["steps"]) == 8]
    files.write_rows(bench / "episodes.jsonl", rows)
    assert "<h2>Steps</h2>" not in shown(build(bench), tmp_path)


@in_a_browser
def test_a_rollout_has_its_tree_of_candidates(rollouts: Path, tmp_path: Path) -> None:
    row = files.read(rollouts)[0]
    seen = shown(build(rollouts), tmp_path, "#/1")
    assert seen.count('class="node"') == 4 * len(row["steps"])
    assert seen.count("edge played") == len(row["steps"])
    assert seen.count("candidate chosen") == len(row["steps"])
    summary = shown(build(rollouts), tmp_path)
    assert "Success of the chosen path, by training step" in summary


@in_a_browser
def test_keys_move_through_episodes_steps_and_views(bench: Path, tmp_path: Path) -> None:
    rows = files.read(bench)
    at = next(at for at, row in enumerate(rows) if len(row["steps"]) >= 4)
    file = build(bench)
    seen = shown(file, tmp_path, keys=f"{'j ' * (at + 1)}ArrowRight ArrowRight d")
    assert re.search(r'<section class="step now" id="step-2"', seen)
    assert f"{at + 1}: seed {at}</h1>" in seen
    assert "changes since this agent's last reply" in seen
    assert "dialog open" in shown(file, tmp_path, keys="?")
    assert 'data-theme="dark"' in shown(file, tmp_path, keys="t")
    assert "<figure>" in shown(file, tmp_path, keys="j s")


@in_a_browser
@pytest.mark.parametrize("number", [1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_thousands_of_episodes_show_no_more_rows_than_fit(
    number: int, many: Callable[[int], Path], tmp_path: Path
) -> None:
    file = build(many(number))
    assert file.stat().st_size < number / 5000 * 12 * 2**20
    seen = shown(file, tmp_path, f"#/{number - 1}")
    assert f"{number:,} episodes" in seen
    assert 5 < seen.count('role="option"') < 60
    assert f"{number - 1}: seed 38</h1>" in seen


@in_a_browser
def test_images_and_tool_calls_of_a_prompt_are_shown_and_what_they_say_stays_text(bench: Path, tmp_path: Path) -> None:
    hostile = "</script><script>document.title = 'taken'</script>"
    call = {"id": "c00000000", "type": "function", "function": {"name": "add", "arguments": {"program": hostile}}}
    messages = [
        {"role": "user", "content": ["Look.", Image(PIXEL, f'alt "{hostile}')]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": f"42 {hostile}", "tool_call_id": "c00000000"},
    ]
    rows = files.read(bench)[:1]
    rows[0]["tools"] = [[{"type": "function", "function": {"name": "add", "description": hostile}}]]
    rows[0]["steps"][0] |= recorded(read_observation({"messages": messages}, agent="a").messages) | {"tools": 0}
    files.write_rows(bench / "episodes.jsonl", rows)
    write_image(bench, Image(PIXEL, ""))
    seen = shown(build(bench), tmp_path, "#/1")
    assert seen.count(f'src="data:image/png;base64,{base64.b64encode(PIXEL).decode("ascii")}"') == 2
    assert f'alt="alt "{hostile}"' in seen
    for words in ("calls add c00000000", f"program: {hostile}", "<b>tool c00000000</b>", f"42 {hostile}", "1 tool<"):
        assert words in seen
    assert "<title>taken" not in seen


def test_designs_are_read_for_the_page_and_others_say_why_not(designs: Path) -> None:
    (first, *members), (unreadable,) = (episode["steps"] for episode in blocks(page(designs))["piece-0"])
    assert first["design"]["rounds"] == 2
    assert [(each["reads"], each["tools"]) for each in first["design"]["members"]] == [
        ([], []),
        ([0], ["archive_0"]),
        ([0, 1], []),
    ]
    assert [each["design"]["members"][0]["job"] for each in first["candidates"]] == ["Find the source.", "Go."]
    went_on = first["candidates"][1]["continuations"]
    assert [(each["return"], [step["agent"] for step in each["steps"]]) for each in went_on] == [
        (1.25, ["member_0"]),
        (-0.01, ["member_0"]),
    ]
    assert {step["design"] for step in members} == {None}
    assert unreadable["design"] == {"unreadable": "it is not one JSON object"}


def test_a_run_whose_environment_cannot_be_made_here_has_a_page_without_designs(designs: Path) -> None:
    header = files.read_header(designs)
    header["config"]["settings"]["palette"] = ["a tool of elsewhere"]
    files.write_json(designs / "run.json", header)
    episodes = blocks(page(designs))["piece-0"]
    assert [episode["steps"][0]["design"] for episode in episodes] == [None, None]
