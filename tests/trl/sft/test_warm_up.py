"""The warm-up: what is demonstrated, who learns from it, and that training starts from what was saved."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

import pettingllms_envs
from decisions import candidate, decision_of, episode_of
from pettingllms_envs import plan_path_v0
from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow
from pettingllms_trl import (
    Episode,
    MultiAgentGRPOTrainer,
    Prompt,
    config_files,
)
from pettingllms_trl.cli import __main__ as cli
from pettingllms_trl.cli.datasets import makers
from pettingllms_trl.cli.sft import SFTArguments, by_oracles
from pettingllms_trl.policies.routing import Policy, route
from pettingllms_trl.sft.demonstrations import FIRST_SEED, Demonstration, by_oracle, of_episodes, read, write
from pettingllms_trl.sft.warm_up import load_adapters, rows_of, warm_up
from short_runs import adapter, settings
from third_party import Relay


PLAN_PATH = partial(plan_path_v0.env, size=4, num_turns=2)
AGENTS = ["drafter_0", "planner_0"]


def demonstration(role: str, reply: str = "Moves: U", *, success: bool = True) -> Demonstration:
    return Demonstration(role=role, prompt=Prompt([{"role": "user", "content": "?"}]), reply=reply, success=success)


TWO = [demonstration("drafter", "Moves: U"), demonstration("planner", "Moves: D")]
FILE = "adapter_model.safetensors"
LONG = {"drafter": "UUUUUUUU", "planner": "DDDDDDDD"}  # apart enough to be learnt in a few steps


def arguments(path: Path, **more: Any) -> SFTConfig:
    return SFTConfig(
        **{
            "output_dir": str(path),
            "max_steps": 2,
            "learning_rate": 1e-2,
            "per_device_train_batch_size": 2,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
            "use_cpu": True,
            "bf16": False,
            **more,
        }
    )


# ---- Demonstrations -----------------------------------------------------------------------------------------------


def test_the_oracle_plays_every_role_on_the_train_split_and_succeeds() -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + 5)
    found = list(by_oracle(PLAN_PATH(), seeds))
    env = PLAN_PATH()
    env.reset(seed=FIRST_SEED, options={"split": "train"})
    assert found[0].prompt.messages[1] == {"role": "user", "content": env.observe("drafter_0")["text"]}
    assert found[0].prompt.messages[0] == {"role": "system", "content": env.observe("drafter_0")["system"]}
    assert found[0].reply == env.oracle()
    # On a 4 x 4 grid the oracle's first plan reaches the goal, so an episode is a draft and a plan.
    assert [d.role for d in found] == ["drafter", "planner"] * 5
    assert all(d.success for d in found)


def test_levels_take_turns_over_the_oracles_instances() -> None:
    asked: list[dict[str, Any]] = []

    class Counted(type(PLAN_PATH())):  # type: ignore[misc]
        def reset(self, seed: int | None = None, options: Any = None) -> None:
            asked.append({"seed": seed, **options})
            super().reset(seed, options)

    env = PLAN_PATH()
    env.__class__ = Counted
    list(by_oracle(env, [7, 8, 9], levels=[1, 2]))
    assert asked == [{"seed": s, "split": "train", "level": level} for s, level in ((7, 1), (8, 2), (9, 1))]


def test_a_function_says_itself_what_is_imitated() -> None:
    def counsel(game: Game) -> Questions:
        advice = yield Ask("adviser", game.show(), lambda: "Take the shortest way.")
        game.play((yield Ask("player", game.show(advice))), "player")

    roles = (Role("adviser", "You advise."), Role("player", "You move."))
    env = assemble(PlanPath, "counsel_v0", (function_workflow(*roles)(counsel),)).env(size=4)
    advice, move = by_oracle(env, [0])
    assert (advice.role, advice.reply) == ("adviser", "Take the shortest way.")
    assert move.reply.startswith("Moves: ")
    assert move.success


def test_a_rule_based_player_may_take_the_oracles_place_in_a_role() -> None:
    env = pettingllms_envs.make("archives", workflow="designed")
    shown = list(by_oracle(env, range(8), bots={"designer": "random_design"}))
    sizes = {len(json.loads(each.reply)["members"]) for each in shown if each.role == "designer"}
    assert len(sizes) > 1  # the oracle's designs have two members, for two hops
    assert any(each.reply.startswith("Answer: ") for each in shown if each.role == "member")


def test_an_environment_without_an_oracle_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"^Relay has no oracle\(\); expected .*--from episodes.jsonl"):
        next(by_oracle(Relay(), [0]))


def episode(*, success: bool) -> Episode:
    candidates = [candidate(ids=(1,), text=text) for text in ("left out", "played")]
    return episode_of(decision_of("planner_0", candidates, chosen=1), outcome={"success": success})


def test_of_an_episode_the_decisions_that_were_played_are_kept_and_survive_a_file(tmp_path: Path) -> None:
    found = list(of_episodes([episode(success=True), episode(success=False)]))
    assert found == [demonstration("planner", "played"), demonstration("planner", "played", success=False)]
    assert write(tmp_path / "d.jsonl", found) == 2
    assert list(read(tmp_path / "d.jsonl")) == found


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0c", "\r", "\ud800"])
def test_a_reply_with_any_character_survives_a_file(mark: str, tmp_path: Path) -> None:
    found = [demonstration("planner", "Moves: U"), demonstration("planner", f"Moves:{mark} D")]
    assert write(tmp_path / "d.jsonl", found) == 2
    assert list(read(tmp_path / "d.jsonl")) == found


def test_a_file_of_demonstrations_is_whole_or_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "d.jsonl", TWO)
    broken = replace(TWO[0], prompt=Prompt([{"role": "user", "content": object()}]))
    with pytest.raises(AttributeError):
        write(tmp_path / "d.jsonl", [broken])
    assert list(read(tmp_path / "d.jsonl")) == TWO
    assert [path.name for path in tmp_path.iterdir()] == ["d.jsonl"]


def test_a_line_may_hold_plain_texts(tmp_path: Path) -> None:
    line = {"role": "planner", "prompt": "?", "completion": "Moves: D", "success": True}
    (tmp_path / "d.jsonl").write_text(json.dumps(line) + "\n\n")
    assert list(read(tmp_path / "d.jsonl")) == [demonstration("planner", "Moves: D")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"split": "test"}, "line 1 of .*: its split is 'test'; expected .* of the train split"),
        ({"success": "yes"}, "its success is 'yes'"),
        ({"success": None}, "its success is None"),
        ({"role": ...}, "it has no 'role'"),
        ({"completion": [{"role": "assistant"}]}, "it has no 'content'"),
        ({"completion": [{"content": None}]}, "its completion is {'content': None}, not a text of the assistant's"),
        ({"completion": [{"content": [{"type": "text", "text": "Moves: D"}]}]}, "its completion is .* not a text"),
        ({"completion": [{"content": "", "tool_calls": [{"type": "function"}]}]}, "its completion is .* not a text"),
        ({"completion": [{"role": "user", "content": "Moves: D"}]}, "its completion is .* not a text"),
    ],
)
def test_a_line_that_is_no_demonstration_is_refused_with_its_number(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    line = {"role": "planner", "prompt": "?", "completion": "Moves: D", "success": True, **change}
    line = {name: value for name, value in line.items() if value is not ...}
    (tmp_path / "d.jsonl").write_text(json.dumps(line))
    with pytest.raises(ValueError, match=said):
        list(read(tmp_path / "d.jsonl"))


# ---- Who learns from what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ("lora", {"drafter": ["Moves: U"], "planner": ["Moves: D"]}),
        ("shared", {"base": ["Moves: U", "Moves: D"]}),
        ("full", {"drafter": ["Moves: U"], "planner": ["Moves: D"]}),
        ({"drafter": "d", "planner_0": "p"}, {"d": ["Moves: U"], "p": ["Moves: D"]}),
        ({"drafter": "d", "planner": Policy(trainable=False)}, {"d": ["Moves: U"]}),
    ],
    ids=["lora", "shared", "full", "by agent", "frozen"],
)
def test_each_policy_learns_from_the_successes_of_its_own_agents(policies: Any, expected: Any) -> None:
    given = [*TWO, demonstration("planner", "Moves: L", success=False)]
    rows = rows_of(given, route(policies, AGENTS, model="m"))
    assert {name: [row["completion"][0]["content"] for row in own] for name, own in rows.items()} == expected


def test_a_policy_without_a_success_and_a_stranger_are_refused() -> None:
    routing = route("lora", AGENTS)
    with pytest.raises(ValueError, match=r"the policy 'planner' has no demonstration that succeeded; .*planner_0"):
        rows_of([demonstration("drafter"), demonstration("planner", success=False)], routing)
    with pytest.raises(ValueError, match=r"a demonstration of 'coder'; expected .* drafter, planner_0, planner\."):
        rows_of([demonstration("coder")], routing)


def test_adapters_of_several_policies_that_change_their_base_are_refused_before_a_model_is_loaded(
    tmp_path: Path,
) -> None:
    changing = LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights="olora")
    with pytest.raises(ValueError, match=r"'drafter' has init_lora_weights='olora', .* 'planner' stand on one base"):
        warm_up("is not loaded", TWO, route("lora", AGENTS), arguments(tmp_path), peft_config=changing)


# ---- Training and starting from it --------------------------------------------------------------------------------


def log_probability(model: Any, tokenizer: Any, reply: str) -> float:
    """Of a reply to the one prompt of the tests, under the model."""
    chat = [{"role": "user", "content": "?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
    whole = torch.tensor([[*prompt, *tokenizer(reply)["input_ids"]]])
    with torch.no_grad():
        scores = model(whole).logits.log_softmax(-1)
    return float(sum(scores[0, i - 1, whole[0, i]] for i in range(len(prompt), whole.shape[1])))


def test_adapters_learn_their_own_roles_and_reinforcement_learning_starts_from_them(
    model_path: str, tokenizer: Any, tmp_path: Path
) -> None:
    folders = warm_up(
        model_path,
        [demonstration(role, reply) for role, reply in LONG.items()],
        route("lora", AGENTS),
        arguments(tmp_path, max_steps=20),
        peft_config=adapter(),
    )
    assert folders == {role: tmp_path / role for role in ("drafter", "planner")}
    model = load_adapters(model_path, tmp_path, policies="lora", agents=AGENTS)
    for role, other in (("drafter", "planner"), ("planner", "drafter")):
        model.set_adapter(role)
        own, others = (log_probability(model, tokenizer, LONG[name]) for name in (role, other))
        assert own > others + 0.3  # of the little that adapters can do under a random head (seen: 0.88, 3.54)
    before = {name: p.detach().clone() for name, p in model.named_parameters() if "lora_" in name}
    trainer = MultiAgentGRPOTrainer(
        model,
        PLAN_PATH,
        settings(tmp_path / "rl", num_generations=2),
        Dataset.from_dict({"seed": [0] * 4}),
        policies="lora",
    )
    after = {name: p for name, p in trainer.model.named_parameters() if "lora_" in name}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], p) for name, p in after.items())
    assert all(p.requires_grad for p in after.values())


@pytest.mark.slow
def test_supervision_goes_on_from_the_adapters_of_a_folder(model_path: str, tmp_path: Path) -> None:
    first, still, further = (tmp_path / name for name in ("first", "still", "further"))
    warm_up(model_path, TWO, route("lora", AGENTS), arguments(first))
    for folder, rate in ((still, 0.0), (further, 1e-2)):
        more = arguments(folder, learning_rate=rate, seed=7)
        warm_up(model_path, TWO, route("lora", AGENTS), more, adapters=first)
    for role in ("drafter", "planner"):
        before, same, after = (load_file(folder / role / FILE) for folder in (first, still, further))
        assert all(torch.equal(before[name], same[name]) for name in before)
        assert any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("policies", ["shared", "full"])
def test_whole_models_are_saved_so_that_they_load_alone(policies: str, model_path: str, tmp_path: Path) -> None:
    folders = warm_up(model_path, TWO, route(policies, AGENTS, model=model_path), arguments(tmp_path))
    expected = {"base": tmp_path} if policies == "shared" else {r: tmp_path / r for r in ("drafter", "planner")}
    assert folders == expected
    start = AutoModelForCausalLM.from_pretrained(model_path)
    for folder in folders.values():
        loaded = AutoModelForCausalLM.from_pretrained(folder)
        assert not torch.equal(loaded.lm_head.weight, start.lm_head.weight)
        assert (folder / "tokenizer.json").is_file()


def test_replies_that_are_all_cut_off_raise_with_the_length_to_set(model_path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"max_length is 4 tokens, and no prompt of .* 'drafter' leaves .*: 16"):
        warm_up(model_path, TWO, route("lora", AGENTS), arguments(tmp_path, max_length=4))


def test_replies_that_are_left_out_or_cut_are_counted(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SFTTrainer, "train", lambda self: None)
    long_prompt = replace(TWO[1], prompt=Prompt([{"role": "user", "content": "ab " * 2000}]))
    rows = [TWO[1], *[long_prompt] * 2, demonstration("planner", "think " * 2000)]
    shortened = ["max_length=200 leaves out 2, ", "and ends 1, "]
    for given, most, expected in ((rows, 200, shortened), (rows[:1], 200, []), (rows, None, [])):
        said: list[str] = []
        args = arguments(tmp_path, max_length=most)
        warm_up(model_path, given, route("lora", ["planner_0"]), args, say=said.append)
        assert len(said) == 1 + bool(expected)
        assert all(words in said[-1] for words in (f"{len(given)} replies", *expected))


@pytest.mark.slow
def test_equal_seeds_give_equal_adapters_whatever_was_drawn_before(model_path: str, tmp_path: Path) -> None:
    def run(folder: Path) -> dict[str, torch.Tensor]:
        warm_up(model_path, TWO, route("lora", AGENTS), arguments(folder, max_steps=1))
        loaded = load_adapters(model_path, folder, policies="lora", agents=AGENTS)
        return {name: p for name, p in loaded.named_parameters() if "lora_" in name}

    one = run(tmp_path / "one")
    torch.rand(100)
    other = run(tmp_path / "other")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_adapters_that_are_not_there_are_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lacks drafter, planner; expected .*`pettingllms sft`"):
        load_adapters("no/model", tmp_path, policies="lora", agents=AGENTS)
    with pytest.raises(ValueError, match=r"no policy is an adapter; expected some"):
        load_adapters("no/model", tmp_path, policies="shared", agents=AGENTS)


# ---- The command --------------------------------------------------------------------------------------------------


def command(model_path: str, output: Path, *more: str) -> list[str]:
    fixed = (
        "--env plan_path --max_steps 1 --use_cpu --bf16 false --report_to none --save_strategy no --disable_tqdm true"
    )
    return [*fixed.split(), "--model_name_or_path", model_path, "--output_dir", str(output), *more]


def test_the_command_trains_one_role_from_the_oracle(
    model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env_kwargs = '{"size": 4, "num_turns": 2}'
    options = ("--policies", "lora", "--role", "planner", "--from", "oracle", "--num_episodes", "4", "--lora_r", "2")
    assert cli.sft(command(model_path, tmp_path, "--env_kwargs", env_kwargs, *options)) == 0
    config = json.loads((tmp_path / "planner" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_dropout"]) == (2, 0.0)
    assert not (tmp_path / "drafter").exists()
    resolved = config_files.read(tmp_path / "config.yaml").values
    assert (resolved["env_kwargs"], resolved["roles"]) == ({"size": 4, "num_turns": 2}, ["planner"])
    shown = capsys.readouterr().out
    assert "Policy planner of planner_0: 4 replies to imitate." in shown
    assert f"Saved planner in {tmp_path / 'planner'}." in shown
    assert f"--adapters {tmp_path}" in shown


def test_the_command_trains_on_the_oracles_of_several_environments(model_path: str, tmp_path: Path) -> None:
    games = {
        "plan_path": {"env_id": "plan_path", "env_kwargs": {"size": 4}},
        "sokoban": {"env_id": "pettingllms/sokoban-v0", "train_levels": [1, 2]},
    }
    fixed = [part for part in command(model_path, tmp_path) if part not in ("--env", "plan_path")]
    assert cli.sft([*fixed, "--environments", json.dumps(games), "--num_episodes", "3"]) == 0
    given = SFTArguments(environments=games, num_episodes=3)
    prompts = [d.prompt.messages[-1]["content"] for d in by_oracles(given, makers(given))]
    assert sum("Boxes:" in prompt for prompt in prompts) >= 3 * 2
    assert sum("Boxes:" not in prompt for prompt in prompts) >= 3 * 2


def test_the_command_trains_from_a_file_of_successes(model_path: str, tmp_path: Path) -> None:
    write(tmp_path / "d.jsonl", TWO)
    assert cli.sft(command(model_path, tmp_path / "out", "--from", str(tmp_path / "d.jsonl"))) == 0
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--role", "coder"], "roles names 'coder'; expected some of drafter, planner."),
        (["--use_peft"], "use_peft with policies='shared'"),
        (["--policies", "lora", "--adapters", "nowhere"], "lacks drafter, planner; expected a folder with"),
        (["--adapters", "nowhere"], "no policy is an adapter; expected some."),
        (["--bots", '{"draftr": "random"}'], "bots names 'draftr'; expected some of drafter, planner. Name one"),
        (["--num_episodes", "0"], "num_episodes is 0; expected at least 1."),
        (["--chat_template_kwargs", "no"], "chat_template_kwargs is 'no'; expected a mapping"),
    ],
)
def test_the_command_refuses_in_one_line(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.sft(command("no/model", tmp_path, "--num_episodes", "1", *options)) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert said in line
