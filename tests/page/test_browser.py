"""The pages of a training, a leaderboard and an index, and the site, in a real browser as wide as a desk or a phone.

npm install --prefix build/browser axe-core@4 playwright-core@1
make docs && make test WORKERS=0 ARGS="-m browser"
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs import cli
from pettingllms_envs.page import build


pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "build" / "browser" / "node_modules"
SITE = ROOT / "build" / "site"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (1440, 390)


def visit(*visits: dict[str, Any]) -> list[dict[str, Any]]:
    """What `visit.cjs` finds on each page."""
    if CHROMIUM is None or not (MODULES / "axe-core").is_dir():
        pytest.skip("needs Chromium and `npm install --prefix build/browser axe-core@4 playwright-core@1`")
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("visit.cjs"))],
        input=json.dumps({"program": CHROMIUM, "visits": visits}),
        env=os.environ | {"NODE_PATH": str(MODULES)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def expect_sound(found: dict[str, Any], *, apart_from: tuple[str, ...] = ()) -> None:
    """No error, no request elsewhere, nothing beside the screen, and nothing that axe objects to (WCAG 2.1 AA)."""
    assert found["errors"] == []
    assert found["requests"] == []
    assert found["overflow"] <= 0
    assert [words for words in found["violations"] if not words.startswith(apart_from)] == []


@pytest.fixture
def training(rollouts: Path) -> str:
    """The address of the page of a training with two evaluations."""
    agents = {f"eval_agent/{agent}/reward": 0.25 for agent in ("drafter_0", "planner_0")}
    log = [
        {"step": step, "eval_runtime": 1.0, "eval_outcome/success": rate, "eval_rollout/instances": 200.0, **agents}
        for step, rate in ((0, 0.1), (2, 0.6))
    ]
    (rollouts.parent / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in log))
    return build(rollouts).as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_a_training_is_sound(training: str, width: int, dark: bool) -> None:
    read = "document.querySelector('.learned p')?.textContent"
    summary, episode = visit(
        {"url": training, "width": width, "dark": dark, "read": read},
        {"url": f"{training}#/2", "width": width, "dark": dark},
    )
    expect_sound(summary)
    expect_sound(episode)
    assert summary["read"].startswith("The team learned: success went from 10.0% (step 0) to 60.0% (step 2).")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_designs_is_sound_and_a_member_leads_to_its_reply(designs: Path, width: int, dark: bool) -> None:
    page = {"url": f"{build(designs).as_uri()}#/1", "width": width, "dark": dark}
    (found,) = visit({**page, "keys": ["Tab"] * 24})
    reached = [words.split(",")[0] for words in found["focus"]]
    member, design = (reached.index(words) + 1 for words in ("button member_1", "summary played to the end 2 times"))
    opened, moved = visit(
        {**page, "keys": [*["Tab"] * design, "Enter", "Tab", "Enter"], "read": "document.body.innerText"},
        {**page, "keys": [*["Tab"] * member, "Enter"], "read": "document.querySelector('.step.now').id"},
    )
    for each in (found, opened, moved):
        expect_sound(each)
    assert opened["focus"][-1] == "summary prompt"
    for words in (
        "continuation 1, return 1.25",
        "<script>document.title = 'taken'</script>",
        "reads member_0, member_1",
    ):
        assert words in opened["read"]
    assert moved["read"] == "step-2"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_of_a_leaderboard_and_an_index_are_sound(
    width: int, dark: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for agents in ("oracle", "null"):
        assert cli.main(f"bench plan_path sudoku --agents {agents} --limit 3 --output runs".split()) == 0
    for command in ("leaderboard", "runs"):
        assert cli.main([command, "runs", "--output", f"{command}.html"]) == 0
        (found,) = visit({"url": (tmp_path / f"{command}.html").as_uri(), "width": width, "dark": dark})
        expect_sound(found)


CUT = "[...document.querySelectorAll('.row')].filter((row) => row.scrollHeight > row.clientHeight + 1).length"


@pytest.mark.parametrize("width", WIDTHS)
def test_no_row_of_the_list_is_cut(training: str, width: int) -> None:
    (found,) = visit({"url": training, "width": width, "read": CUT})
    assert found["read"] == 0


def test_the_page_is_usable_by_keyboard(training: str) -> None:
    to_the_list = ["Tab"] * 9
    (found,) = visit(
        {"url": training, "width": 1440, "keys": [*to_the_list, "ArrowDown", "ArrowDown", "Tab", "Enter"]}
    )
    assert found["focus"][8].endswith("Episodes")
    assert found["focus"][-1] == "button Summary"
    assert not [words for words in found["focus"] if words.endswith("(focus not drawn)")]
    (opened,) = visit({"url": training, "width": 1440, "keys": [*to_the_list, "ArrowDown", "ArrowDown", "ArrowRight"]})
    assert opened["address"].endswith("#/2/2")


PAGES = ("index", "quickstart", "training", "environments/index", "environments/plan_path_v0", "reference/trainer")
THEME_FINDINGS = ("scrollable-region-focusable",)  # boxes of the theme's, around wide tables


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_site_is_sound_from_the_disk(width: int, dark: bool) -> None:
    if not (SITE / "index.html").is_file():
        pytest.skip("needs the site: make docs")
    visits = [{"url": (SITE / f"{page}.html").as_uri(), "width": width, "dark": dark} for page in PAGES]
    for found in visit(*visits):
        expect_sound(found, apart_from=THEME_FINDINGS)


def test_the_search_of_the_site_works_from_the_disk_and_by_keyboard() -> None:
    if not (SITE / "index.html").is_file():
        pytest.skip("needs the site: make docs")
    results = "document.querySelector('.md-search-result__list').textContent"
    (found,) = visit(
        {
            "url": (SITE / "index.html").as_uri(),
            "width": 1440,
            "keys": ["/"],
            "type": {".md-search__input": "counterfactual"},
            "read": results,
        }
    )
    assert "counterfactual" in found["read"]
    assert found["requests"] == []
    assert found["errors"] == []
