"""A trained team's folder as agents, as far as it is read without its weights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs import cli
from pettingllms_envs.agents.spec import AgentSpec, from_identity
from pettingllms_envs.commands.runs import asked, specs
from pettingllms_envs.evaluation.agent_pools import open_all
from pettingllms_envs.evaluation.teams import notes, read_team
from pettingllms_envs.research.commands import blame


ROLES = {"drafter_0": "drafter", "planner_0": "planner"}
SAMPLING = {"temperature": 0.7, "top_k": 0, "max_tokens": 256}
THINKING_OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def adapter(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "adapter", "folder": name, "base": "Qwen/Qwen3-1.7B", "revision": None, **more}


def write(
    folder: Path,
    policies: Mapping[str, Mapping[str, Any]],
    agents: Mapping[str, str] | None = None,
    **of_agents: Any,
) -> Path:
    """A team's folder with files of a byte in the place of weights; by default of an adapter for each role."""
    agents = {"drafter_0": "drafter", "planner_0": "planner"} if agents is None else agents
    facts = {
        "format": 1,
        "environment": "plan_path_v0",
        "step": 2,
        "agents": {
            agent: {"policy": policy, "history": "none", "sampling": SAMPLING, **of_agents}
            for agent, policy in agents.items()
        },
        "policies": policies,
    }
    folder.mkdir(exist_ok=True)
    (folder / "team.json").write_text(json.dumps(facts))
    for policy in policies.values():
        if policy["folder"] is not None:
            place = folder / policy["folder"]
            place.mkdir(exist_ok=True)
            kind = "adapter_" if policy["kind"] == "adapter" else ""
            (place / f"{kind}config.json").write_text("{}")
            (place / f"{kind}model.safetensors").write_bytes(b"1")
    return folder


@pytest.fixture
def lora(tmp_path: Path) -> Path:
    return write(tmp_path / "team", {name: adapter(name) for name in ("drafter", "planner")})


def chosen(line: str, roles: Mapping[str, str] = ROLES) -> dict[str, AgentSpec]:
    """Who plays, by the arguments of `pettingllms bench`."""
    parser = cli._parser({})
    args: argparse.Namespace = parser.parse_args(["bench", "plan_path", *line.split()])
    found: dict[str, AgentSpec] = specs(args, roles)
    return found


def test_each_role_of_a_team_is_played_by_its_own_adapter_and_sampled_as_in_training(lora: Path) -> None:
    assert chosen(f"--team {lora}") == {
        f"{role}_0": AgentSpec(
            "transformers", "Qwen/Qwen3-1.7B", {**SAMPLING, "adapter": f"{lora}/{role}", "team": str(lora)}
        )
        for role in ("drafter", "planner")
    }


def test_an_agent_of_a_role_takes_the_place_of_the_teams(lora: Path) -> None:
    found = chosen(f"--team {lora} --agents planner=oracle")
    assert (found["drafter_0"].options["adapter"], found["planner_0"]) == (f"{lora}/drafter", AgentSpec("oracle"))
    found = chosen(f"--agents drafter=null planner=team:{lora}")
    assert (found["drafter_0"], found["planner_0"].options["adapter"]) == (AgentSpec("null"), f"{lora}/planner")


@pytest.mark.parametrize("team", [True, False])
def test_a_member_is_substituted_by_one_of_a_team_or_another_agent_alone(team: bool, lora: Path) -> None:
    """Neither the team that plays nor that of the substitute is asked for the other roles."""
    line = ["bench", "plan_path", "--limit", "1", *(["--team", str(lora)] if team else ["--agents", "oracle"])]
    args = cli._parser({}).parse_args(line)
    args.env = "plan_path"
    bench, _ = asked(args)
    args.replies, args.substitute = 2, f"planner_0=team:{lora},top_k=5"
    member, other, _ = blame._substitute(args, bench) or pytest.fail("nobody is substituted")
    spec = other.agents["planner_0"]
    assert (member, spec.options["adapter"], spec.options["top_k"]) == ("planner_0", f"{lora}/planner", 5)
    args.substitute = "drafter=oracle"
    member, other, name = blame._substitute(args, bench) or pytest.fail("nobody is substituted")
    assert (member, other.agents["drafter_0"]) == ("drafter_0", AgentSpec("oracle"))
    assert other.agents["planner_0"] == bench.agents["planner_0"]
    assert name.startswith("substitute-drafter_0-")


def test_options_of_the_command_come_before_those_of_training_and_the_teams_own_before_them(lora: Path) -> None:
    spec = chosen(f"--team {lora},engine=vllm,base=my/copy,top_k=5 --temperature 0 --top-k 9")["planner_0"]
    assert (spec.kind, spec.target) == ("vllm", "my/copy")
    assert (spec.options["temperature"], spec.options["top_k"], spec.options["max_tokens"]) == (0.0, 5, 256)


