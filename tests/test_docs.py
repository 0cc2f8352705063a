"""The code of the documentation runs and prints what the pages say; links lead somewhere; what is made is fresh."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
import sys
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import drawn_tree
import environment_page
import links
import pettingllms_envs
from blocks import Block, blocks, commands
from pettingllms_envs import cli, sandbox


ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *DOCS)}
TRAINS = "GRPOTrainer("  # pages with it need a model, and seconds

OF_THE_README = {
    "make quickstart": ("tested by", "tests/examples/test_quickstart.py"),
    "pip install 'pettingllms[data]'": ("not run", "needs the Hub"),
    "pip install": ("not run", "it installs"),
    "pettingllms bench": ("not run", "needs a model behind a server"),
    "pettingllms new": ("tested by", "tests/envs/test_cli.py"),
    "make test": ("not run", "it is this"),
}
"""Marks of the README's blocks, by how their first command begins; the first counts. It is kept free of comments."""


def marks_of(page: str, block: Block) -> dict[str, str]:
    """What a block's comments say, or for the README's the table."""
    if page == "README.md" and not block.marks:
        first = block.code.removeprefix("$ ")
        return dict([mark for begin, mark in OF_THE_README.items() if first.startswith(begin)][:1])
    return block.marks


def runs(page: str, block: Block) -> bool:
    return not marks_of(page, block).keys() & {"not run", "tested by"}


def read(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


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


def run_page(page: str, model: str = "") -> dict[str, Any]:
    """Run a page's blocks from top to bottom in one namespace, which is returned.

    What a page has in comments to be run first may use two names besides: `closing`, an `ExitStack`, and `instead`, a
    dictionary from words of the page's commands to what stands for them here, such as a server's address.
    """
    with contextlib.ExitStack() as closing:
        namespace: dict[str, Any] = {"__name__": "__main__", "closing": closing, "instead": {}}
        try:
            run_blocks(page, model, namespace)
        except sandbox.SandboxUnavailable as error:
            pytest.skip(f"{page} runs programs: {str(error).splitlines()[0]}")
    return namespace


def run_blocks(page: str, model: str, namespace: dict[str, Any]) -> None:
    for block in blocks(read(page)):
        if not runs(page, block):
            continue
        where = f"{page}:{block.line}"
        if "first" in block.marks:
            run_python(block.marks["first"], f"before {where}", namespace)
        if block.language == "python":
            printed = run_python(made_small(block.code, model), where, namespace)
            if block.shown is not None:
                same(printed, block.shown, where, varies="output varies" in block.marks)
        else:
            for command in commands(block):
                line = command.words
                for given, here in namespace["instead"].items():
                    line = line.replace(given, here)
                printed = run_command(line, where)
                if command.shown:
                    same(printed, command.shown, f"{where}: {command.words}", varies="output varies" in block.marks)


def made_small(code: str, model: str) -> str:
    """The code, or if it trains, the same on the tiny model for a step."""
    if TRAINS not in code:
        return code
    assert LENGTH in code, f"a page's training says {LENGTH!r}, so that it can be made short here"
    for given, small in (("Qwen/Qwen3-1.7B", model), *SMALL):
        code = code.replace(given, small)
    return code


def run_python(code: str, where: str, namespace: dict[str, Any]) -> str:
    """Run a block, hold `expression  # value` to the value, and return what it printed."""
    namespace["_says"] = says
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(checking(code), where, "exec"), namespace)  # noqa: S102  # our own documentation, not a model's
    return printed.getvalue()


