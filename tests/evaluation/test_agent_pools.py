"""Who plays, as a person writes it."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.agents.base import AgentFailed, AgentRefused, Request
from pettingllms_envs.agents.spec import AgentSpec, assign, from_identity, parse
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.episodes.files import write_line
from pettingllms_envs.evaluation import agent_pools
from pettingllms_envs.evaluation.agent_pools import open_all


ROLES = {"drafter_0": "drafter", "planner_0": "planner"}


@pytest.mark.parametrize(
    ("text", "role", "spec"),
    [
        ("oracle", None, AgentSpec("oracle")),
        ("planner=oracle", "planner", AgentSpec("oracle")),
        ("api:org/model:7b", None, AgentSpec("api", "org/model:7b")),
        ("planner=api,temperature=0.5", "planner", AgentSpec("api", None, {"temperature": 0.5})),
        ("api,model=x", None, AgentSpec("api", None, {"model": "x"})),
        ("vllm:a/b,adapter=c/d,max_tokens=9", None, AgentSpec("vllm", "a/b", {"adapter": "c/d", "max_tokens": 9})),
        (r"api:m,stop=a\,b,stop=\\", None, AgentSpec("api", "m", {"stop": ["a,b", "\\"]})),
        (r'api:m,extra={"a": [1\, 2]}', None, AgentSpec("api", "m", {"extra": {"a": [1, 2]}})),
        ("planner=scripted:C=D.txt", "planner", AgentSpec("scripted", "C=D.txt")),
    ],
)
def test_an_agent_is_a_role_a_kind_a_target_and_options(text: str, role: str | None, spec: AgentSpec) -> None:
    assert parse(text) == (role, spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the agent '' cannot be read; expected \[ROLE=\]KIND"),
        ("planner=", r"cannot be read"),
        ("api:", r"cannot be read"),
        ("api:m,hot", r"the agent's option 'hot' has no value; expected OPTION=VALUE"),
        ("api:m,temperature=warm", r"temperature is 'warm'; expected a number"),
        ("api:m,top_k=1.5", r"top_k is '1.5'; expected a whole number"),
        ("api:m,extra=[1]", r"extra is '\[1\]'; expected a JSON object"),
    ],
)
def test_an_agent_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_one_without_a_role_plays_those_that_no_other_names() -> None:
    assert assign(["null", "planner=oracle"], ROLES) == {
        "drafter_0": AgentSpec("null"),
        "planner_0": AgentSpec("oracle"),
    }
    assert assign(["planner_0=oracle", "drafter=null"], ROLES) == assign(["null", "planner=oracle"], ROLES)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["boss=oracle"], r"there is no role 'boss'; expected one of: drafter, planner"),
        (["planner=oracle"], r"no agent plays the role 'drafter'; expected an agent for it. Add drafter=oracle, say."),
        (["oracle", "null"], r"have two for every role; expected one"),
        (["planner=oracle", "planner=null", "null"], r"the role 'planner' has two agents; expected one"),
    ],
)
def test_every_role_has_one_agent(texts: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assign(texts, ROLES)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (AgentSpec("orakle"), r"there is no agent of the kind 'orakle'; .* Did you mean 'oracle'\?"),
        (AgentSpec("oracle", "delphi"), r"the agent is 'oracle:delphi'; expected no target"),
        (
            AgentSpec("oracle", None, {"temperature": 1.0}),
            r"oracle got the option 'temperature'; expected one of: none",
        ),
        (AgentSpec("scripted"), r"the agent is 'scripted'; expected scripted:FILE"),
    ],
)
def test_an_agent_that_there_is_not_is_refused(spec: AgentSpec, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_all({"planner_0": spec}, 1)


def test_the_identity_of_an_agent_makes_it_again_and_knows_no_waiting(tmp_path: Path) -> None:
    spec = AgentSpec("api", "m", {"temperature": 0.5, "timeout": 3.0})
    assert spec.identity == {"kind": "api", "target": "m", "temperature": 0.5}
    assert from_identity(spec.identity) == AgentSpec("api", "m", {"temperature": 0.5})
    file = tmp_path / "replies.txt"
    file.write_text("Moves: U\n")
    scripted = AgentSpec("scripted", str(file))
    before = scripted.identity
    assert from_identity(before) == scripted
    file.write_text("Moves: D\n")
    assert scripted.identity != before


def played(specs: dict[str, AgentSpec], **more: Any) -> dict[str, Any]:
    env = pettingllms_envs.make("plan_path", size=4)
    agents = open_all(specs, 1).agents
    return episode(env, Instance(0, 7, {"split": "test"}), 0, agents, RunLimits(), **more)


def test_a_scripts_replies_are_given_one_after_the_other_and_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "b.json").write_text('["four\\nfive"]')
    row = played(
        {
            "drafter_0": AgentSpec("scripted", f"{tmp_path}/a.txt"),
            "planner_0": AgentSpec("scripted", f"{tmp_path}/b.json"),
        }
    )
    assert [step["reply"] for step in row["steps"][::2]] == ["one", "three", "two", "one"]
    assert {step["reply"] for step in row["steps"][1::2]} == {"four\nfive"}


@pytest.mark.parametrize("text", ["", '"one"', "[1]"])
def test_a_script_without_replies_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / ("a.json" if text else "a.txt")
    file.write_text(text)
    with pytest.raises(ValueError, match=r"has no replies; expected a JSON list of texts, or a reply a line"):
        open_all({"planner_0": AgentSpec("scripted", str(file))}, 1)


def test_chance_replies_the_same_under_the_same_seed() -> None:
    specs = {agent: AgentSpec("random") for agent in ROLES}
    rows = [played(specs) for _ in range(2)]
    assert rows[0]["digest"] == rows[1]["digest"]
    assert len({step["seed"] for step in rows[0]["steps"]}) == len(rows[0]["steps"])


def test_a_recorded_agent_repeats_itself_and_fails_where_it_meets_another_prompt(tmp_path: Path) -> None:
    first = played({"drafter_0": AgentSpec("random"), "planner_0": AgentSpec("random")})
    file = tmp_path / "episodes.jsonl"
    file.write_text(write_line(first))
    recorded = AgentSpec("recorded", str(file))
    assert played({"drafter_0": recorded, "planner_0": recorded})["digest"] == first["digest"]
    row = played({"drafter_0": AgentSpec("null"), "planner_0": recorded})
    assert row["error"]["kind"] == "diverged"
    assert row["error"]["message"] == "the record has another prompt at instance 0, sample 0, step 1 of planner_0."
    assert row["success"] is None


def test_an_oracle_where_there_is_none_ends_the_run() -> None:
    class Bare:
        unwrapped = property(lambda self: self)

    asked = Request(env=Bare(), agent="a", messages=(), seed=0, instance=0, sample=0, step=0)
    with pytest.raises(AgentRefused, match=r"a is to be played by the oracle, but Bare has none"):
        open_all({"a": AgentSpec("oracle")}, 1).agents["a"].reply(asked)
    assert not issubclass(AgentRefused, AgentFailed)


@pytest.mark.parametrize(("kind", "extra"), [("vllm", "vllm"), ("transformers", "trl")])
def test_a_kind_whose_library_is_missing_names_its_own_extra(
    kind: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint(kind, "no_such_library:opener", agent_pools.GROUP)
    monkeypatch.setattr(agent_pools, "_plug_ins", lambda: {kind: point})
    with pytest.raises(ValueError, match=rf"need no_such_library.*pip install -e '\.\[{extra}\]' in a checkout"):
        open_all({"planner_0": AgentSpec(kind, "model")}, 1)
