"""The evaluation of the small model: who plays what, and that reading a beginning once changes no reply."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bench_small_model import MAX_NEW_TOKENS, Arm, Player, arms, figures, play, results, shared_length
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms_envs import archives_v0
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model


ROLES = ("librarian", "answerer")


def test_the_arms_name_the_adapter_of_each_role():
    found = arms(ROLES, cut=True)
    assert found["swapped"].adapters == {"librarian": ("trained", "answerer"), "answerer": ("trained", "librarian")}
    assert found["trained librarian"] == Arm({"librarian": ("trained", "librarian"), "answerer": ("warm", "answerer")})
    assert found["cut"] == Arm(found["trained"].adapters, workflow="cut")
    assert found["trained librarian"].folders == {"trained", "warm"}
    assert "cut" not in arms(ROLES, cut=False)


@pytest.mark.parametrize(
    ("prompts", "length"),
    [([[1, 2, 3], [1, 2, 4, 5]], 2), ([[1, 2], [1, 2, 3]], 1), ([[1, 2, 3]], 2), ([[1], [2]], 0)],
)
def test_each_prompt_keeps_a_token_of_its_own(prompts, length):
    assert shared_length(prompts) == length


def test_an_oracle_that_is_played_in_step_is_always_right():
    def made():
        env = archives_v0.env(size=8, facts=1, order="question")
        waiting.append(env)
        return env

    waiting = []

    def reply(role, seen):
        by_prompt = {env.observe(env.agent_selection)["text"]: env for env in waiting if env.agents}
        asked = [by_prompt[observation["text"]] for observation in seen]
        assert len({env.agent_selection for env in asked}) == 1
        return [env.unwrapped.oracle() for env in asked]

    found = figures(play(made, range(3), reply))
    assert (found["success"], found["means"]["told"]) == (1.0, 1.0)
    assert found["means"]["lone_bound"] == 1 / 8


def test_arms_are_compared_with_the_warm_and_the_supervised_one_on_the_instances_that_both_have_played():
    """The first example of Newcombe (1998), and 10 instances more that only the warm arm has played."""
    both, warm, trained, neither = 20, 2, 12, 16
    arm = {"interval": (0.0, 1.0), "means": {}, "success": 0.0}
    before = "1" * (both + warm) + "0" * (trained + neither) + "1" * 10
    after = "1" * both + "0" * warm + "1" * trained + "0" * neither
    solved = {"warm": before, "trained": after, "supervised": after}
    _, *rows = results({"arms": {name: {**arm, "solved": each} for name, each in solved.items()}})
    more = "+20.0 (+5.6 to +32.9)"
    assert [row[2] for row in rows] == ["", more, more]
    assert [row[3][:6] for row in rows] == ["-20.0 ", "+0.0 (", ""]


@pytest.mark.parametrize("folder", ["", "warm"])
def test_replies_are_those_of_each_prompt_alone(folder, tmp_path: Path):
    path = save_tiny_model(tmp_path / "tiny", byte_tokenizer(), initializer_range=0.2)
    model = AutoModelForCausalLM.from_pretrained(path)
    torch.manual_seed(1)
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(model, config, adapter_name="librarian").save_pretrained(tmp_path / "warm")
    seen = [{"system": "One line.", "text": text} for text in ("Search now.", "Tell what you know now.", "S")]
    player = Player(path, {"warm": tmp_path / "warm"}, ("librarian",), "float32")
    found = player.reply((folder, "librarian"), seen)
    assert len(set(found)) > 1

    plain = AutoModelForCausalLM.from_pretrained(path)
    if folder:
        plain.load_adapter(str(tmp_path / "warm" / "librarian"))
    tokenizer = AutoTokenizer.from_pretrained(path)
    for observation, reply in zip(seen, found, strict=True):
        messages = [
            {"role": "system", "content": observation["system"]},
            {"role": "user", "content": observation["text"]},
        ]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")["input_ids"]
        alone = plain.generate(ids, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)[0, ids.shape[1] :]
        assert tokenizer.decode(alone, skip_special_tokens=True) == reply
