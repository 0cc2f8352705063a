"""Observations of several chat messages: few-shot prompts and dialogues, as TRL's conversational data sets have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from pettingllms_envs.agents.base import Scripted
from pettingllms_envs.episodes import files, prompts, replay
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.episodes.recorded import Recorded
from pettingllms_envs.observations import Image, prompt_of
from pettingllms_envs.page.read import episode_of
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.checkpoints.recorder import rows
from pettingllms_trl.records import Candidate, Completion, Decision, Episode
from short_runs import settings
from third_party import OneShot, Relay, letters
from twins import assert_equal, our_trainer, run, their_trainer


def said(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    """`("user", "Hi")` and so on as chat messages."""
    return [{"role": role, "content": content} for role, content in pairs]


PIXEL = b"\x89PNG\r\n\x1a\n"
FEW_SHOT = said(("system", "Add."), ("user", "1+1?"), ("assistant", "2"), ("user", "1+2?"))


# ---- From an observation to a prompt --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (FEW_SHOT, FEW_SHOT),
        (tuple(FEW_SHOT), FEW_SHOT),
        (said(("user", "Hi")), said(("user", "Hi"))),
        (said(("assistant", "Ask me."), ("user", "Hi")), said(("assistant", "Ask me."), ("user", "Hi"))),
        ([{"role": "user", "content": "Hi", "name": None}], said(("user", "Hi"))),
        (said(("user", "\ud800")), said(("user", "\N{REPLACEMENT CHARACTER}"))),
    ],
)
def test_messages_are_the_prompt_as_they_are(messages: Any, expected: Any) -> None:
    assert prompt_of({"messages": messages}, agent="a") == expected


@pytest.mark.parametrize(
    ("observation", "error", "words"),
    [
        ({"messages": "Hi"}, TypeError, r"observes 'str' as 'messages'; expected a list of"),
        ({"messages": None}, TypeError, r"observes 'NoneType' as 'messages'; expected a list of"),
        ({"messages": []}, ValueError, r"messages of the roles \[\]; expected a last message of the role 'user'"),
        ({"messages": FEW_SHOT[:3]}, ValueError, r"\['system', 'user', 'assistant'\]; expected a last message"),
        ({"messages": ["Hi"]}, TypeError, r"observes str as message 0; expected a dict with a str under 'role'"),
        ({"messages": [{"role": "user"}]}, TypeError, r"observes \{'role': 'str'\} as message 0; expected a dict"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            TypeError,
            r"observes a dict among its 'parts'; expected texts and .*Image",
        ),
        (
            {"messages": [{"role": "user", "content": [Image(PIXEL, "a dot")]}]},
            ValueError,
            r"observes images, which are not supported yet",
        ),
        (
            {"messages": [*FEW_SHOT, {"role": "user", "content": "Hi", "audio": "Eve"}]},
            TypeError,
            r"'audio': 'str'\} as message 4; expected a dict .* nothing else",
        ),
        (
            {"messages": said(("critic", "3"), ("user", "Hi"))},
            ValueError,
            r"message 0 with the role 'critic'; expected one of 'system', 'user', 'assistant', 'tool'",
        ),
        (
            {"messages": FEW_SHOT, "text": "Hi", "system": "Be."},
            ValueError,
            r"observes 'messages' beside 'system', 'text'; expected 'messages' alone",
        ),
    ],
)
def test_malformed_messages_raise_with_what_was_given_and_expected(
    observation: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=rf"agent 'a' observes.*{words.removeprefix('observes')}"):
        prompt_of(observation, agent="a")


# ---- What is written down -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "prompt", "listed"),
    [
        (said(("user", "Hi")), {"system": "", "text": "Hi"}, False),
        (said(("system", "Be."), ("user", "Hi")), {"system": "Be.", "text": "Hi"}, False),
        (FEW_SHOT, {"system": "Add.", "text": "1+2?"}, True),
        (said(("user", "Hi"), ("user", "Ho")), {"system": "", "text": "Ho"}, True),
        (said(("assistant", "Hi"), ("user", "Ho")), {"system": "", "text": "Ho"}, True),
    ],
)
def test_records_and_the_rollout_log_list_messages_that_are_more_than_a_system_prompt_and_a_text(
    messages: Any, prompt: Any, listed: bool
) -> None:
    expected = {"prompt": prompt, **({"messages": messages} if listed else {})}
    assert prompts.recorded(messages) == expected
    assert prompts.messages_of(expected) == messages
    candidate = Candidate(completion=Completion(ids=(3, 2), text="3", finish="stop"), reward=1.0)
    decision = Decision(
        instance=0, episode=0, agent="a", turn=0, prompt=messages, prompt_ids=(4,), candidates=(candidate,), chosen=0
    )
    whole = Episode(instance=0, episode=0, decisions=(decision,), returns={"a": 1.0}, outcome={}, environment="")
    about: dict[str, Any] = {"environments": {"": "e"}, "policies": {"a": "a"}, "step": 1, "first": 0}
    (row,) = rows([whole], {}, [{}], **about)
    assert {key: row["steps"][0][key] for key in ("prompt", "messages") if key in row["steps"][0]} == expected


class Dialogue(Relay):
    """Each agent reads what was written so far as a dialogue: its own texts are the assistant's."""

    def observe(self, agent: str) -> Any:
        own = self.possible_agents.index(agent)
        turns = [("assistant" if i % 2 == own else "user", text) for i, text in enumerate(self.written)]
        return {"messages": said(("system", f"Task {self.task}."), ("user", "Write."), *turns, ("user", "Go on."))}


