"""The code of the documentation runs, and prints what the pages say."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pettingzoo
import pytest
from pettingzoo import AECEnv

import drawn_tree
from blocks import blocks
from pettingllms_envs import sandbox, testing
from running import marks_of, run_page, runs


ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *DOCS)}
CODE = [page for page, text in PAGES.items() if any(runs(page, block) for block in blocks(text))]
TRAINS = "GRPOTrainer("  # pages with it need a model, and seconds


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The quickstart's model with random weights, where pages say Qwen/Qwen3-1.7B."""
    tiny = pytest.importorskip("tiny", reason="needs the extra `trl`")
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = tiny.make_tokenizer(["Turn 1 of 4. You are the planner. Moves: U D L R\n. . # G @"] * 2)
    tiny.make_model(tokenizer, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


LENGTH = "max_completion_length=256,"
SMALL = (
    (LENGTH, "max_completion_length=4, max_steps=1, use_cpu=True, bf16=False, report_to='none',"),
    ("range(1000)", "range(8)"),
    ("range(50)", "range(2)"),
    ("* 50", "* 2"),
)
"""What makes a run of a page's training small: text of the page, and what stands for it here."""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Code of pages runs in a folder of its own, at a terminal of 100 columns at which nobody types."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return tmp_path


def run(page: str, model: str = "") -> dict[str, Any]:
    """What a page's code defines, run here; `model` stands for the models that it names."""
    try:
        with contextlib.ExitStack() as closing:
            return run_page(page, PAGES[page], closing=closing, shorter=lambda code: made_small(code, model))
    except sandbox.SandboxUnavailable as error:
        pytest.skip(f"{page} runs programs: {str(error).splitlines()[0]}")


def made_small(code: str, model: str) -> str:
    """The code, or if it trains, the same on the tiny model for a step."""
    if TRAINS not in code:
        return code
    assert LENGTH in code, f"a page's training says {LENGTH!r}, so that it can be made short here"
    for given, small in (("Qwen/Qwen3-1.7B", model), *SMALL):
        code = code.replace(given, small)
    return code


@pytest.mark.parametrize("page", [page for page in CODE if TRAINS not in PAGES[page]])
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page: str, elsewhere: Path) -> None:
    run(page)


@pytest.mark.parametrize("page", [page for page in CODE if TRAINS in PAGES[page]])
def test_the_code_of_a_page_that_trains_runs_on_a_tiny_model(page: str, tiny_model: str, elsewhere: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        namespace = run(page, tiny_model)
    assert 0.0 <= namespace.get("success", 0.0) <= 1.0  # of the page that evaluates


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_trains_qwen3_turns_its_thinking_off(page: str) -> None:
    # Its thoughts alone are longer than the completions of these pages.
    for block in blocks(PAGES[page]):
        if TRAINS in block.code and "Qwen/Qwen3" in block.code:
            assert '"enable_thinking": False' in block.code, f"{page}:{block.line}"


def test_what_the_quickstart_says_of_cut_messages_is_what_its_table_has() -> None:
    page = " ".join(PAGES["docs/quickstart.md"].split())
    rows = re.findall(r"^\| \d \|.*\| ([\d.]+)% \[[^|]*\] \|$", PAGES["docs/quickstart.md"], re.M)
    assert len(rows) == 5
    least, *_, most = sorted(map(float, rows[1:]))
    said = f"right in {rows[0]}% when no message arrives, and those of other seeds in {least} to {most}%"
    assert said in page


ENVIRONMENTS: dict[str, Callable[[Any], Any]] = {
    "docs/add_environment.md TextGame": lambda made: lambda: made(pettingzoo.make("aec", "classic/tictactoe-v3")),
}
"""How the classes of pages that are written for PettingZoo become an environment."""


def pettingzoo_classes() -> dict[str, type]:
    """The classes in the code of pages that are an `AECEnv`, by page and name; no model is loaded for them."""
    found: dict[str, type] = {}
    for page, text in PAGES.items():
        namespace: dict[str, Any] = {}
        for block in blocks(text):
            if re.search(r"^class \w+\((AECEnv|BaseWrapper)\):", block.code, re.M):
                tree = ast.parse(block.code)
                tree.body = [node for node in tree.body if isinstance(node, DEFINITIONS)]
                exec(compile(tree, f"{page}:{block.line}", "exec"), namespace)  # noqa: S102  # our own documentation
        own = {name: value for name, value in namespace.items() if isinstance(value, type)}
        found.update(
            (f"{page} {name}", value)
            for name, value in own.items()
            if issubclass(value, AECEnv) and value.__module__ == "builtins"
        )
    return found


DEFINITIONS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_that_a_page_shows_passes_the_conformance_suite(name: str) -> None:
    testing.conforms(ENVIRONMENTS[name](pettingzoo_classes()[name]), seeds=range(10))


def test_every_environment_that_a_page_shows_is_checked() -> None:
    assert set(pettingzoo_classes()) == set(ENVIRONMENTS)


def test_every_block_of_code_is_run_or_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"run": 0, "tested by": 0, "not run": 0}
    for page in PAGES:
        for block in blocks(PAGES[page]):
            marks = marks_of(page, block)
            where = f"{page}:{block.line}"
            kinds = [kind for kind in ("tested by", "not run") if kind in marks]
            assert len(kinds) <= 1, f"{where} says both"
            if "not run" in marks:
                assert len(marks["not run"]) > 5, f"{where} gives no reason"
            if "tested by" in marks:
                assert (ROOT / marks["tested by"]).is_file(), f"{where}: there is no {marks['tested by']}"
            counts[kinds[0] if kinds else "run"] += 1
    figures = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    with capsys.disabled():
        print(f"\nblocks of code in {len(PAGES)} pages: {figures}")
    assert counts["run"] > counts["not run"]


@pytest.mark.parametrize("page", PAGES)
def test_no_command_hides_in_a_block_without_a_language(page: str) -> None:
    fences = re.findall(r"^(`{3,})([a-z]*)\n(.*?)^\1$", PAGES[page], re.M | re.S)
    hidden = [code for _, language, code in fences if language not in ("console", "bash") and code.startswith("$ ")]
    assert hidden == []


def test_the_drawing_of_a_tree_is_that_of_the_rollout_in_the_text(elsewhere: Path) -> None:
    namespace = run("docs/concepts.md")
    drawn = drawn_tree.drawing(namespace["episode"], namespace["advantages"])
    assert drawn == (ROOT / "docs" / "tree.svg").read_text(encoding="utf-8"), (
        "docs/tree.svg is stale: PYTHONPATH=.:docs/making python docs/making/drawn_tree.py"
    )
