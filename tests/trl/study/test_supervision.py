"""The run of supervision: what is imitated, how often, and that the imitating team is what is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pettingllms_envs.research.studies.results import Cell
from pettingllms_trl.records import Prompt
from pettingllms_trl.research.study import supervision
from pettingllms_trl.research.study.plans.plan import PlannedRun
from pettingllms_trl.sft.demonstrations import Demonstration


DEMONSTRATIONS = '''
from pettingllms_trl.records import Prompt
from pettingllms_trl.sft.demonstrations import Demonstration


def fixed(env, seeds):
    """The same reply of the first agent to each instance's prompt."""
    for seed in seeds:
        env.reset(seed=seed)
        for agent in env.agents:
            text = env.observe(env.agent_selection)
            prompt = Prompt([{"role": "system", "content": text["system"]}, {"role": "user", "content": text["text"]}])
            yield Demonstration(role=agent, prompt=prompt, reply="Moves: R", success=True)


NUMBER = 3
'''


def run_of(model: str, *, supervised: dict[str, Any], **fields: Any) -> PlannedRun:
    train = {
        "model_name_or_path": model,
        "env_id": "plan_path",
        "env_kwargs": {"size": 4, "num_turns": 1},
        "train_seeds": [0, 100],
        "train_split": "train",
        "eval_seeds": [0, 3],
        "eval_split": "test",
        "seed": 3,
        "num_generations": 2,
        "per_device_train_batch_size": 2,
        "max_completion_length": 4,
        "learning_rate": 0.01,
        "max_steps": 1000,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "policies": "lora",
        "use_peft": True,
        **fields,
    }
    cell = Cell(phase="evaluation", environment="grid", method="supervised", seed=3)
    curve = {"points": 0, "instances": 0}
    more = {"supervised": supervised, "tokens": 0, "curve": curve}
    return PlannedRun(cell=cell, config={"train": train, "trained": True, "prepare": None, **more})


@pytest.mark.slow
def test_a_run_imitates_each_reply_as_often_as_it_says_and_evaluates_what_has_learned_it(
    roomy_path: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text(DEMONSTRATIONS, "utf-8")
    run = run_of(roomy_path, supervised={"demonstrations": f"{file}:fixed", "instances": 5}, num_iterations=3)
    supervision.check(run, tmp_path / "check")
    found = supervision.run_supervised(run, tmp_path / "run", None)
    assert found.steps == 9  # 5 replies of each role in batches of 2, three times
    tokenizer = AutoTokenizer.from_pretrained(roomy_path)
    assert found.tokens == 5 * 2 * (len(tokenizer("Moves: R", add_special_tokens=False)["input_ids"]) + 1)
    assert set(found.success) <= {"0", "1"}
    assert len(found.success) == 3
    adapters = list((tmp_path / "run" / "team").glob("*/adapter_model.safetensors"))
    assert len(adapters) == 2
    assert supervision.run_supervised(run, tmp_path / "again", None).success == found.success


def test_demonstrations_are_taken_until_their_tokens_are_enough(roomy_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(roomy_path)
    each = len(tokenizer("ab", add_special_tokens=False)["input_ids"]) + 1

    def episodes(number: int) -> Iterator[list[Demonstration]]:
        for _ in range(number):
            yield [Demonstration(role="a", prompt=Prompt([]), reply="ab", success=True)] * 2

    found, tokens, number = supervision.taken(episodes(9), tokenizer, demonstrations="own", tokens=2 * each + 1)
    assert (len(found), tokens, number) == (4, 4 * each, 2)  # whole episodes
    found, tokens, number = supervision.taken(episodes(9), tokenizer, demonstrations="own", instances=3)
    assert (len(found), tokens, number) == (6, 6 * each, 3)
    with pytest.raises(ValueError, match=r"own has 2 episodes with \d+ tokens; expected more. Widen train_seeds."):
        supervision.taken(episodes(2), tokenizer, demonstrations="own", instances=3)


@pytest.mark.parametrize(
    ("supervised", "fields", "message"),
    [
        (
            {"demonstrations": "own.py:NUMBER", "tokens": 9},
            {},
            r"which is 3; expected a function. Write def NUMBER\(env, ",
        ),
        (
            {"demonstrations": "own.py:fixed", "tokens": 9},
            {"policies": "full", "use_peft": False},
            "Set policies: lora",
        ),
        ({"demonstrations": "gone.py:fixed", "tokens": 9}, {}, r"gone\.py"),
    ],
)
def test_a_mistake_is_told_before_the_first_run(
    supervised: dict[str, Any],
    fields: dict[str, Any],
    message: str,
    roomy_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "own.py").write_text(DEMONSTRATIONS, "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        supervision.check(run_of(roomy_path, supervised=supervised, **fields), tmp_path / "check")
