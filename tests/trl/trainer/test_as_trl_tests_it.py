"""What TRL's own tests ask of GRPOTrainer, asked of ours with one agent and one turn: the list is trl_tests.py."""

from __future__ import annotations

import json
import logging
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from datasets import Dataset, DatasetDict, IterableDatasetDict
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Cohere2Config,
    Gemma2Config,
    GptOssConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Qwen3ForSequenceClassification,
    Qwen3MoeConfig,
)
from trl import GRPOTrainer

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from short_runs import SHORT
from third_party import OneShot
from trl_tests import CASES, MEANING, Checks, How, Inherits, Refused, Train, render


pytestmark = pytest.mark.filterwarnings("ignore:the reward function")  # TRL's tests have constant ones


class Ask(OneShot):
    """Shows the row's prompt, once, and leaves rewards to reward functions: what TRL's data sets mean."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.question = (options or {}).get("prompt", "What is better?")

    def observe(self, agent: str) -> str:
        return self.question

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = {"solver_0": 0.0}


class Chat(Ask):
    """The same as a conversational prompt."""

    def observe(self, agent: str) -> Any:
        return {"text": self.question}


LINES = ["Beautiful is better than", "Explicit is", "Simple is better", "Complex", "Flat is better than", "Sparse"] * 3
ROWS = Dataset.from_dict({"prompt": LINES})
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}
EXPERTS = {"num_experts_per_tok": 2, "output_router_logits": False}
MODELS: dict[str, Callable[[int], Any]] = {
    "qwen2": lambda size: Qwen2Config(vocab_size=size, tie_word_embeddings=False, **SMALL),
    "cohere2": lambda size: Cohere2Config(vocab_size=size, **SMALL),
    "gemma2": lambda size: Gemma2Config(vocab_size=size, **SMALL),
    "qwen3_moe": lambda size: Qwen3MoeConfig(
        vocab_size=size, num_experts=4, moe_intermediate_size=16, **EXPERTS, **SMALL
    ),
    "gpt_oss": lambda size: GptOssConfig(vocab_size=size, num_local_experts=4, **EXPERTS, **SMALL),
}


@pytest.fixture(scope="session")
def model_of(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """A tiny model of a family: its path, or one with an adapter."""
    made: dict[str, str] = {}

    def path_of(family: str) -> str:
        if family not in made:
            path = tmp_path_factory.mktemp(family)
            torch.manual_seed(0)
            AutoModelForCausalLM.from_config(MODELS[family](len(tokenizer))).save_pretrained(path)
            tokenizer.save_pretrained(path)
            made[family] = str(path)
        return made[family]

    def model_of(name: str) -> Any:
        family, _, adapter = name.partition(" with an adapter")
        if name == family:
            return path_of(family)
        own = {"target_modules": "all-linear"} if not adapter else {"target_parameters": ["mlp.experts.down_proj"]}
        return get_peft_model(AutoModelForCausalLM.from_pretrained(path_of(family)), LoraConfig(**own))

    return model_of


@pytest.fixture(scope="session")
def classifier(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("classifiers") / "critic"
    torch.manual_seed(0)
    Qwen3ForSequenceClassification(Qwen3Config.from_pretrained(model_path, num_labels=1)).save_pretrained(path)
    AutoTokenizer.from_pretrained(model_path).save_pretrained(path)
    return str(path)


# ---- Reward functions ---------------------------------------------------------------------------------------------


def length(completions: Any, **_: Any) -> list[float]:
    return [float(len(completion)) for completion in completions]


def variety(completions: Any, **_: Any) -> list[float]:
    return [float(len(set(completion))) for completion in completions]


async def later(completions: Any, **_: Any) -> list[float]:
    return variety(completions)


def constant_1(completions: Any, **_: Any) -> list[float]:
    return [1.0] * len(completions)


def constant_0(completions: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)


def none(completions: Any, **_: Any) -> list[None]:
    return [None] * len(completions)


def near_value(completions: Any, value: list[int], **_: Any) -> list[float]:
    return [-abs(given - number) for given, number in zip(length(completions), value, strict=True)]


def is_conversational(completions: Any, **_: Any) -> list[float]:
    assert [completion[0]["role"] for completion in completions] == ["assistant"] * 3
    return [float(len(completion[0]["content"])) for completion in completions]


def is_standard(prompts: Any, completions: Any, **_: Any) -> list[float]:
    assert set(prompts) <= set(LINES)
    return [float(len(completion)) for completion in completions if isinstance(completion, str)]


def looks_at_state(completions: Any, trainer_state: Any, **_: Any) -> list[float]:
    assert trainer_state.global_step in (0, 1)
    return length(completions)


def logs_extra(completions: Any, log_extra: Any, **_: Any) -> list[float]:
    log_extra("test_column", [completion[:5] for completion in completions])
    return length(completions)


def logs_metric(completions: Any, log_metric: Any, **_: Any) -> list[float]:
    log_metric("custom_accuracy", 0.75)
    return length(completions)


# ---- The trainer of a case ----------------------------------------------------------------------------------------


@pytest.fixture
def trainer_of(
    model_of: Callable[[str], Any],
    classifier: str,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> Callable[..., MultiAgentGRPOTrainer]:
    def trainer_of(
        *, options: Any = (), model: str = "qwen2", rewards: Any = ("length",), given: Any = (), **more: Any
    ) -> MultiAgentGRPOTrainer:
        settings = {
            **SHORT,
            "learning_rate": 0.1,
            "per_device_train_batch_size": 3,
            "num_generations": 3,
            "max_steps": 2,
            "gradient_checkpointing": True,
            "logging_steps": 2,
            **dict(options),
        }
        shouting = PreTrainedTokenizerFast.from_pretrained(model_of("qwen2"), padding_side="left")
        shouting.chat_template = "{% if shout %}AAAAAAAA{% endif %}" + tokenizer.chat_template
        named = {
            "rows": ROWS,
            "stream": ROWS.to_iterable_dataset(),
            "values": ROWS.add_column("value", list(range(len(ROWS)))),
            "adapter": LoraConfig(target_modules="all-linear"),
            "adapter_on_head": LoraConfig(target_modules=["q_proj", "lm_head"]),
            "other_tokenizer": AutoTokenizer.from_pretrained(classifier),
            "tools": [],
            "env": Ask,
            "chat": Chat,
        }
        if "chat_template_kwargs" in settings:
            more["processing_class"] = shouting
        own = {name: named[value] for name, value in dict(given).items()}
        functions = [classifier if name == "classifier" else globals()[name] for name in rewards]
        return MultiAgentGRPOTrainer(
            model_of(model),
            args=MultiAgentGRPOConfig(str(tmp_path), **settings),
            **{"env": Ask, "train_dataset": ROWS, "reward_funcs": functions or None, **own, **more},
        )

    return trainer_of


# Of the runs of two steps: one of each kind of model, data set, reward and check; test_equals_trl.py has the losses.
QUICK = {
    "test_train-3",
    "test_train_with_iterable_dataset-0",
    "test_train_with_num_generations_eval-0",
    "test_train_peft_config-0",
    "test_train_different_reward_model-0",
    "test_train_reward_func_conversational-0",
    "test_train_multiple_reward_funcs_with_None_output-0",
    "test_train_reward_func_with_log_extra-0",
    "test_train_with_cast_lm_head_to_fp32-0",
    "test_train_with_mask_truncated_completions_all_masked-0",
    "test_train_with_chat_template_kwargs-0",
}


def each() -> list[Any]:
    return [
        pytest.param(how, id=f"{case.name}-{i}", marks=() if quick else pytest.mark.slow)
        for case in CASES
        for i, how in enumerate(case.hows)
        for quick in [not isinstance(how, Train) or f"{case.name}-{i}" in QUICK]
    ]


@pytest.mark.filterwarnings("ignore:.*Model has `tie_word_embeddings=True`:UserWarning")
@pytest.mark.filterwarnings("ignore:shared_prefix=True, but .* has a router:UserWarning")
@pytest.mark.parametrize("how", each())
def test_what_trl_asks_of_its_trainer(
    how: How, trainer_of: Callable[..., MultiAgentGRPOTrainer], request: pytest.FixtureRequest
) -> None:
    match how:
        case Inherits(method=method):
            assert getattr(MultiAgentGRPOTrainer, method) is getattr(GRPOTrainer, method)
        case Refused():
            with pytest.raises(how.error, match=how.message):
                trainer_of(options=how.options, rewards=how.rewards, given=how.given)
        case Checks(name=name):
            CHECKS[name](trainer_of, request)
        case Train():
            check_training(how, trainer_of)


def check_training(how: Train, trainer_of: Callable[..., MultiAgentGRPOTrainer]) -> None:
    trainer = trainer_of(options=how.options, model=how.model, rewards=how.rewards, given=how.given)
    before = {name: p.clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
    whole = trainer.ref_model if isinstance(trainer.ref_model, torch.nn.Module) else None  # or the adapter's copy
    reference = {} if whole is None else {n: p.clone() for n, p in whole.named_parameters()}
    if how.check == "base_stays":
        assert all("lora_" in name for name in before)
    trainer.train()
    logged = {key for log in trainer.state.log_history for key, value in log.items() if value is not None}
    assert {"train_loss", *how.logs} <= logged
    after = dict(trainer.model.named_parameters())
    still = [name for name in before if torch.equal(before[name], after[name])]
    assert still == ([] if how.moves else list(before))
    check_after(how, trainer, reference)


def check_after(how: Train, trainer: MultiAgentGRPOTrainer, reference: dict[str, torch.Tensor]) -> None:
    first, last = trainer.state.log_history[0], trainer.state.log_history[-1]
    match how.check:
        case "no_dispatch":
            assert trainer.args.accelerator_config.dispatch_batches is False
        case "reward_is_0.7":
            assert first["reward"] == pytest.approx(0.7)
        case "reference_moved":
            now = dict(trainer.ref_model.named_parameters())
            assert reference
            assert not any(torch.equal(reference[name], now[name]) for name in reference)
        case "head_is_float32":
            assert trainer.model.lm_head.weight.dtype == torch.float32
        case "entropy_coef_rose_once_a_step":
            assert trainer.entropy_coef == pytest.approx(0.01 + 0.005 * trainer.state.global_step)
        case "entropy_bonus_is_the_mean":
            logs = [log for log in trainer.state.log_history if log.get("entropy")]
            shares = [(log["policy_loss"] - log["loss"]) / log["entropy"] for log in logs]
            assert statistics.median(shares) == pytest.approx(0.5, rel=1e-3)
        case "train_loss_is_0":
            assert last["train_loss"] == pytest.approx(0.0)
        case "extra_column":
            (file,) = (Path(trainer.args.output_dir) / "completions").iterdir()
            table = pandas.read_parquet(file)
            assert table["test_column"].tolist() == [row[0]["content"][:5] for row in table["completion"]]
        case "template_was_told":
            (episode,) = trainer.play([{"prompt": "Complex"}])
            assert trainer.processing_class.decode(episode.decisions[0].prompt.ids).startswith("AAAAAAAA<|user|>")
        case "" | "base_stays":
            pass
        case _:
            raise AssertionError(how.check)


# ---- Checks of their own ------------------------------------------------------------------------------------------


def init_minimal(trainer_of: Any, request: Any) -> None:
    folder = str(request.getfixturevalue("tmp_path"))
    args = MultiAgentGRPOConfig(folder, use_cpu=True, sampling="tree")  # on a machine without a GPU
    model = request.getfixturevalue("model_path")
    assert MultiAgentGRPOTrainer(model, Ask, args, train_dataset=ROWS, reward_funcs=length).args is args


REMOTE = """
from transformers import Qwen3Config, Qwen3ForCausalLM
class RemoteConfig(Qwen3Config):
    model_type = "remote"