def checking(code: str) -> ast.Module:
    """The code, in which `expression  # literal` compares the two, and `print(expression)  # literal` does so, too."""
    comments = {
        token.end[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT
    }
    tree = ast.parse(code)
    for statement in tree.body:
        if isinstance(statement, ast.Expr) and (said := comments.get(statement.end_lineno or 0)) is not None:
            with contextlib.suppress(ValueError, SyntaxError):  # most comments are words
                ast.literal_eval(said)
                value = statement.value
                printed = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"
                compared = value.args[0] if printed else value  # type: ignore[attr-defined]
                call = ast.Call(ast.Name("_says", ast.Load()), [compared, ast.Constant(said)], [])
                statement.value = ast.copy_location(call, value)
    return ast.fix_missing_locations(tree)


def says(value: object, said: str) -> None:
    assert value == ast.literal_eval(said), f"the page says {said}, and it is {value!r}"


def run_command(line: str, where: str) -> str:
    """Run a `pettingllms` command in this process, and return what it printed, errors too."""
    program, *arguments = shlex.split(line, comments=True)
    assert program == "pettingllms", f"{where}: {line!r} is no command of ours; mark its block `not run: why`"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = cli.main(arguments)
    assert status in (0, 1), f"{where}: {line!r} ended with {status}:\n{printed.getvalue()}"
    return printed.getvalue()


def same(printed: str, shown: str, where: str, *, varies: bool) -> None:
    """Compare line by line, without blanks at the ends; a line `...` stands for any lines."""
    ours, theirs = ([line.rstrip() for line in text.strip("\n").split("\n")] for text in (printed, shown))
    if varies:
        ours, theirs = ([re.sub(r"\d[\d.,:]*", "0", line) for line in lines] for lines in (ours, theirs))
        ours, theirs = ([re.sub(r" +", " ", line) for line in lines] for lines in (ours, theirs))
    pattern = "\n".join(re.escape(line) if line != "..." else r"(?s:.*)" for line in theirs)
    assert re.fullmatch(pattern, "\n".join(ours)), f"{where} prints\n\n{printed}"


CODE = [page for page in PAGES if any(runs(page, block) for block in blocks(read(page)))]


@pytest.mark.parametrize("page", [page for page in CODE if TRAINS not in read(page)])
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page: str, elsewhere: Path) -> None:
    run_page(page)


