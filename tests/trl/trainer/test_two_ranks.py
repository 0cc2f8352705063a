"""Two processes do what one does with twice the batch: the same weights, metrics and tables, whatever is trained how.

Each launch starts `ranks.py`, which trains one team after another; the comparisons are below. `pytest -s` prints the
largest differences of weights.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import ranks
from launches import (
    KINDS,
    accelerated,
    difference,
    environment,
    free_port,
    launched,
    listed,
    on_two_cpus,
    report,
    spec,
    two,
)
from tiny_vlms import FAMILIES
from two_processes import FORKS, in_two_processes


MOST = 1e-6
"""Largest difference of a weight after 2 to 9 steps; gradients are added up in another order."""

ADAM = {"optim": "adamw_torch", "adam_epsilon": 1e-2, "learning_rate": 1e-2, "weight_decay": 0.1}
# Three instances a generation, of which 1, 2 and 7 pay: in the second generation nobody has an advantage.
FLAT = {**ADAM, "shuffle_dataset": False}
WINDOWS = {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "max_steps": 4}  # two steps a generation
TOGETHER = {"steps_per_generation": 2, "gradient_accumulation_steps": 2}
SIX = {"steps_per_generation": 6, "gradient_accumulation_steps": 2, "max_steps": 9, "batch_size": 2}
INSIDE = {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "max_steps": 4, "batch_size": 4}
SAVED = {**INSIDE, "save_strategy": "steps", "save_steps": 1, "optim": "adamw_torch", "learning_rate": 1e-2}
GREEDY = {"top_k": 1, "entropy_coef": 0.5, "max_grad_norm": 0.0, "max_steps": 2}  # an entropy bonus has a gradient
PARALLEL = {"sampling": "parallel", "max_steps": 5}


SHORT = {"mixture": spec("mixture")}
SAME = {
    "L1": spec("shared", about={"evaluate": True, "play": True}),
    "L2": spec("lora"),
    "L3": spec("full"),
    "mixture": spec("mixture", **ADAM),
    "a frozen partner": spec("partner"),
    "rates and norms of their own": spec("rates", **ADAM),
    "dr_grpo, two iterations": spec("full", loss_type="dr_grpo", num_iterations=2, max_steps=4, **TOGETHER),
    "grpo, sequences": spec("lora", loss_type="grpo", importance_sampling_level="sequence", **INSIDE),
    "bnpo, entropy": spec("full", loss_type="bnpo", entropy_coef=0.05, **WINDOWS),
    "luspo, KL": spec("lora", loss_type="luspo", importance_sampling_level="sequence", beta=0.1, **TOGETHER),
    "vespo": spec("mixture", loss_type="vespo", **WINDOWS),
    "sapo, entropy, batch": spec("shared", loss_type="sapo", entropy_coef=0.05, scale_rewards="batch"),
    "cispo, truncated": spec("full", loss_type="cispo", epsilon_high=5.0, mask_truncated_completions=True),
    "parallel": spec("lora", about={"credit": "grpo"}, sampling="parallel", loss_type="grpo", beta=0.05),
    "counterfactual": spec("shared", about={"credit": "counterfactual"}, num_continuations=2, max_envs=64),
    "continuations, chosen by and trained on": spec(
        "lora",
        about={"credit": "counterfactual"},
        num_continuations=1,
        choose="value",
        train_continuations=True,
        max_envs=64,
    ),
    "a curriculum": spec("lora", about={"curriculum": True, "seeds": [1, 2, 3, 4, 5, 7, 8, 9]}),
    "rows taken one by one": spec("lora", about={"shares_rows": True}, max_envs=1, batch_size=32),
    "rows taken one by one, filters": spec(
        "mixture", about={"shares_rows": True, "filters": True, "evaluate": True}, max_envs=1, max_resamples=2
    ),
    "one process is slow": spec("lora", about={"shares_rows": True, "slow": 1}, max_envs=1, batch_size=32),
    "a stream": spec("shared", about={"stream": True, "seeds": [1, 2, 3], "evaluate": True}),
    "epochs": spec("lora", max_steps=9),
    "filters": spec("mixture", about={"filters": True}),
    "filters, other rows for what they drop": spec("lora", about={"filters": True}, max_resamples=2),
    "in turns": spec("full", alternate_every=1, max_steps=4, **ADAM),
    "reward functions": spec("shared", about={"reward_funcs": True}),
    "conversations": spec("lora", history="conversation"),
    "conversations over micro-steps": spec("full", history="conversation", loss_type="grpo", **INSIDE),
    "an instance is dropped": spec("full", about={"env": "fails", "seeds": [1, 2, 3]}),
    # Of the closer there are fewer rows than micro-steps: in the last optimizer step it has none.
    "too few rows of one": spec(
        "full", about={"seeds": [0, 5, 3]}, **SIX, **ADAM, loss_type="grpo", shared_prefix=False
    ),
    # Nobody has any in the last: the processes have nothing to wait for.
    "too few rows of all": spec(
        "full", about={"seeds": [6, 13, 3]}, **SIX, **ADAM, loss_type="bnpo", shared_prefix=False
    ),
    "too few groups": spec("full", about={"seeds": [0, 5, 3]}, **SIX, **ADAM, loss_type="grpo"),
    "bnpo, rows": spec("lora", loss_type="bnpo", shared_prefix=False, **TOGETHER),
    "two steps a generation, rows": spec("full", loss_type="grpo", shared_prefix=False, **INSIDE),
    "flat groups": spec("lora", about={"env": "flat"}, **FLAT, **WINDOWS),
    "flat groups, old log-probabilities": spec(
        "full", about={"env": "flat"}, **FLAT, loss_type="bnpo", num_iterations=2, **TOGETHER
    ),
    "a program": spec("lora", about={"env": "program", "credit": "grpo"}, **PARALLEL),
    "a program as a tree": spec("lora", about={"env": "program"}, max_steps=5),
    "a program that asks several at once": spec(
        "lora", about={"env": "fan-out program", "credit": "grpo"}, **PARALLEL
    ),
    "a program that asks several at once, as a tree": spec("lora", about={"env": "fan-out program"}, max_steps=5),
    "expert iteration": spec("lora", imitate="best", num_rounds=3, num_iterations=2, max_steps=8, **ADAM),
    "expert iteration, rows": spec("full", imitate="best", num_rounds=2, max_steps=6, shared_prefix=False),
    "bounded tokens": spec("lora", max_tokens_per_microbatch=60, beta=0.1, **WINDOWS),
    "bounded tokens, rows": spec("lora", max_tokens_per_microbatch=200, shared_prefix=False),
}
LANGGRAPH = {
    "sequence": spec("lora", about={"env": "sequence of LangGraph", "credit": "grpo"}, **PARALLEL),
    "sequence, as a tree": spec("lora", about={"env": "sequence of LangGraph"}, max_steps=5),
    "fan-out": spec("lora", about={"env": "fan-out of LangGraph", "credit": "grpo"}, **PARALLEL),
    "fan-out, as a tree": spec("lora", about={"env": "fan-out of LangGraph"}, max_steps=5),
}
SHARDED = {
    "L1": spec("shared", max_grad_norm=0.0),
    "L2": spec("lora", max_grad_norm=0.0),
    "L3": spec("full", max_grad_norm=0.0, **INSIDE),
    "mixture": spec("mixture", max_grad_norm=0.0),
    "flat groups": spec("lora", about={"env": "flat"}, **FLAT, max_grad_norm=0.0),
    "conversations, L2": spec("lora", history="conversation", max_grad_norm=0.0),
    "conversations, L3": spec(
        "full", history="conversation", loss_type="grpo", max_grad_norm=0.0, learning_rate=0.1, **INSIDE
    ),
}
OWN_REPLIES = {  # of the model, which each process samples at its own pace
    "L1, greedy": spec("shared", about={"real": True, "evaluate": True, "play": True, "save": True}, **GREEDY),
    "L2, greedy": spec("lora", about={"real": True, "save": True}, **GREEDY, beta=0.1),
    "L3, greedy": spec("full", about={"real": True, "save": True}, **GREEDY, beta=0.1),
    "mixture, greedy": spec("mixture", about={"real": True, "save": True}, **GREEDY, beta=0.1),
    "conversations, greedy": spec("lora", about={"real": True, "save": True}, **GREEDY, history="conversation"),
}


def check_same(one: dict[str, Any], other: dict[str, Any], name: str, *, metrics: bool = True) -> None:
    """The weights of two runs, and what their passes were: each row once, as many on each process."""
    found = difference(one, other)
    print(f"{name:32} {found:.1e}")
    assert found <= MOST
    first, second = other["passes"]
    assert first == second
    assert len(one["passes"]) == 1
    assert other["tokens"] == one["tokens"]
    assert other["table"] == one["table"]
    if metrics:
        check_metrics(one["log"], other["log"])


CLOCKS = ("runtime", "per_second", "time", "flos")
PASS_METRICS = ("clip_ratio", "policy_loss", "entropy", "kl", "vespo", "skipped_steps", "frac_tokens_read")
"""TRL's means over the processes' means, each of which counts as much whatever is in it."""
CALL_METRICS = ("sampled_tokens",)
"""The sampler of `ranks.py` tells equal prompts of one call apart, and continuations fall into other calls."""


def check_metrics(one: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]]) -> None:
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        names = {name for name in mine if not any(clock in name for clock in (*CLOCKS, *PASS_METRICS, *CALL_METRICS))}
        assert names <= theirs.keys()
        assert {name: theirs[name] for name in names} == pytest.approx(
            {name: mine[name] for name in names}, rel=1e-4, abs=1e-6, nan_ok=True
        )


# ---- DDP ------------------------------------------------------------------------------------------------------------


@FORKS
def test_a_mixture_on_two_processes_is_what_it_is_on_one(model_path: str, tmp_path: Path) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
    of_one, of_two = (listed(tmp_path / name, SHORT, model_path) for name in ("one", "two"))
    ranks.main(of_one, of_one.parent)
    assert in_two_processes(lambda _: ranks.main(of_two, of_two.parent), of_two.parent, seconds=120) == [None, None]
    one, other = report(tmp_path / "one", "mixture"), report(tmp_path / "two", "mixture")
    check_same(one, other, "mixture")
    assert len(set(other["num_played"])) == 2  # nobody waits: one had more to sample for than the other
    # Each has half of the rows that can move a weight; of an odd number one has a row that fills up.
    alone = sum(rows for _, rows in one["passes"][0])
    assert sum(rows for _, rows in other["passes"][0]) == -(-alone // 2)


@pytest.fixture(scope="module")
def one(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one")
    sharded = {f"sharded {name}": about for name, about in SHARDED.items()}
    launched(out, {**SAME, **OWN_REPLIES, **sharded}, model_path)
    return out


@pytest.fixture(scope="module")
def ddp(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ddp")
    launched(out, {**SAME, **OWN_REPLIES}, model_path, *two())
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SAME, *OWN_REPLIES])
def test_two_processes_train_as_one(name: str, one: Path, ddp: Path) -> None:
    check_same(report(one, name), report(ddp, name), name)


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore")
def test_teams_of_langgraph_are_trained_by_two_processes_as_by_one(model_path: str, tmp_path: Path) -> None:
    pytest.importorskip("langgraph")
    launched(tmp_path / "one", LANGGRAPH, model_path)
    launched(tmp_path / "two", LANGGRAPH, model_path, *two())
    for name in LANGGRAPH:
        check_same(report(tmp_path / "one", name), report(tmp_path / "two", name), name)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_two_processes_train_as_one_where_one_of_them_has_no_pictures(family: str, tmp_path: Path) -> None:
    make_processor, make_model = FAMILIES[family]
    make_model(make_processor(), initializer_range=0.1).save_pretrained(tmp_path / "model")
    # Words that are no control tokens.
    about = {"env": "few pictures", "family": family, "model": str(tmp_path / "model"), "first_word": 7}
    few = {"num_generations": 2, "learning_rate": 0.05, "shared_prefix": False, **TOGETHER}
    specs = {"L2": spec("lora", about=about, **few)}
    specs["L1, bounded tokens"] = spec("shared", about=about, **few, max_tokens_per_microbatch=200, beta=0.1)
    launched(tmp_path / "one", specs, "")
    launched(tmp_path / "two", specs, "", *two())
    for name in specs:
        one, other = report(tmp_path / "one", name), report(tmp_path / "two", name)
        check_same(one, other, f"{family} {name}")
        seeing = list(zip(*other["num_seeing"], strict=True))
        assert sum(map(sum, seeing)) == sum(one["num_seeing"][0]) > 0  # each row with a picture once
        assert any(min(pair) == 0 < max(pair) for pair in seeing), seeing


@pytest.mark.slow
def test_every_process_is_given_all_episodes_of_what_they_play_together(one: Path, ddp: Path) -> None:
    assert report(one, "L1")["episodes"] == [[0, 1, 2]]
    assert report(ddp, "L1")["episodes"] == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.slow
def test_a_slow_process_samples_less_where_rows_are_taken_one_by_one(ddp: Path) -> None:
    # Eight rows a generation, 24 in all, one at a time: the slow process plays one of each generation, or a few.
    fast, slow = report(ddp, "one process is slow")["num_played"]
    assert slow < fast / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["L1", "a stream"])
def test_rows_that_only_even_the_last_batch_are_not_evaluated(name: str, ddp: Path) -> None:
    # Five rows in batches of 8 for each of two processes: accelerate adds the first rows again.
    evaluated = report(ddp, name)["log"][-1]
    # Seeds 0 to 4 are of 1, 2, 3, 1, 2 turns for each of two.
    assert evaluated["eval_rollout/decisions"] == pytest.approx(2 * (1 + 2 + 3 + 1 + 2) / 5)


@pytest.mark.slow
def test_a_policy_without_rows_stands_still_on_every_process(ddp: Path) -> None:
    passes = [name for name, _ in report(ddp, "too few rows of one")["passes"][0]]
    assert passes.count("closer") == 4 * 3  # of six micro-steps, in three generations
    assert passes.count("opener") == 3 * 6 * 3  # 36 rows: each process three in every micro-step, one at a time
    assert len(report(ddp, "too few rows of all")["passes"][0]) == 2 * 4 * 3


@pytest.mark.slow
def test_two_processes_resume_inside_a_generation_to_the_last_bit_and_stop_together(
    model_path: str, tmp_path: Path
) -> None:
    def sampled(**more: Any) -> dict[str, Any]:
        return spec("mixture", about={"real": True, **more}, **SAVED)

    whole = {"whole": sampled(), "stopped": sampled(signal=[1, 2])}
    resumed = {
        f"from {step}": sampled(resume=str(tmp_path / "whole" / f"checkpoint-{step}")) for step in (1, 2, 3)
    } | {"gone on": sampled(resume=str(tmp_path / "stopped" / "checkpoint-2"))}
    launched(tmp_path, {**whole, **resumed}, model_path, *two())
    for name in resumed:
        assert difference(report(tmp_path, "whole"), report(tmp_path, name)) == 0
    assert report(tmp_path, "stopped")["stopped_by"] == "SIGTERM"  # this is the report of process 0; 1 got the signal
    saved = sorted(path.name for path in (tmp_path / "stopped").glob("checkpoint-*"))
    assert saved == ["checkpoint-1", "checkpoint-2"]
    files = {path.name for path in (tmp_path / "stopped" / "checkpoint-2").iterdir()}
    assert {"place_0.pt", "place_1.pt", "rng_state_0.pth", "rng_state_1.pth", "manifest.json"} <= files
    alone = {"alone": sampled(resume=str(tmp_path / "whole" / "checkpoint-1"))}
    said = launched(tmp_path / "alone", alone, model_path, succeeds=False)
    assert "saved inside a generation by 2 processes, but now there are 1. Resume with as many" in said


@pytest.mark.slow
def test_where_one_process_fails_the_other_does_not_wait(model_path: str, tmp_path: Path) -> None:
    about = {"env": "not a number", "seeds": [1, 2, 3], "fails": True}
    launched(tmp_path, {"lewd": spec("lora", about=about)}, model_path, *two())
    first, second = ((tmp_path / f"lewd.{process}.error").read_text() for process in range(2))
    assert first.startswith("RuntimeError: process 1 of 2 failed: ValueError: the environment gave ")
    assert second.startswith("ValueError: the environment gave ")


# ---- Sharded weights, optimizers and gradients ----------------------------------------------------------------------


@pytest.fixture(scope="module", params=KINDS)
def sharded(request: Any, model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    out = tmp_path_factory.mktemp(request.param)
    launched(out, {**SHARDED, **OWN_REPLIES}, model_path, *accelerated(request.param, out))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARDED)
def test_two_processes_that_share_weights_or_optimizer_train_as_one(name: str, one: Path, sharded: Path) -> None:
    other = report(sharded, name)
    assert other["is_sharded"] or other["kind"] == "DEEPSPEED"
    check_same(report(one, f"sharded {name}"), other, f"{sharded.name} {name}")


@pytest.mark.slow
def test_the_gradients_of_heads_that_are_not_tied_are_those_of_both_processes(model_path: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(model_path, tie_word_embeddings=False)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(model_path).save_pretrained(tmp_path / "model")
    specs = {"L3": spec("full", about={"model": str(tmp_path / "model")}, max_grad_norm=0.0, **INSIDE)}
    launched(tmp_path / "one", specs, "")
    launched(tmp_path / "two", specs, "", *accelerated("fsdp2", tmp_path))
    assert report(tmp_path / "two", "L3")["is_sharded"]
    check_same(report(tmp_path / "one", "L3"), report(tmp_path / "two", "L3"), "heads of their own")


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_REPLIES)
def test_what_they_sample_and_save_is_what_one_does(name: str, one: Path, sharded: Path) -> None:
    check_same(report(one, name), report(sharded, name), f"{sharded.name} {name}")
    for file in sorted((one / f"{name}-saved").rglob("*.safetensors")):
        mine, theirs = load(file), load(sharded / file.relative_to(one))
        assert mine.keys() <= theirs.keys()  # gathered, the head is beside the embedding that it is tied to
        assert all(torch.allclose(mine[key], theirs[key], atol=MOST) for key in mine)


def load(file: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(file)


@pytest.mark.slow
def test_what_they_save_loads_alone(sharded: Path, model_path: str) -> None:
    saved = sharded / "mixture, greedy-saved"
    AutoModelForCausalLM.from_pretrained(saved / "closer")
    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_path), saved / "opener")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["lora", "mixture"])
def test_they_resume_inside_a_generation(kind: str, layout: str, model_path: str, tmp_path: Path) -> None:
    options = {**SAVED, "max_grad_norm": 0.0}
    specs = {
        "whole": spec(layout, **options),
        "resumed": spec(layout, about={"resume": str(tmp_path / "whole" / "checkpoint-1")}, **options),
    }
    launched(tmp_path, specs, model_path, *accelerated(kind, tmp_path))
    assert difference(report(tmp_path, "whole"), report(tmp_path, "resumed")) == 0


# ---- The command ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", *KINDS[1:]])  # accelerate shards with FSDP2 on GPUs only
def test_the_command_trains_saves_and_evaluates_under_accelerate(kind: str, model_path: str, tmp_path: Path) -> None:
    run = {
        "env_id": "pettingllms/plan_path-v0",
        "env_kwargs": {"size": 4, "num_turns": 2},
        "imports": ["pettingllms_envs"],
        "model_name_or_path": model_path,
        "policies": "lora",
        "output_dir": str(tmp_path / "out"),
        "train_seeds": [0, 8],
        "eval_seeds": [8, 11],
        "num_generations": 2,
        "per_device_train_batch_size": 2,
        "max_completion_length": 4,
        "max_steps": 2,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    config = on_two_cpus(kind, tmp_path, **({"distributed_type": "MULTI_CPU"} if kind == "ddp" else {}))
    launcher = ["-m", "accelerate.commands.launch", f"--config_file={config}", f"--main_process_port={free_port()}"]
    command = ["-m", "pettingllms_trl.cli", "train", "--config", str(tmp_path / "run.yaml")]
    done = subprocess.run(
        [sys.executable, *launcher, *command],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    assert done.stdout.count("Saved in ") == 1
    results = json.loads((tmp_path / "out" / "eval_results.json").read_text())
    assert 0 <= results["eval_outcome/success"] <= 1
    for role in ("drafter", "planner"):
        PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_path), tmp_path / "out" / role)
    assert (tmp_path / "out" / "checkpoint-2" / "manifest.json").is_file()
