"""What a model's folder says of sampling: it governs no training, is named once, and is saved with the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, GenerationConfig

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.engines.folder_sampling import DROPPED, KEPT, dropped_of, without_folder_sampling
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model
from short_runs import KeepsDecisions, adapter, settings
from third_party import OneShot


GIVEN = {"max_new_tokens": 8, "do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "pad_token_id": 0}
SAYS: dict[str, Any] = {
    "min_p": 0.9,  # keeps the likeliest tokens
    "epsilon_cutoff": 0.01,
    "typical_p": 0.05,
    "suppress_tokens": [*range(5, 200)],  # forbids tokens
    "bad_words_ids": [[t] for t in range(5, 200)],
    "sequence_bias": [[[7], 30.0]],  # moves logits
    "repetition_penalty": 50.0,  # looks at what was sampled
    "exponential_decay_length_penalty": [0, 90.0],  # of the number of tokens
    "forced_eos_token_id": 9,
    "num_beams": 4,  # is another search
    "num_return_sequences": 2,  # gives more rows
    "return_dict_in_generate": True,  # gives another type
    "stop_strings": ["a"],  # wants a tokenizer
    "guidance_scale": 3.0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("says"), byte_tokenizer(), initializer_range=0.2)


@pytest.fixture(scope="module")
def model(folder: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder)


def sampled(model: Any) -> list[list[int]]:
    torch.manual_seed(0)
    ids = torch.tensor([[65, 66, 67]] * 4)
    return model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=GenerationConfig(**GIVEN)
    ).tolist()


@pytest.mark.parametrize("name", SAYS)
def test_whatever_a_folder_says_sampling_is_as_without_it(
    name: str, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = sampled(model)
    with without_folder_sampling(model):
        assert sampled(model) == control
    monkeypatch.setattr(model.generation_config, name, SAYS[name])
    with without_folder_sampling(model):
        assert sampled(model) == control
    assert getattr(model.generation_config, name) == SAYS[name]
    is_of_output = name.startswith(("output_", "return_"))
    assert dropped_of(model, GenerationConfig(**GIVEN)) == ({} if is_of_output else {name: SAYS[name]})


def test_each_setting_of_generate_is_kept_or_dropped() -> None:
    # A new one of transformers is dropped. Those that are kept choose no token.
    assert {*KEPT, *DROPPED} == {name for name in vars(GenerationConfig()) if not name.startswith("_")}


@pytest.mark.parametrize("policies", ["shared", "lora", pytest.param("full", marks=pytest.mark.slow)])
def test_a_training_names_what_it_drops_and_saves_it(
    policies: str, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    for name, value in {"min_p": 0.9, "no_repeat_ngram_size": 1, "temperature": 0.01, "do_sample": True}.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(tmp_path / "says")
    byte_tokenizer().save_pretrained(tmp_path / "says")
    found = []
    for path in (folder, str(tmp_path / "says")):
        credit = KeepsDecisions()
        trainer = MultiAgentGRPOTrainer(
            path,
            OneShot,
            settings(tmp_path / "run"),
            Dataset.from_dict({"seed": range(2)}),
            policies=policies,
            peft_config=adapter() if policies == "lora" else None,
            credit=credit,
        )
        trainer.train()
        found.append(sorted(c.completion.ids for d in credit.decisions for c in d.candidates))
    assert found[0] == found[1]
    # The temperature is the configuration's, and no difference to TRL.
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "generation_config.json" in line]
    assert line.startswith("Not used: min_p=0.9, no_repeat_ngram_size=1 of policy '")
    if policies == "shared":
        trainer.save_model(str(tmp_path / "saved"))
        assert json.loads((tmp_path / "saved" / "generation_config.json").read_text())["min_p"] == 0.9
