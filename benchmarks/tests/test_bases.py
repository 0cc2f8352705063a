"""The base models of the studies: what they imitate, and that a small one is made and can be loaded."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/studies"))

import bases  # noqa: E402


PROMPT = "Question: p1 home mill ?\nYour last search found:\np1 born t2\np1 home t3\nTell what you know now."


def test_a_right_message_says_the_relation_of_the_question_with_the_name() -> None:
    assert bases.of_archives(random.Random(0), PROMPT, "Say: t3", False) == "Say: home t3"


def test_what_is_passed_on_stands_alone_since_no_passage_has_it() -> None:
    assert bases.of_archives(random.Random(0), PROMPT, "Say: p1", False) == "Say: p1"


def test_a_careless_message_is_any_name_of_the_prompt_with_the_relation_of_its_passage() -> None:
    rng = random.Random(0)
    found = Counter(bases.of_archives(rng, PROMPT, "Say: t3", True) for _ in range(3000))
    assert set(found) == {"Say: p1", "Say: born t2", "Say: home t3"}
    assert all(count == pytest.approx(1000, abs=130) for count in found.values())  # 5 standard deviations


def test_careless_notes_have_as_many_digits_of_the_prompt() -> None:
    rng = random.Random(0)
    found = {bases.of_digits(rng, "Your reading 2 of 2: 7\nYour notes: 5", "Notes: 57", True) for _ in range(500)}
    assert found == {f"Notes: {one}{other}" for one in "257" for other in "257"}


@pytest.mark.parametrize(
    ("table", "alone", "share"),
    [
        ("archives", "You are the librarian", 2 / 3),  # routed and full, as many replies each as the team
        (
            "note_taking",
            "You are the watcher",
            4 / 7,
        ),  # in an episode 2 replies of alone, 2 of full and 3 of the team are kept
        ("plan_path", "You are the planner. Your moves", 1 / 2),
    ],
)
def test_each_form_of_a_table_is_imitated_in_as_many_episodes(table: str, alone: str, share: float) -> None:
    rows = list(bases.TABLES[table].rows(4000, 0.5, 1))
    assert len(rows) == 4000
    assert sum(alone in system for system, _, _ in rows) / 4000 == pytest.approx(share, abs=0.03)


def test_a_base_model_is_made_and_can_be_loaded(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks/studies/bases.py"), "note_taking", "--demonstrations", "200"]
    done = subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, text=True, check=True)
    assert "200 demonstrations" in done.stdout
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="float32")
    ids = tokenizer.encode("Notes: 57")
    assert len(ids) == 3  # "Notes: ", and each digit stands alone
    assert model(torch.tensor([ids])).logits.isfinite().all()