AGENTS = {agent: Scripted(lambda asked: f"{len(asked.messages)} messages") for agent in ("opener_0", "closer_0")}


def played(agents: Any = AGENTS) -> dict[str, Any]:
    return episode(Dialogue(), Instance(0, 5), 0, agents, RunLimits())


def test_an_evaluation_asks_with_the_messages_and_its_record_replays() -> None:
    row = json.loads(files.write_line(played()))
    assert [step["reply"] for step in row["steps"]] == ["3 messages", "4 messages", "5 messages", "6 messages"]
    assert row["steps"][1]["prompt"] == {"system": "Task 5.", "text": "Go on."}
    assert row["steps"][1]["messages"] == said(
        ("system", "Task 5."), ("user", "Write."), ("user", "3 messages"), ("user", "Go on.")
    )
    assert episode_of(row, [None] * 5, {})["steps"][1]["messages"] == row["steps"][1]["messages"]  # on the page
    again = replay.replay(Dialogue(), row)
    assert (again.first, again.off_prompt) == (None, 0)
    assert replay.same_bytes(row, again.row)
    assert played(dict.fromkeys(AGENTS, Recorded([row])))["digest"] == row["digest"]


@pytest.mark.parametrize("kind", ["bench", "rollouts"])
def test_a_replay_tells_that_a_message_has_changed(kind: str) -> None:
    row = played() | ({"training": {"step": 1}} if kind == "rollouts" else {})
    row["steps"][2]["messages"][3]["content"] = "another"
    again = replay.replay(Dialogue(), row)
    assert again.off_prompt == 1
    assert again.first is not None
    assert (again.first.step, again.first.what.startswith("messages[3]['content'] from character 0")) == (2, True)
    assert played(dict.fromkeys(AGENTS, Recorded([row])))["error"]["kind"] == "diverged"


def test_a_replay_tells_messages_that_are_no_longer_shown_but_not_those_that_an_agent_remembered() -> None:
    row = episode(Relay(), Instance(0, 5), 0, AGENTS, RunLimits())
    row["steps"][2]["messages"] = said(("user", "Go."), ("assistant", "A"), ("user", "On."))
    again = replay.replay(Relay(), row)
    assert (again.first is not None, again.off_prompt) == (True, 1)
    assert "messages" not in again.row["steps"][2]
    remembered = replay.replay(Relay(), row | {"training": {"step": 1}})
    assert (remembered.first, remembered.off_prompt) == (None, 0)
    assert remembered.row["steps"][2]["messages"] == row["steps"][2]["messages"]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("Hi", r"steps\[0\].messages is not a list or null"),
        ([{"role": "user"}], r"it has no steps\[0\].messages\[0\]"),
    ],
)
def test_a_record_whose_messages_are_none_is_refused(messages: Any, words: str, tmp_path: Path) -> None:
    row = played()
    row["steps"][0]["messages"] = messages
    (tmp_path / "episodes.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=words):
        files.read(tmp_path)


# ---- Training -------------------------------------------------------------------------------------------------------


class Ask(OneShot):
    """The row's prompt, as a TRL data set has it: a text, or messages. Rewards are left to reward functions."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed)
        self.prompt = (options or {})["prompt"]

    def observe(self, agent: str) -> Any:
        return self.prompt if isinstance(self.prompt, str) else {"messages": self.prompt}

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = {"solver_0": 0.0}


PROMPTS = [
    said(("system", "Add."), *[("user", "1+1?"), ("assistant", "2")] * (number % 3), ("user", f"1+{number}?"))
    for number in range(24)
]


def paid_by_prompt(prompts: list[Any], completions: list[Any], **_: Any) -> list[float]:
    """Depends on every role and text of the prompts."""
    return [letters(done[0]["content"]) * len(str(asked)) for asked, done in zip(prompts, completions, strict=True)]


def test_few_shot_prompts_of_a_trl_data_set_train_as_in_plain_trl(model_path: str, tmp_path: Path) -> None:
    data = Dataset.from_dict({"prompt": PROMPTS})
    options: dict[str, Any] = {"reward_funcs": paid_by_prompt, "train_dataset": data}
    theirs = run(their_trainer(model_path, tmp_path / "theirs", {}, **options))
    assert_equal(theirs, run(our_trainer(model_path, tmp_path / "ours", {}, env=Ask, **options)))


def test_an_agent_that_remembers_and_observes_messages_raises_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"agent 'opener_0' has history='conversation' and observes messages of the roles "
        r"\['system', 'user', 'user'\]; expected a text .* Set history to 'none'",
    ):
        MultiAgentGRPOTrainer(
            str(tmp_path / "no model"),
            Dialogue,
            settings(tmp_path, history={"opener": "conversation"}),
            Dataset.from_dict({"seed": [1, 2]}),
        )


class LaterDialogue(Dialogue):
    def observe(self, agent: str) -> Any:
        return super().observe(agent) if self.written else {"messages": said(("user", "Write."))}


def test_messages_observed_later_raise_where_the_agent_remembers_and_play_where_it_does_not(
    model_path: str, tmp_path: Path
) -> None:
    def trainer(**history: str) -> MultiAgentGRPOTrainer:
        args = settings(tmp_path, history=history)
        return MultiAgentGRPOTrainer(model_path, LaterDialogue, args, Dataset.from_dict({"seed": [1, 2]}))

    (whole,) = trainer().play([{"seed": 1}])
    assert [[m["role"] for m in d.prompt] for d in whole.decisions][-1] == [
        *("system", "user", "user", "assistant", "user", "user")
    ]
    with pytest.raises(ValueError, match=r"agent 'closer_0' has history='conversation' and observes messages of"):
        trainer(closer="conversation").train()