def test_a_team_can_be_played_by_any_kind_of_agents_and_one_that_there_is_not_is_refused(lora: Path) -> None:
    found = chosen(f"--team {lora},engine=sglang")
    assert {spec.kind for spec in found.values()} == {"sglang"}
    with pytest.raises(ValueError, match="no agent of the kind 'sglang'; expected one of: oracle"):
        open_all(found, 1)


def test_a_team_trained_without_thinking_plays_without(tmp_path: Path) -> None:
    team = write(tmp_path / "team", {"drafter": adapter("drafter")}, dict.fromkeys(ROLES, "drafter"), sampling={
        "extra": THINKING_OFF
    })  # fmt: skip
    assert chosen(f"--team {team}")["planner_0"].options["extra"] == THINKING_OFF


def test_a_shared_model_a_full_model_and_a_frozen_base_are_found(tmp_path: Path) -> None:
    base = {"kind": "model", "folder": ".", "base": None, "revision": None}
    shared = write(tmp_path / "shared", {"base": base}, dict.fromkeys(ROLES, "base"))
    assert {(spec.kind, spec.target) for spec in chosen(f"--team {shared}").values()} == {
        ("transformers", str(shared))
    }
    mixed = write(
        tmp_path / "mixed",
        {
            "drafter": {**base, "folder": None, "base": "you/llama", "revision": "c0ffee"},
            "planner": {**base, "folder": "planner"},
        },
    )
    found = chosen(f"--team {mixed}")
    assert (found["drafter_0"].target, found["drafter_0"].options["revision"]) == ("you/llama", "c0ffee")
    assert found["planner_0"].target == f"{mixed}/planner"


def test_the_identity_has_the_folder_and_changes_with_the_weights(lora: Path) -> None:
    spec = chosen(f"--team {lora}")["planner_0"]
    before = spec.identity
    assert before["team"] == str(lora)
    assert from_identity(before) == spec
    (lora / "planner" / "adapter_model.safetensors").write_bytes(b"22")
    assert spec.identity["sha256"] != before["sha256"]
    assert chosen(f"--team {lora}")["drafter_0"].identity["sha256"] == before["sha256"]  # of an adapter of its own


def test_a_checkpoint_written_over_it_is_another_run_and_a_log_beside_it_is_not(tmp_path: Path) -> None:
    team = write(
        tmp_path / "team", {"base": {"kind": "model", "folder": ".", "base": None}}, dict.fromkeys(ROLES, "base")
    )
    spec = chosen(f"--team {team}")["planner_0"]
    before = spec.identity
    (team / "training_args.bin").write_bytes(b"1")
    (team / "eval_results.json").write_text("{}")
    (team / "checkpoint-2").mkdir()
    (team / "checkpoint-2" / "model.safetensors").write_bytes(b"3")
    assert spec.identity == before
    (team / "model.safetensors").write_bytes(b"3")
    assert spec.identity != before


def test_a_team_of_another_environment_is_told(lora: Path) -> None:
    found = chosen(f"--team {lora}").values()
    assert notes(found, "plan_path_v0") == []
    assert notes(found, "sokoban_v0") == [
        f"{lora} is a team of drafter_0, planner_0 (trained on plan_path_v0), and plays sokoban_v0 here."
    ]


def test_a_team_that_was_trained_with_other_settings_is_told(lora: Path) -> None:
    file = lora / "team.json"
    facts = json.loads(file.read_text())
    trained = {"workflow": "draft_plan", "size": 5, "wording": "symbols"}
    file.write_text(json.dumps({**facts, "settings": {"plan_path_v0": [trained]}}))
    found = list(chosen(f"--team {lora}").values())
    assert notes(found, "plan_path_v0", {**trained, "workflow": "single", "wall": 0.2}) == []
    assert notes(found, "plan_path_v0", {**trained, "size": 8}) == [
        f"{lora} is a team of drafter_0, planner_0 (trained on plan_path_v0) with size=5 (here 8). Play it so with "
        "--set NAME=VALUE."
    ]


@pytest.mark.parametrize(("trained", "strict"), [({}, True), ({"strict_format": False}, False)])
def test_a_team_that_does_not_say_how_its_replies_were_read_is_strict(
    lora: Path, trained: dict[str, Any], strict: bool
) -> None:
    file = lora / "team.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, "settings": {"plan_path_v0": [{"workflow": "draft_plan", **trained}]}}))
    line = f"bench plan_path --workflow draft_plan --limit 1 --team {lora}"
    for more, expected in (("", strict), (" --set strict_format=false", False)):
        args = cli._parser({}).parse_args((line + more).split())
        (args.env,) = args.envs
        bench, env = asked(args)
        assert env.metadata["settings"]["strict_format"] is expected
        assert bench.make().metadata["settings"]["strict_format"] is expected


