"""Phrases that readers could not guess stay out of the documentation, the examples and both packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]

PHRASES = {
    r"strangers?": "third-party",
    r"at the door": "validated when the trainer is created; not supported; raises ValueError",
    r"found out by": "falls back to ...; determined at runtime",
    r"(begin|begins|began|begun|start|starts|started|played|tried) anew": "restarted",
    r"(made|makes?|drawn|dealt out|weighed|scored|set|read|gathers?|computed|restored|sampled|done) anew": "again",
    r"mend(s|ed)?": "fix; or what exactly to change",
    r"left alone": "abandoned; unchanged",
    r"takes? leave": "terminates",
    r"farewell": "dead step",
    r"give one\.": "what exactly to give: the option, its value, an example",
    r"a wave|wave by wave": "a batch; batch by batch",
    r"who plays": "the acting agent; the agent of each role",
    r"what is seen": "the observation",
    r"of now": "current",
    r"so many": "the number itself: `N`, `at most N`, `limit`",
    r"nobody is left|teaches nobody": "until all episodes are finished; is not trained on",
    r"to blame": "caused",
    r"lest": "so that ... not",
    r"the crew": "the worker pool",
}
"""A pattern of whole words, and what to write instead. Single words with a plain meaning ("refused" of a server's
answer, "beside", "hold") are not here, nor are names in code, whose words are joined by underscores."""

PATTERN = re.compile("|".join(rf"(?<!\w)(?:{phrase})(?!\w)" for phrase in PHRASES), re.IGNORECASE)


def phrases(path: Path) -> list[str]:
    """What a file has of the phrases, each with its line; a phrase may go on in the next line."""
    text = re.sub(r"\n *(# )?", "\n", path.read_text(encoding="utf-8"))
    flat = text.replace("\n", " ")
    return [f"line {text.count(chr(10), 0, found.start()) + 1}: {found[0]}" for found in PATTERN.finditer(flat)]


def written(folder: str, *suffixes: str) -> list[Path]:
    paths = sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes and path.is_file())
    return [path for path in paths if "vendor" not in path.parts]


FILES = [
    *sorted(ROOT.glob("*.md")),
    *written("docs", ".md", ".py", ".svg"),
    *written("examples", ".md", ".py", ".yaml"),
    *written("pettingllms_envs", ".py", ".txt", ".js", ".html", ".css"),
    *written("pettingllms_trl", ".py"),
]
CHECKED = [path.relative_to(ROOT).as_posix() for path in FILES]


@pytest.mark.parametrize("name", CHECKED)
def test_a_file_says_it_in_standard_terms(name: str) -> None:
    assert phrases(ROOT / name) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a stranger's environment", ["line 1: stranger"]),
        ("It is refused\nat the door.", ["line 2: at the door"]),
        ("is left\n    # alone", ["line 1: left alone"]),
        ("Mend it. Then give one.", ["line 1: Mend", "line 1: give one."]),
        ("counts conversations_begun_anew", []),
        ("give one each; amended", []),
    ],
)
def test_a_phrase_is_found_across_lines_and_not_within_a_name(text: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    assert phrases(path) == expected


@pytest.mark.parametrize("package", ["pettingllms_envs", "pettingllms_trl"])
def test_a_name_with_many_meanings_has_one_in_a_package_and_no_constant_says_only_what_it_belongs_to(
    package: str,
) -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in written(package, ".py"))
    names = re.findall(r"^(?:class )?(Result|Run|Case|Row)\b(?:\(|:| =)", code, re.MULTILINE)
    assert sorted(names) == sorted(set(names))
    assert re.findall(r"^_?OF_\w+", code, re.MULTILINE) == []