@pytest.mark.parametrize("page", [page for page in CODE if TRAINS in read(page)])
def test_the_code_of_a_page_that_trains_runs_on_a_tiny_model(page: str, tiny_model: str, elsewhere: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_page(page, tiny_model)


def test_every_block_of_code_is_run_or_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"run": 0, "tested by": 0, "not run": 0}
    for page in PAGES:
        for block in blocks(read(page)):
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
    fences = re.findall(r"^(`{3,})([a-z]*)\n(.*?)^\1$", read(page), re.M | re.S)
    hidden = [code for _, language, code in fences if language not in ("console", "bash") and code.startswith("$ ")]
    assert hidden == []


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs both make them of words and spaces."""
    text = links.FENCE.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


MADE = "docs/environments/"


def text_of(path: str) -> str | None:
    """A Markdown file of the repository, by its path from the root; None for any other."""
    return (ROOT / path).read_text(encoding="utf-8") if path.endswith(".md") and (ROOT / path).is_file() else None


LINKING = sorted({*PAGES, *links.closure({page: read(page) for page in PAGES}, text_of)})
"""The pages of the site that are written by hand: those of docs, and what they link to elsewhere."""


@pytest.mark.parametrize("page", LINKING)
def test_links_lead_to_files_and_headings_that_exist(page: str) -> None:
    text = links.FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    lost = []
    for found in re.finditer(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)", text):
        target, anchor = found.groups()
        if re.match(r"[a-z]+:", target):
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        made = MADE in path.resolve().as_posix()
        if not made and not path.exists():
            lost.append(target)
        elif anchor and not made and path.suffix == ".md" and anchor not in anchors(path):
            lost.append(f"{target}#{anchor}")
    assert lost == []


def named(nav: object) -> Iterator[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list | dict):
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from named(each)


def test_the_navigation_has_every_page_that_is_written() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = set(named(yaml.safe_load(config)["nav"]))
    assert nav == {path.relative_to(ROOT / "docs").as_posix() for path in DOCS} | {"environments/index.md"}


@pytest.mark.parametrize(
    ("place", "text", "there"),
    [
        ("docs/generation.md", "[e](../pettingllms_trl/engines.py)", "[e](source/pettingllms_trl/engines.py.md)"),
        ("docs/data.md", "[b](../benchmarks/README.md#learning)", "[b](source/benchmarks/README.md#learning)"),
        ("docs/data.md", "[m](math.md), [p](https://x.org/a)", "[m](math.md), [p](https://x.org/a)"),
        ("benchmarks/README.md", "[g](../docs/generation.md)", "[g](../../generation.md)"),
        ("docs/data.md", "```text\n[a](../b.py)\n```\n", "```text\n[a](../b.py)\n```\n"),
    ],
)
def test_links_to_files_of_the_repository_become_links_to_pages(place: str, text: str, there: str) -> None:
    assert links.rewritten(text, place) == there


ENTRIES = environment_page.own_entries()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_page_of_an_environment_has_its_workflows_prompts_and_a_solved_episode(entry: Any) -> None:
    page = environment_page.page(entry)
    env = pettingllms_envs.make(entry.full_name)
    env.reset(seed=environment_page.SEED)
    for agent in env.possible_agents:
        assert env.observe(agent)["system"] in page
    while not env.standing():
        reply = env.oracle()
        assert f"{env.observe(env.agent_selection)['text']}\n```" in page
        assert f"\n{reply}\n```" in page
        env.step(reply)
    for name in env.metadata["workflows"]:
        assert f"## Workflow `{name}`" in page
    for part, (low, high) in env.metadata["reward_ranges"].items():
        assert f"| `{part}` | {low:.4g} | {high:.4g} |" in page
    assert "\nSolved in turn 1 of 4: success True" in page


def test_a_label_begins_a_paragraph_and_less_than_is_no_tag() -> None:
    doc = "Game: a title.\n\nRules: play.\nMore of them.\nOutcome: `a<b>` and <b>.\n\n* one: 1\n"
    assert environment_page.paragraphs(doc) == (
        "Game: a title.\n\n**Rules:** play.\nMore of them.\n\n**Outcome:** `a<b>` and &lt;b>.\n\n* one: 1\n"
    )


def test_the_drawing_of_a_tree_is_that_of_the_rollout_in_the_text(elsewhere: Path) -> None:
    namespace = run_page("docs/concepts.md")
    drawn = drawn_tree.drawing(namespace["episode"], namespace["advantages"])
    assert drawn == (ROOT / "docs" / "tree.svg").read_text(encoding="utf-8"), (
        "docs/tree.svg is stale: PYTHONPATH=.:docs/making python docs/making/drawn_tree.py"
    )


PAPER = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `(\w+)` \| `([^`|]+)` \|", read("docs/paper.md"), re.M)


def test_the_table_of_the_papers_settings_says_what_the_configurations_say() -> None:
    configs = [yaml.safe_load(path.read_text()) for path in (ROOT / "examples" / "configs").glob("*_L1_1.7B.yaml")]
    assert len(configs) == 3
    assert len(PAPER) >= 12
    for config in configs:
        flat = config | config["env_kwargs"]
        for setting, _, field, value in PAPER:
            assert flat[field] == yaml.safe_load(value), f"{setting}: {field}"


def test_the_reference_has_every_public_name_of_both_packages() -> None:
    reference = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: ([\w.]+)", reference, re.M))
    lost = []
    for package in ("pettingllms_envs", "pettingllms_trl"):
        for name in public(ROOT / package / "__init__.py"):
            if not any(name in defined(each, package) for each in shown):
                lost.append(f"{package}.{name}")
    assert lost == []


def public(path: Path) -> list[str]:
    """What `__all__` of a file says, without importing it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (names,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
    ]
    return list(ast.literal_eval(names))


def defined(shown: str, package: str) -> set[str]:
    """The names that a directive shows: its own last one, or all that are defined in the module that it names."""
    if not shown.startswith(package):
        return set()
    file = ROOT / (shown.replace(".", "/") + ".py")
    if not file.is_file():
        return {shown.rpartition(".")[2]}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