def test_a_setting_that_was_left_out_in_training_or_here_is_compared_by_its_default(lora: Path) -> None:
    file = lora / "team.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, "settings": {"plan_path_v0": [{"size": 5, "data": "train.jsonl"}]}}))
    found = list(chosen(f"--team {lora}").values())
    defaults = {"size": 8, "wall": 0.1, "data": ""}
    assert (
        notes(found, "plan_path_v0", {"size": 5, "data": "test.jsonl"}, defaults) == []
    )  # other rows are no other task
    assert "with size=5 (here 8), wall=0.1 (here 0.2). " in notes(found, "plan_path_v0", {"wall": 0.2}, defaults)[0]


@pytest.mark.parametrize(
    ("line", "roles", "message"),
    [
        ("--team {}", {"coder_0": "coder"}, r"the environment has no drafter_0, planner_0; its roles are coder"),
        (
            "--team {}",
            {"planner_0": "planner"},
            r"the environment has no drafter_0; .* or name the role: --agents planner=team:",
        ),
        (
            "--team {}",
            {**ROLES, "judge_0": "judge"},
            r"no agent of it plays the role 'judge'. Name an agent for it, such as judge=oracle, or another team",
        ),
        ("--agents coder=team:{}", {"coder_0": "coder"}, r"no agent of it plays the role 'coder'"),
        ("--team {} --agents oracle", ROLES, r"have two for every role; expected one"),
        ("--team {}/drafter/no", ROLES, r"there is no folder '.*/drafter/no'; expected that of a team"),
        ("--agents team", ROLES, r"the agent is 'team'; expected team:FOLDER"),
    ],
)
def test_roles_that_do_not_match_are_refused(lora: Path, line: str, roles: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chosen(line.format(lora), roles)


def frozen(name: str) -> dict[str, Any]:
    return adapter(name, folder=None)


API = {"kind": "api", "folder": None, "base": None, "revision": None}


@pytest.mark.parametrize(
    ("planner", "of_agents", "message"),
    [
        (API, {}, r"planner_0 was played by an API, which is not in the folder. Name an agent for it"),
        (frozen("planner"), {}, r"played by the frozen adapter 'planner', which is not in the folder"),
        (adapter("planner", base=None), {}, r"does not say which base model it stands on.* Say so: .*,base=MODEL"),
        (adapter("planner", base="/no/such"), {}, r"base model /no/such, which is not on this machine"),
        (
            adapter("planner", base="outputs/no/such"),
            {},
            r"base model outputs/no/such, which is .* not below this folder",
        ),
        (
            adapter("planner"),
            {"history": "conversation"},
            r"trained with history='conversation', but here each prompt",
        ),
    ],
)
def test_a_role_that_the_folder_cannot_play_is_refused(
    tmp_path: Path, planner: dict[str, Any], of_agents: dict[str, Any], message: str
) -> None:
    team = write(tmp_path / "team", {"planner": planner}, {"planner_0": "planner"}, **of_agents)
    with pytest.raises(ValueError, match=message):
        chosen(f"--team {team} --agents drafter=null")


def test_weights_that_are_missing_are_named(lora: Path) -> None:
    (lora / "planner" / "adapter_config.json").unlink()
    with pytest.raises(ValueError, match=r"but .*/planner/adapter_config.json is missing. Copy the whole folder."):
        chosen(f"--team {lora}")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {},
            r"has no team.json; expected what trainer.save_model\(\) wrote. Looked for: team.json, \*/adapter_config",
        ),
        (
            {"planner/adapter_config.json": '{"base_model_name_or_path": "my/base"}'},
            r"--agents planner=transformers:my/base,adapter=.*/old/planner",
        ),
        ({"planner/config.json": "{}"}, r"--agents planner=transformers:.*/old/planner"),
        ({"config.json": "{}"}, r"It has one model. To let it play every role: --agents transformers:.*/old"),
        ({"checkpoint-8/team.json": "{}"}, r"There is one in .*/old/checkpoint-8: name that."),
        ({"team.json": "[]"}, r"team.json cannot be read \(TypeError: .*expected format 1"),
        ({"team.json": '{"format": 2}'}, r"it has the format 2\); expected format 1"),
        (
            {"team.json": '{"format": 1, "environment": "e", "agents": {"a": {"policy": "b"}}, "policies": {}}'},
            r"cannot be read \(KeyError: 'b'\)",
        ),
    ],
)
def test_a_folder_that_is_no_teams_is_refused_with_what_it_holds(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name, text in files.items():
        (old / name).parent.mkdir(exist_ok=True)
        (old / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_team(old)


def test_a_mistake_ends_the_command_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "plan_path", "--team", "nothing"]) == 2
    assert capsys.readouterr().err == (
        "error: there is no folder 'nothing'; expected that of a team, as trainer.save_model() leaves it. Check the "
        "path.\n"
    )
