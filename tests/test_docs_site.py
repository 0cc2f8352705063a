"""The site of the documentation: links lead somewhere, nothing is left out, and what is made of the code is right."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import environment_page
import links
import pettingllms_envs
from pettingllms_trl.config_files import read
from shipped_configs import FILES, PAPER_CONFIGS


ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *DOCS)}


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs both make them of words and spaces."""
    text = links.FENCE.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_the_readme_is_at_most_nine_kilobytes() -> None:
    assert len(PAGES["README.md"].encode()) <= 9_000


def test_the_home_page_shows_the_pictures_and_the_tested_script_of_the_readme() -> None:
    script = re.search(r"<!-- tested by .*? -->\n```python\n.*?```\n", PAGES["README.md"], re.S)
    assert script is not None
    assert script[0] in PAGES["docs/index.md"]
    assert {"tree.gif", "quickstart.png"} <= set(re.findall(r"\]\(([\w.]+)\)", PAGES["docs/index.md"]))


MADE = "docs/environments/"


def text_of(path: str) -> str | None:
    """A Markdown file of the repository, by its path from the root; None for any other."""
    return (ROOT / path).read_text(encoding="utf-8") if path.endswith(".md") and (ROOT / path).is_file() else None


LINKING = sorted({*PAGES, *links.closure(PAGES, text_of)})
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
        ("docs/data.md", "[m](mathematics.md), [p](https://x.org/a)", "[m](mathematics.md), [p](https://x.org/a)"),
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
        shown = env.observe(agent)
        assert (shown["system"] if "system" in shown else shown["messages"][-1]["content"]) in page
    has_oracle = env.metadata["has_oracle"]
    assert ("## An episode" in page) == (has_oracle or bool(env.metadata["bots"]))
    if "## An episode" not in page:  # whose rewards are a trainer's
        return
    while not env.standing():
        reply = env.oracle() if has_oracle else env.bot(env.metadata["bots"][0])
        assert f"{env.observe(env.agent_selection)['text']}\n```" in page
        assert f"\n{reply}\n```" in page
        env.step(reply)
    for name in env.metadata["workflows"]:
        assert f"## Workflow `{name}`" in page
    for part, (low, high) in env.metadata["reward_ranges"].items():
        assert f"| `{part}` | {low:.4g} | {high:.4g} |" in page
    turn, budget = env.snapshot().play.turn, env.workflow.num_turns
    outcome, value = next(iter(env.infos[env.possible_agents[0]]["outcome"].items()))
    assert f"\n{env.standing().capitalize()} in turn {turn} of {budget}: {outcome} {value}" in page
    if env.metadata["competitive"] is None and has_oracle:
        assert (env.standing(), outcome, value) == ("solved", "success", True)


def test_a_label_begins_a_paragraph_and_less_than_is_no_tag() -> None:
    doc = "Game: a title.\n\nRules: play.\nMore of them.\nOutcome: `a<b>` and <b>.\n\n* one: 1\n"
    assert environment_page.paragraphs(doc) == (
        "Game: a title.\n\n**Rules:** play.\nMore of them.\n\n**Outcome:** `a<b>` and &lt;b>.\n\n* one: 1\n"
    )


PAPER = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `(\w+)` \| `([^`|]+)` \|", PAGES["docs/paper.md"], re.M)


def test_the_table_of_the_papers_settings_says_what_the_configurations_say() -> None:
    configs = [read(path).values for path in FILES if re.fullmatch(rf"({PAPER_CONFIGS})_L1_1\.7B", path.stem)]
    assert len(configs) == 9  # three games with two teams each, programs, mathematics, and both together
    assert len(PAPER) >= 12
    for config in configs:
        (kwargs, *_) = (
            [config["env_kwargs"]]
            if "env_kwargs" in config
            else [each["env_kwargs"] for each in config["environments"].values()]
        )
        flat = config | kwargs
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


def test_the_search_of_the_site_leaves_out_pages_that_quote_a_source() -> None:
    assert links.quoting("examples/a.py", "x = 1\n").startswith(
        "---\nsearch:\n  exclude: true\n---\n\n# examples/a.py\n"
    )
