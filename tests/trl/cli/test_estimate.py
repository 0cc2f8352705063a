"""`pettingllms train --estimate`, as a person in a terminal meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from pettingllms_trl.cli import __main__ as cli
from pettingllms_trl.cli import estimate
from pettingllms_trl.cli.estimate import estimated
from pettingllms_trl.estimate.activations import OF_ENDS, OF_LAYER, PassBytes
from tiny_vlms import FAMILIES


RUN = {
    "env_id": "plan_path",
    "env_kwargs": {"size": 4, "num_turns": 2},
    "train_seeds": [0, 8],
    "per_device_train_batch_size": 4,
    "generation_batch_size": 32,
    "num_generations": 4,
    "max_completion_length": 24,
    "bf16": True,
    "report_to": "none",
    "prompt_tokens": 40,
}


def run(folder: Path, model: str, **more: Any) -> list[str]:
    file = folder / "run.yaml"
    chosen = {**RUN, "model_name_or_path": model, "output_dir": str(folder / "out"), **more}
    file.write_text(yaml.safe_dump({name: value for name, value in chosen.items() if value is not None}))
    return ["--config", str(file)]


def test_the_command_prints_memory_and_speed_and_makes_nothing(
    tmp_path: Path, model_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", *run(tmp_path, model_path, num_gpus=2), "--estimate"]) == 0
    out = capsys.readouterr().out
    assert "Computed, not measured: 2 x h100" in out
    assert "It fits." in out
    assert re.search(r"sampled and trained, one after the other +at most [\d,]+", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.yaml"]


def test_a_run_that_does_not_fit_is_an_error_that_says_what_to_change(
    tmp_path: Path, model_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(model_path, "config.json")
    config = json.loads(path.read_text("utf-8"))
    wide = tmp_path / "wide"
    wide.mkdir()
    (wide / "config.json").write_text(json.dumps({**config, "vocab_size": 6_000_000, "hidden_size": 1024}))
    # 6.1e9 parameters of the embeddings at 16 bytes are 98 GB.
    assert cli.main(["train", "--estimate", *run(tmp_path, str(wide), num_gpus=8)]) == 2
    shown = capsys.readouterr()
    assert "GB on each GPU of the trainer" in shown.out
    assert "error: an update takes" in shown.err
    assert "zero3.yaml (--sharding zero3)" in shown.err


def test_rows_are_shared_out_over_the_processes_of_the_run(tmp_path: Path, model_path: str) -> None:
    alone, four = (estimated(run(tmp_path, model_path, num_gpus=n)).plan for n in (1, 4))
    assert (alone.sequences, four.sequences) == (32, 8)  # 8 rows x K = 4; 2 rows x K = 4
    assert estimated(run(tmp_path, model_path, num_gpus=4, max_envs=1)).plan.sequences == 4
    parallel = run(tmp_path, model_path, num_gpus=4, max_envs=3, sampling="parallel")
    assert estimated([*parallel, "--credit", "grpo"]).plan.sequences == 3


def test_a_mini_batch_of_several_rollouts_is_named_with_the_accumulation_that_keeps_it(
    tmp_path: Path, model_path: str
) -> None:
    options = {"gradient_accumulation_steps": 4, "max_steps": 10}
    assert estimated(run(tmp_path, model_path, **options)).notes == ()  # 32 sequences in updates of 16
    (said,) = estimated(run(tmp_path, model_path, num_gpus=4, **options)).notes
    assert "4 x per_device_train_batch_size 4 x 4 processes) is larger than generation_batch_size 32" in said
    assert "max_steps 10 takes 20 rollouts" in said
    assert said.endswith(
        "Set gradient_accumulation_steps=2 for one optimizer step a rollout, or 1, which keeps one "
        "process's mini-batch of 16."
    )


def test_a_batch_that_cannot_be_shared_out_is_refused_in_the_words_of_the_trainer(
    tmp_path: Path, model_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "--estimate", *run(tmp_path, model_path, num_gpus=3)]) == 2
    assert "per_device_train_batch_size 4 x 3 processes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ("shared", [(True, 0, 0)]),
        ("lora", [(False, 2, 0)]),
        ("full", [(True, 0, 0), (True, 0, 0)]),
        ({"drafter": "d", "planner": {"trainable": False}}, [(False, 1, 0)]),
        ({"drafter": {"beta": 0.1}, "planner": {"beta": 0.1}}, [(True, 0, 1)]),
    ],
)
def test_policies_become_models_adapters_and_references(
    policies: Any, expected: list[tuple[bool, int, int]], tmp_path: Path, model_path: str
) -> None:
    models = estimated(run(tmp_path, model_path, policies=policies)).plan.models
    assert [(m.is_trained, m.num_adapters, m.num_references) for m in models] == expected


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_images_cost_memory_and_time_where_their_tower_is_trained(family: str, tmp_path: Path) -> None:
    make_processor, make_model = FAMILIES[family]
    model = make_model(make_processor())
    model.config.save_pretrained(tmp_path)
    tower = model.model.visual if family == "qwen" else model.model.vision_tower
    told = {"policies": "shared", "prompt_tokens": 40, "bf16": False, "dtype": "float32"}
    blind = estimated(run(tmp_path, str(tmp_path), **told))
    seeing = estimated(run(tmp_path, str(tmp_path), **told, image_tokens=16))
    shape = seeing.plan.models[0].shape
    assert shape.parameters == model.num_parameters()
    assert shape.vision == tower.num_parameters()
    # 4 rows of 16 tokens of 4 patches each and 64 hidden units, in float32; 2 layers, of which one is computed anew.
    activations = "activations and logits"
    assert shape.patches == 4
    assert seeing.update[activations] - blind.update[activations] == (2 + OF_ENDS + OF_LAYER) * 4 * 16 * 4 * 64 * 4
    # Of the patches of 16 tokens among the 800 that are assumed of a sequence.
    text = shape.parameters - shape.vision
    slower = (text + shape.vision * 64 / 800) / text
    assert blind.update_rate / seeing.update_rate == pytest.approx(slower)
    problems = estimated(run(tmp_path, str(tmp_path), **told, image_tokens=41)).problems
    assert "a prompt of 40 tokens does not hold 41 of images; prompt_tokens counts both." in " ".join(problems)


def test_what_samples_is_read_from_the_options_of_vllm(tmp_path: Path, model_path: str) -> None:
    def plan(**more: Any) -> Any:
        return estimated(run(tmp_path, model_path, **more)).plan

    assert plan().sampler == "generate"
    assert plan(use_vllm=True).sampler == "colocate"
    served = plan(use_vllm=True, vllm_mode="server")
    assert (served.sampler, served.models[0].on_server) == ("server", True)
    urls = {"planner": "http://one:8000"}
    mixed = plan(use_vllm=True, policies="full", vllm_server_urls=urls)
    assert [model.on_server for model in mixed.models] == [False, True]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"gpu": "h1000"}, "no GPU 'h1000'.*Did you mean 'h100'"),
        ({"sharding": "zero1"}, "sharding='zero1'; expected one of ddp, zero2, zero3, fsdp2.*'zero"),
        ({"num_gpus": 0}, "num_gpus=0; expected 1 or more"),
        ({"optim": "adafactor"}, "optim is 'adafactor'; expected one whose states are known: adamw_torch"),
        ({"use_cpu": True}, "use_cpu is True.*expected one on GPUs.*--use_cpu false"),
        ({"load_in_4bit": True}, "load_in_4bit or load_in_8bit is set"),
        ({"policies": {"drafter": {"trainable": False}, "planner": {"trainable": False}}}, "no policy is trained"),
        ({"num_gpu": 8}, "num_gpu.*num_gpus"),
    ],
)
def test_a_mistake_is_said_before_anything_is_counted(
    more: dict[str, Any], said: str, tmp_path: Path, model_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "--estimate", *run(tmp_path, model_path, **more)]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_without_a_network_it_is_said_which_folder_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("We couldn't connect to 'https://huggingface.co'.")

    monkeypatch.setattr(estimate.AutoConfig, "from_pretrained", refuse)
    assert cli.main(["train", "--estimate", *run(tmp_path, "team/model")]) == 2
    said = capsys.readouterr().err
    assert "the configuration of 'team/model' cannot be loaded: We couldn't connect to" in said
    assert "give a folder that has the model's config.json as model_name_or_path" in said


def help_of(option: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        cli.main(["train", option])
    return capsys.readouterr().out


def test_help_shows_our_fields_first_and_help_all_those_of_trl_too(capsys: pytest.CaptureFixture[str]) -> None:
    short, whole = help_of("--help", capsys), help_of("--help-all", capsys)
    assert 3 * len(short.splitlines()) < len(whole.splitlines())
    assert short.index("--credit") < short.index("--canary") < short.index("--learning_rate")
    assert "--lr_scheduler_kwargs" not in short
    assert "--lr_scheduler_kwargs" in whole
    assert set(re.findall(r"^  (--\w+)", short, re.M)) < set(re.findall(r"^  (--\w+)", whole, re.M))


def test_help_shows_the_options_of_the_estimate_and_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["train", "--help"])
    assert done.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("usage: pettingllms train --config FILE [--field value ...]")
    for option, default in {"gpu": "h100", "num_gpus": "1", "sharding": "ddp", "prompt_tokens": "500"}.items():
        assert re.search(rf"  ?--{option} {option.upper()}.*? With --estimate: [^()]*\(default: {default}\)", shown)
    assert "--estimate [ESTIMATE]" in shown


def test_an_update_is_measured_as_its_sharding_passes_weights(
    tmp_path: Path, model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int, torch.dtype]] = []

    def pass_bytes(_: Any, *, rows: int, length: int, dtype: torch.dtype, **__: Any) -> PassBytes:
        asked.append((rows, length, dtype))
        return PassBytes(0, 0)

    monkeypatch.setattr(estimate, "pass_bytes", pass_bytes)
    options = {"dtype": "float32", "use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": 50}
    for sharding in ("ddp", "zero3"):
        estimated(run(tmp_path, model_path, num_gpus=2, sharding=sharding, **options))
    # Prompts of 40 and completions of 24 tokens are cut at 50.
    assert asked[0] == (4, 50, torch.float32)
    assert (4, 50, torch.bfloat16) in asked
    assert max(length for _, length, _ in asked) <= 64  # longer ones are tried, too, as vllm_max_model_length


def test_an_engine_over_more_gpus_than_divide_the_processes_is_refused_as_the_run_refuses_it(
    tmp_path: Path, model_path: str
) -> None:
    options = run(tmp_path, model_path, num_gpus=8, use_vllm=True, vllm_mode="colocate", vllm_tensor_parallel_size=3)
    with pytest.raises(ValueError, match="vllm_tensor_parallel_size=3 with 8 processes; expected a divisor"):
        estimated(options)
