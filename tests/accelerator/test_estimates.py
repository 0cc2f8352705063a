"""`pettingllms train --estimate`: a step of a configuration on shapes, at its real size, in a child process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, Qwen3Config, Qwen3ForCausalLM

from on_device import launched


RUN = {
    "env_id": "plan_path",
    "env_kwargs": {"size": 4, "num_turns": 2},
    "train_seeds": [0, 8],
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "generation_batch_size": 16,
    "num_generations": 4,
    "max_completion_length": 24,
    "prompt_tokens": 40,
    "bf16": False,
    "report_to": "none",
}
WIDTH, LAYERS, VOCABULARY = 64, 3, 300
QWEN = Qwen3Config(
    vocab_size=VOCABULARY,
    hidden_size=WIDTH,
    intermediate_size=160,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    tie_word_embeddings=True,
    max_position_embeddings=512,
    architectures=["Qwen3ForCausalLM"],
    eos_token_id=1,
    pad_token_id=0,
)
LLAMA = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=WIDTH,
    intermediate_size=160,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=512,
    architectures=["LlamaForCausalLM"],
)
PLAIN = {"gradient_checkpointing": False}
VLLM = {"use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": 60, "policies": "lora"}
RUNS: dict[str, dict[str, Any]] = {
    "L1": {"policies": "shared", **PLAIN},
    "L1, an update for two generations": {"policies": "shared", **PLAIN, "gradient_accumulation_steps": 8},
    "L1, ZeRO-3 on 2": {"policies": "shared", "num_gpus": 2, "sharding": "zero3"},
    "L3 with references": {"policies": "full", "beta": 0.1},
    "Llama, L2, checkpoints": {"policies": "lora", "model": "llama"},
    "vLLM": {**VLLM, "vllm_gpu_memory_utilization": 0.5},
    "vLLM, long prompts": {**VLLM, "vllm_max_model_length": 124, "prompt_tokens": 100},
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a model that does not fit": (
        {"model": "wide", "num_gpus": 8, "generation_batch_size": 64},
        "GB on each GPU; h100 has 80. It fits on 8 GPUs with zero2.yaml (--sharding zero2) or zero3.yaml",
    ),
    "a wrong target module": ({"policies": "lora", "lora_target_modules": ["nope"]}, "nope"),
    "a context too short": (
        {"prompt_tokens": 600},
        "a prompt of 600 tokens leaves MODEL no room for a completion: both together are 512 tokens at most.",
    ),
    "a batch that does not divide": ({"num_gpus": 3}, "per_device_train_batch_size 4 x 3 processes"),
    "a head of another type": ({"model": "classifier"}, "Qwen3ForSequenceClassification"),
    "heads that do not divide": ({"model": "heads"}, "a step of this training fails on the simulated GPU:"),
    "an optimizer of 8 bits": ({"optim": "adamw_8bit"}, "optim is 'adamw_8bit', whose states of 8 bits and less"),
    "weights in 4 bits": ({"load_in_4bit": True}, "load_in_4bit or load_in_8bit is set"),
    "an engine over processes that it does not divide": (
        {**VLLM, "num_gpus": 4, "vllm_tensor_parallel_size": 3},
        "vllm_tensor_parallel_size=3 with 4 processes; expected a divisor",
    ),
    "a setting that the environment does not have": ({"env_kwargs": {"sise": 4}}, "env_kwargs is {'sise': 4}"),
    "no policy that is trained": (
        {"policies": {"drafter": {"trainable": False}, "planner": {"trainable": False}}},
        "no policy is trained",
    ),
    "a CPU": ({"use_cpu": True}, "use_cpu is True"),
    "a GPU that nobody sells": ({"gpu": "h1000"}, "no GPU 'h1000' in the table"),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("estimates")
    changed = {
        "qwen": QWEN,
        "llama": LLAMA,
        "wide": {"hidden_size": 1024, "intermediate_size": 700_000},
        "classifier": {"architectures": ["Qwen3ForSequenceClassification"]},
        "heads": {"num_key_value_heads": 3},
    }
    for name, config in changed.items():
        made = Qwen3Config(**{**QWEN.to_dict(), **config}) if isinstance(config, dict) else config
        made.save_pretrained(folder / name)
    cases = {
        name: arguments(folder, **more)
        for name, more in {**RUNS, **{name: more for name, (more, _) in WRONG.items()}}.items()
    }
    file = folder / "cases.json"
    file.write_text(json.dumps(cases), "utf-8")
    launched("estimates", str(file), timeout=600)
    return {"folder": folder, **json.loads(file.read_text("utf-8"))}


def arguments(folder: Path, *, model: str = "qwen", **more: Any) -> list[str]:
    file = folder / f"{len(list(folder.glob('*.yaml')))}.yaml"
    chosen = {**RUN, "model_name_or_path": str(folder / model), "output_dir": str(folder / "out"), **more}
    file.write_text(json.dumps(chosen), "utf-8")  # which YAML reads
    return ["--config", str(file)]


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_created_or_run_is_told_in_a_sentence(name: str, found: dict[str, Any]) -> None:
    expected = WRONG[name][1].replace("MODEL", str(found["folder"] / "qwen"))
    assert expected in " ".join(found[name]["problems"])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_fits_has_figures_of_each_phase(name: str, found: dict[str, Any]) -> None:
    case = found[name]
    assert case["problems"] == []
    phases = {"creation", "references", "rollout", "scoring", "backward", "optimizer step", "save"}
    assert set(case["memory"]) == phases
    assert all(size < 80e9 for size in case["memory"].values())
    assert case["work"]["backward"]["flops"] > case["work"]["save"]["flops"] == 0
    assert "one of bytes stands in" in case["text"]
    assert "Not checked: that packed rows" in case["text"]


NUMBER = Qwen3ForCausalLM(QWEN).num_parameters()


def test_weights_gradients_and_states_are_those_of_the_parameters(found: dict[str, Any]) -> None:
    state = found["L1"]["state"]
    assert (state["weights"], state["gradients"]) == (4 * NUMBER, 4 * NUMBER)
    assert state["optimizer"] == pytest.approx(8 * NUMBER, rel=1e-3)  # and a count for each parameter
    sharded = found["L1, ZeRO-3 on 2"]["state"]
    assert (sharded["weights"], sharded["optimizer"]) == (2 * NUMBER / 2, 12 * NUMBER / 2)
    held = found["L3 with references"]["held"]
    assert sum(part["parameters"] for part in held if part["is_reference"]) == NUMBER  # shared by both roles
    assert sum(part["parameters"] for part in held if part["is_trained"]) == 2 * NUMBER


def test_a_rollout_is_of_one_generation_though_an_update_waits_for_several(found: dict[str, Any]) -> None:
    one, half = found["L1"], found["L1, an update for two generations"]
    assert half["seconds"]["rollout"] == pytest.approx(one["seconds"]["rollout"])
    # One generation is two updates of two passes there, and half of one of eight here.
    assert half["seconds"]["backward"] == pytest.approx(4 * one["seconds"]["backward"], rel=0.05)


@pytest.mark.parametrize(("name", "key_heads", "layers"), [("qwen", 2, 3), ("llama", 4, 2)])
def test_operations_of_a_dense_pass_are_six_for_each_parameter_and_token_and_attention(
    name: str, key_heads: int, layers: int, found: dict[str, Any]
) -> None:
    # Matrices of queries and results, of keys and values, and of the part between, in each layer; and the head.
    matrices = layers * (2 * WIDTH * WIDTH + 2 * WIDTH * 16 * key_heads + 3 * WIDTH * 160) + WIDTH * VOCABULARY
    tokens, rows = 2 * 50, 2
    # Scores and sums of values: 4 heads of 16; forward once, backward two and a half times.
    attention = 3.5 * 2 * 2 * layers * rows * 50 * 50 * 4 * 16
    assert found["operations"][name] == pytest.approx(6 * matrices * tokens + attention, rel=0.02)


def test_checkpoints_take_a_forward_pass_more_and_adapters_no_gradients_of_the_base(found: dict[str, Any]) -> None:
    state = found["Llama, L2, checkpoints"]["state"]
    assert state["gradients"] < state["weights"] / 2


def test_an_engine_takes_its_share_and_samples_as_long_as_its_sequences_are(found: dict[str, Any]) -> None:
    short, long = found["vLLM"], found["vLLM, long prompts"]
    # 0.5 of 80 GB, and a tenth for CUDA and fragments.
    assert short["memory"]["rollout"] == pytest.approx(48e9, rel=0.001)
    assert short["work"]["rollout"]["flops"] == 0
    assert long["seconds"]["rollout"] >= short["seconds"]["rollout"] > 0
    assert found["L1"]["seconds"]["rollout"] != short["seconds"]["rollout"]
