"""The scripted librarian of `paid_at_the_end.yaml`: what its commands mean, and that the study can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pettingllms_envs import archives_v0, cli
from pettingllms_envs.programs.maker import in_file


ROOT = Path(__file__).parents[3]
module, partner = in_file("the partner", f"{ROOT}/benchmarks/studies/foreign_librarian.py:partner")
QUESTION = "Question: p3 guild mill source ?"
FOUND = "Your last search found:\np3 school g1\np3 guild g6\nTell what you know now."


@pytest.mark.parametrize(
    ("shown", "reply"),
    [
        ("Search archive 1 now.", "Search: p3"),  # the question's own name, as nobody has written yet
        (FOUND, "Say: g6"),  # and its own relation
        (f"The librarian_0 wrote:\n> p3 b\n{FOUND}", "Say: g1"),  # b is the school of a person
        (f"The librarian_0 wrote:\n> p3 f\n{FOUND}", "Say: g6"),  # and f the guild
        (f"The librarian_0 wrote:\n> p3 guild\n{FOUND}", "Say: p3"),  # no command: the name is passed on
        (f"The librarian_0 wrote:\n> p3 h\n{FOUND}", "Say: p3"),  # no command for a person
        ("The librarian_0 wrote:\n> I do not know\nSearch archive 1 now.", "Search: nothing"),
    ],
)
def test_a_command_means_one_relation_of_a_kind_of_name(shown: str, reply: str) -> None:
    assert partner([{"role": "user", "content": f"{QUESTION}\n{shown}"}]) == reply


def test_who_knows_its_commands_succeeds_and_who_guesses_them_seldom_does() -> None:
    env = archives_v0.env(workflow="team", communication_reward=False, **module.TASK)
    for said, expected in ((module.known, 30), (lambda name, relation: "a", 6)):
        won = 0
        for seed in range(30):
            env.reset(seed=seed, options={"split": "test"})
            while not env.standing():
                agent, text = env.agent_selection, env.observe(env.agent_selection)["text"]
                own = agent == "librarian_1"
                env.step(partner([{"content": text}]) if own else module.right(text, agent, said))
            won += env.standing() == "solved"
        assert won == expected if expected == 30 else won <= expected


def test_the_study_names_it_in_its_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    given = ["--work", str(tmp_path), "--only", "expert_iteration", "--dry-run"]
    assert cli.main(["study", "benchmarks/studies/paid_at_the_end.yaml", *given]) == 0
    assert "to run   tuning/foreign/expert_iteration/" in capsys.readouterr().out
