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
    r"(begin|begins|began|begun|started|starts|played) anew": "restarted",
    r"mend(s|ed)?": "fix; or what exactly to change",
    r"left alone": "abandoned; unchanged",
    r"takes? leave": "terminates",
    r"farewell": "dead step",
    r"give one\.": "what exactly to give: the option, its value, an example",
    r"a wave|wave by wave": "a batch; batch by batch",
    r"who plays": "the acting agent; the agent of each role",
    r"what is seen": "the observation",
}
"""A pattern of whole words, and what to write instead. Single words with a plain meaning ("refused" of a server's
answer, "beside", "hold") are not here, nor are names in code, whose words are joined by underscores."""

PATTERN = re.compile("|".join(rf"(?<!\w)(?:{phrase})(?!\w)" for phrase in PHRASES), re.IGNORECASE)

STILL = {
    "pettingllms_envs/agents/base.py",
    "pettingllms_envs/agents/spec.py",
    "pettingllms_envs/assembly.py",
    "pettingllms_envs/commands/bench.py",
    "pettingllms_envs/commands/crossplay.py",
    "pettingllms_envs/commands/play.py",
    "pettingllms_envs/datasets/loading.py",
    "pettingllms_envs/datasets/preparing.py",
    "pettingllms_envs/datasets/rows.py",
    "pettingllms_envs/episodes/episode.py",
    "pettingllms_envs/episodes/observing.py",
    "pettingllms_envs/evaluation/bench.py",
    "pettingllms_envs/evaluation/runner.py",
    "pettingllms_envs/evaluation/teams.py",
    "pettingllms_envs/graders/cache.py",
    "pettingllms_envs/sandbox/inside/job.py",
    "pettingllms_envs/sandbox/inside/program.py",
    "pettingllms_envs/sandbox/layers.py",
    "pettingllms_envs/sandbox/requests.py",
    "pettingllms_envs/tasks/sokoban_table.py",
    "pettingllms_envs/tasks/sudoku_digging.py",
    "pettingllms_envs/testing/__init__.py",
    "pettingllms_envs/testing/determinism.py",
    "pettingllms_envs/testing/play.py",
    "pettingllms_envs/testing/rewards.py",
    "pettingllms_trl/checkpoints/atomic.py",
    "pettingllms_trl/checkpoints/hub.py",
    "pettingllms_trl/checkpoints/publishing.py",
    "pettingllms_trl/checkpoints/team_file.py",
    "pettingllms_trl/cli/arguments.py",
    "pettingllms_trl/cli/datasets.py",
    "pettingllms_trl/cli/sft.py",
    "pettingllms_trl/config.py",
    "pettingllms_trl/engines/vllm_server.py",
    "pettingllms_trl/policies/prompt_encoder.py",
    "pettingllms_trl/policies/routing.py",
    "pettingllms_trl/rollout/env_checks.py",
    "pettingllms_trl/rollout/env_pool.py",
    "pettingllms_trl/rollout/episode.py",
    "pettingllms_trl/rollout/play.py",
    "pettingllms_trl/rollout/scheduler.py",
    "pettingllms_trl/rollout/stepping.py",
    "pettingllms_trl/rollout/timeouts.py",
    "pettingllms_trl/rollout/workers.py",
    "pettingllms_trl/trainer/demonstrations.py",
    "pettingllms_trl/trainer/distributed.py",
    "pettingllms_trl/trainer/recorder.py",
    "pettingllms_trl/trainer/replaying.py",
    "pettingllms_trl/trainer/sft.py",
    "pettingllms_trl/trainer/trainer.py",
    "pettingllms_trl/update/micro_batches.py",
}
"""Files of the packages that have such phrases so far. The set only shrinks: a file without any must leave it."""


def phrases(path: Path) -> list[str]:
    """What a file has of the phrases, each with its line; a phrase may go on in the next line."""
    text = re.sub(r"\n *(# )?", "\n", path.read_text(encoding="utf-8"))
    flat = text.replace("\n", " ")
    return [f"line {text.count(chr(10), 0, found.start()) + 1}: {found[0]}" for found in PATTERN.finditer(flat)]


def written(folder: str, *suffixes: str) -> list[Path]:
    paths = sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes and path.is_file())
    return [path for path in paths if "vendor" not in path.parts]


DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *written("docs", ".md", ".py", ".svg"),
    *written("examples", ".md", ".py", ".yaml"),
]
SOURCES = [
    path
    for package in ("pettingllms_envs", "pettingllms_trl")
    for path in written(package, ".py", ".txt", ".js", ".html", ".css")
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_document_says_it_in_standard_terms(path: Path) -> None:
    assert phrases(path) == []


def test_the_files_of_the_packages_with_such_phrases_become_fewer() -> None:
    found = {path.relative_to(ROOT).as_posix(): phrases(path) for path in SOURCES}
    new = {name: lines for name, lines in found.items() if lines and name not in STILL}
    assert new == {}, "write it in the terms of PHRASES"
    assert sorted(name for name in STILL if not found.get(name)) == [], "these files are clean: take them off STILL"


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