class RemoteForCausalLM(Qwen3ForCausalLM):
    config_class = RemoteConfig
"""


def trust_remote_code(trainer_of: Any, request: Any) -> None:
    path = request.getfixturevalue("tmp_path") / "remote"
    shutil.copytree(request.getfixturevalue("model_path"), path)
    (path / "modeling_remote.py").write_text(REMOTE)
    config = json.loads((path / "config.json").read_text())
    classes = {"AutoConfig": "RemoteConfig", "AutoModelForCausalLM": "RemoteForCausalLM"}
    config |= {"model_type": "remote", "architectures": ["RemoteForCausalLM"]}
    config |= {"auto_map": {k: f"modeling_remote.{name}" for k, name in classes.items()}}
    (path / "config.json").write_text(json.dumps(config))

    def make(**options: Any) -> Any:
        args = MultiAgentGRPOConfig(str(path.parent / "out"), report_to="none", use_cpu=True, bf16=False, **options)
        return MultiAgentGRPOTrainer(str(path), Ask, args, ROWS, reward_funcs=length)

    with pytest.raises(ValueError, match="custom code"):
        make()
    assert type(make(trust_remote_code=True).model).__name__ == "RemoteForCausalLM"


def evaluation_sets() -> dict[str, Any]:
    rows, stream = ROWS.select(range(2)), ROWS.select(range(2)).to_iterable_dataset()
    return {
        "dataset": rows,
        "iterable_dataset": stream,
        "dataset_dict": DatasetDict({"data1": rows, "data2": rows}),
        "iterable_dataset_dict": IterableDatasetDict({"data1": stream, "data2": stream}),
        "dict_of_dataset": {"data1": rows, "data2": rows},
        "dict_of_iterable_dataset": {"data1": stream, "data2": stream},
    }


def init_with_eval_dataset(trainer_of: Any, request: Any) -> None:
    for given in [*evaluation_sets().values(), None]:
        trainer = trainer_of(eval_dataset=given)
        if isinstance(given, dict):
            assert set(trainer.eval_dataset) == {"data1", "data2"}
        else:
            assert trainer.eval_dataset is given


def iterable_dataset_forces_num_workers_zero(trainer_of: Any, request: Any) -> None:
    trainer = trainer_of(options={"dataloader_num_workers": 4}, given={"train_dataset": "stream"})
    assert trainer.args.dataloader_num_workers == 0


def iterable_eval_keeps_workers(trainer_of: Any, request: Any) -> None:
    trainer = trainer_of(options={"dataloader_num_workers": 2}, eval_dataset=ROWS.to_iterable_dataset())
    assert trainer.get_train_dataloader().num_workers == 2
    assert trainer.get_eval_dataloader().num_workers == 0
    assert trainer.args.dataloader_num_workers == 2


def evaluate_with_eval_dataset(trainer_of: Any, request: Any) -> None:
    for number in (1, 3):  # K episodes of each row, a stream's too
        trainer = trainer_of(options={"num_generations_eval": number, "per_device_eval_batch_size": 3})
        for given in evaluation_sets().values():
            played = len(trainer.state.log_history)
            metrics = trainer.evaluate(eval_dataset=given)
            names = ["eval_data1", "eval_data2"] if isinstance(given, dict) else ["eval"]
            assert "eval_reward" in metrics or names != ["eval"]
            assert not any(f"{name}_loss" in metrics for name in names)
            for log in trainer.state.log_history[played:]:
                if "eval_rollout/completion_tokens" in log:
                    assert log["eval_rollout/completion_tokens"] <= 2 * number * 8
                    assert log["eval_rollout/completion_tokens"] > (2 * number - 1) * 1


def warns_of_sequence_level(trainer_of: Any, request: Any) -> None:
    caplog = request.getfixturevalue("caplog")
    for loss in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo"):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="trl.trainer.grpo_trainer"):
            trainer_of(options={"importance_sampling_level": "sequence", "loss_type": loss})
        assert ("weights each sequence by its completion length" in caplog.text) == (loss != "grpo")


def training_step_is_given_each_row_once(trainer_of: Any, request: Any) -> None:
    options = {"steps_per_generation": 4, "num_generations": 4, "per_device_train_batch_size": 6, "num_iterations": 2}
    trainer = trainer_of(
        options={**options, "gradient_accumulation_steps": 3, "shuffle_dataset": False, "max_steps": 4}
    )
    given, step = [], trainer.training_step
    trainer.training_step = lambda model, inputs, *rest: [given.append(inputs), step(model, inputs, *rest)][1]
    trainer.train()
    # 4 x 6 / 4 rows a generation, for 4 x 2 micro-steps, of which 12 are made.
    assert given == [[{"prompt": line} for line in LINES[:6]]] * 8 + [[{"prompt": line} for line in LINES[6:12]]] * 4


def training_without_rows(trainer_of: Any, request: Any) -> None:
    with pytest.raises(ValueError, match=r"train\(\) needs a train_dataset"):
        trainer_of(train_dataset=None).train()


def reward_processing_classes(trainer_of: Any, request: Any) -> None:
    tokenizers = [AutoTokenizer.from_pretrained(request.getfixturevalue("classifier")) for _ in range(2)]
    trainer_of(rewards=["classifier", "classifier"], reward_processing_classes=tokenizers)
    trainer_of(rewards=["classifier"], reward_processing_classes=tokenizers[0])


CHECKS: dict[str, Callable[[Any, Any], None]] = {
    check.__name__: check
    for check in (
        init_minimal,
        trust_remote_code,
        init_with_eval_dataset,
        iterable_dataset_forces_num_workers_zero,
        iterable_eval_keeps_workers,
        evaluate_with_eval_dataset,
        warns_of_sequence_level,
        training_step_is_given_each_row_once,
        training_without_rows,
        reward_processing_classes,
    )
}


# ---- The table ----------------------------------------------------------------------------------------------------


def test_every_line_has_a_reason_or_a_run() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert all(case.why or case.hows for case in CASES)
    assert all(case.why for case in CASES if case.verdict != "passes")
    assert {case.verdict for case in CASES} == set(MEANING)


def test_the_page_says_what_the_table_says() -> None:
    page = Path(__file__).parents[3] / "benchmarks" / "results" / "trl_tests.md"
    assert page.read_text(encoding="utf-8") == render(), (
        "it is stale: PYTHONPATH=.:tests/trl python tests/trl/trl_tests.py > benchmarks/results/trl_tests.md"
    )
