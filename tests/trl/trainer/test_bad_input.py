"""A user's mistake is refused before a model is loaded: the model of every case here does not exist."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, IterableDataset
from gymnasium import spaces
from peft import LoraConfig
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig

from pettingllms_envs import plan_path_v0
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from third_party import Relay


class Board(Relay):
    """Observations are a dict of numbers, as most of PettingZoo's are."""

    def observe(self, agent: str) -> Any:
        return {"observation": [0, 1], "action_mask": [1]}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Dict({})


OPTIONS = ("sampling", "max_grad_norm", "cast_lm_head_to_fp32", "generation_batch_size")


def reward(prompts: Any, completions: Any, **columns: Any) -> list[float]:
    return [0.0] * len(completions)


def trainer(path: Path, *, options: dict[str, Any] | None = None, **given: Any) -> MultiAgentGRPOTrainer:
    arguments = {
        "model": "/no/such/model",
        "env": Relay,
        "train_dataset": Dataset.from_dict({"seed": range(8)}),
        "args": MultiAgentGRPOConfig(output_dir=str(path), report_to="none", use_cpu=True, **(options or {})),
    }
    return MultiAgentGRPOTrainer(**{**arguments, **given})


def test_a_sound_call_gets_as_far_as_loading_the_model(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="/no/such/model"):
        trainer(tmp_path)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"env": "pettingllms/plan_pth-v0"},
            ValueError,
            r"no environment 'pettingllms/plan_pth-v0'\. Did you mean 'plan_path'\? There are: aime, .* An id of "
            r"PettingZoo's registry is known once its package was imported; or give a function",
        ),
        ({"env": "plan_pathh"}, ValueError, r"no environment 'plan_pathh'\. Did you mean 'plan_path'\?"),
        (
            {"env": "qqqqqqqq"},
            ValueError,
            r"no environment 'qqqqqqqq'\. There are: aime, .* or FILE\.py:NAME of a file\. An id of PettingZoo's",
        ),
        (
            {"args": GRPOConfig("out", use_cpu=True, bf16=False)},
            TypeError,
            r"args is a GRPOConfig, expected a MultiAgentGRPOConfig\. Change the name",
        ),
        ({"env": 7}, TypeError, r"env is a int, expected an id of PettingZoo's registry or a function"),
        ({"env": plan_path_v0.env(size=4)}, TypeError, r"env is a TextEnv, expected .* env=lambda:"),
        (
            {"env": None, "reward_funcs": reward, "args": GRPOConfig("out", use_cpu=True, bf16=False)},
            TypeError,
            r"needs an environment: env='pettingllms/plan_path-v0', .* becomes a team's by "
            r"env=pettingllms_envs\.conversation\(roles=.*MultiAgentGRPOConfig .*'From a GRPO script' in docs",
        ),
        (
            {"env": reward},
            TypeError,
            r"env is 'reward', which cannot be called without arguments \(.*'prompts'\), expected .* A reward "
            r"function is given as reward_funcs=.* 'From a GRPO script'",
        ),
        ({"env": [reward]}, TypeError, r"env is a list, expected .* Reward functions are given as reward_funcs="),
        ({"rollout_func": print}, TypeError, r"no argument 'rollout_func'; the environment says .* give env="),
        ({"tools": []}, TypeError, r"no argument 'tools'; a tool is an agent or a part of the environment"),
        ({"environment_factory": Relay}, TypeError, r"no argument 'environment_factory'; .* give env="),
        ({"polices": "lora"}, TypeError, r"no argument 'polices'; .* docs/reference/trainer\.md\. Leave it out"),
        (
            {"train_dataset": Dataset.from_dict({"seed": range(3)}), "generation_batch_size": 32},
            ValueError,
            r"the train_dataset has 3 rows, but one generation plays 4 \(generation_batch_size 32 / num_generations "
            r"8\), so no step .* Give 4 rows or more, .* per_device_train_batch_size 8 x steps_per_generation 4 x 1 ",
        ),
        (
            {
                "env": {"relay": Relay, "other": Relay},
                "train_dataset": Dataset.from_dict({"seed": range(3), "environment": ["relay", "other", "relay"]}),
                "generation_batch_size": 32,
            },
            ValueError,
            r"the train_dataset has 3 rows, but one generation plays 4",
        ),
        ({"env": dict}, TypeError, r"env made a builtins\.dict, expected a pettingzoo\.AECEnv"),
        (
            {"env": partial(plan_path_v0.parallel_env, workflow="single")},
            TypeError,
            r"expected a pettingzoo\.AECEnv\. A parallel environment becomes one by pettingzoo\.utils\.parallel_to",
        ),
        (
            {"env": Board},
            TypeError,
            r"agent 'opener_0' observes a mapping with the keys \['action_mask', 'observation'\]; expected text: "
            r".* Wrap the environment",
        ),
        (
            {"policies": {"opener": "a_", "closr": "b"}},
            ValueError,
            r"policies names 'closr', but the environment has the agents opener_0, closer_0\. Did you mean 'closer'\?",
        ),
        (
            {"policies": {"opener": "b"}},
            ValueError,
            r"leaves out the agent 'closer_0'\. Give every agent, or its role",
        ),
        (
            {"policies": {"opener": "bb", "closer": Policy()}},
            ValueError,
            r"gives 'closer_0' the model itself to train, and 'opener_0' the adapter 'bb' on it; .* Freeze the base",
        ),
        ({"policies": "ful"}, ValueError, r"policies='ful', expected 'shared', 'lora', 'full', or a dict"),
        ({"model": None}, ValueError, r"model is None, but policy 'base' stands on it\. Give one, or Policy\(model="),
        (
            {"policies": {"opener": Policy(model="/a"), "closer": Policy(model="/b")}},
            ValueError,
            r"a model is given, but every policy has one of its own, .* Set model=None",
        ),
        (
            {"policies": {"opener": Policy(api=str), "closer": Policy(api=str)}, "train_dataset": None},
            ValueError,
            r"every policy is an api, so there are no weights to play or train\. Give one agent a model",
        ),
        (
            {"policies": {"opener": Policy(api=str), "closer": Policy(trainable=False)}},
            ValueError,
            r"a train_dataset is given, but no policy is trained\. Leave it out to play",
        ),
        (
            {"policies": {"opener": "oo", "closer": Policy(adapter="cc", trainable=False)}},
            ValueError,
            r"the adapter 'cc' is frozen, but the model has no such adapter \(it has: none\), .* Load it first",
        ),
        (
            {"policies": {"opener": Policy(model=7), "closer": Policy()}},
            TypeError,
            r"the model of policy 'opener' is a int, expected an id, a path or a PreTrainedModel",
        ),
        (
            {"policies": "full", "peft_config": LoraConfig()},
            ValueError,
            r"peft_config is given, but no policy is an adapter, .* name an adapter: Policy\(adapter=",
        ),
        (
            {"policies": {"opener": "oo", "closer": Policy(adapter="cc", max_grad_norm=1.0)}, "max_grad_norm": 0.0},
            ValueError,
            r"policy 'cc' has max_grad_norm=1\.0, but args\.max_grad_norm is 0\.0, .* Set args\.max_grad_norm, too",
        ),
        (
            {"policies": "full", "cast_lm_head_to_fp32": True},
            ValueError,
            r"cast_lm_head_to_fp32=True and several models, expected one: .* Leave it False",
        ),
        ({"credit": "atgrpo"}, ValueError, r"no credit scheme 'atgrpo'\. Did you mean 'at_grpo'\?"),
        (
            {"credit": "grpo", "sampling": "tree"},
            ValueError,
            r"credit='grpo' with sampling='tree'.* Set sampling='parallel'",
        ),
        (
            {"credit": lambda decisions: [[0.0] for _ in decisions]},
            ValueError,
            r"for decision 0 .*, expected 8 numbers",
        ),
        (
            {"credit": lambda decisions: []},
            ValueError,
            r"for 0 decisions, expected 8: return one sequence per decision",
        ),
        (
            {
                "env": "pettingllms/plan_path-v0",
                "train_dataset": Dataset.from_dict({"seed": [1, 2], "splitt": ["train", "train"]}),
            },
            ValueError,
            r"the data set's rows have the fields \['splitt'\], which the environment does not take\. "
            r"Known: seed, split, level, board\. Rename or remove the columns",
        ),
        (
            {
                "env": "pettingllms/plan_path-v0",
                "eval_dataset": {"hard": Dataset.from_dict({"seed": [1], "hardness": [3]})},
            },
            ValueError,
            r"the fields \['hardness'\]",
        ),
        (
            {
                "env": "pettingllms/plan_path-v0",
                "train_dataset": IterableDataset.from_generator(lambda: iter([{"seed": 1, "hardness": 3}])),
            },
            ValueError,
            r"the fields \['hardness'\]",
        ),
        (
            {
                "env": "pettingllms/plan_path-v0",
                "train_dataset": Dataset.from_dict({"seed": [1], "split": ["dev"]}),
            },
            ValueError,
            r"split is 'dev'; expected one of 'train', 'validation', 'test'",
        ),
    ],
    ids=[
        "environment",
        "environment by its bare name",
        "environment without a near name",
        "arguments of TRL's own class",
        "environment of a wrong type",
        "environment made already",
        "a script of TRL's without an environment",
        "reward function in the environment's place",
        "reward functions in the environment's place",
        "rollout function",
        "tools",
        "environment factory",
        "argument that there is not",
        "too few rows",
        "too few rows of several environments",
        "no AECEnv",
        "parallel environment",
        "no text",
        "agent",
        "agent left out",
        "adapters on a base that moves",
        "layout",
        "no model",
        "a model that nobody uses",
        "only APIs",
        "nobody to train",
        "a frozen adapter that is not there",
        "a model that is none",
        "adapters' configuration for full models",
        "clipping that is switched off",
        "a head in float32",
        "credit",
        "credit for other sampling",
        "credit with wrong values",
        "credit with wrong decisions",
        "field",
        "field of an evaluation set",
        "field of a stream",
        "value of a field",
    ],
)
def test_a_mistake_is_refused_before_the_model_is_loaded(
    given: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    given = dict(given)
    options = {name: given.pop(name) for name in OPTIONS if name in given}
    with pytest.raises(error, match=message):
        trainer(tmp_path, options=options, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_generations": 1}, r"num_generations=1: .* at least 2 are needed\. Set num_generations=4"),
        ({"sampling": "forest"}, r"sampling='forest', expected 'tree' or 'parallel'"),
        ({"max_envs": 0}, r"max_envs=0, expected a positive number, or None"),
        ({"max_turns": -1}, r"max_turns=-1, expected a positive number, or None"),
        ({"save_on_each_node": True}, r"save_on_each_node=True, expected False: a checkpoint is one folder\."),
        ({"num_continuations": -1}, r"num_continuations=-1, expected 0 or more"),
        ({"choose": "last"}, r"choose='last', expected 'reward', 'value' or 'random'"),
        (
            {"choose": "random", "sampling": "parallel"},
            r"choose='random' with sampling='parallel', expected 'tree': .* Set sampling='tree', or choose='reward'",
        ),
        (
            {"choose": "value"},
            r"choose='value' with num_continuations=0, expected at least 1 .* Set num_continuations=1, or choose='rew",
        ),
        (
            {"choose": "value", "num_continuations": 1, "sampling": "parallel"},
            r"choose='value' with sampling='parallel', expected 'tree': .* Set sampling='tree', or choose='reward'",
        ),
        (
            {"train_continuations": True},
            r"train_continuations=True with num_continuations=0, expected at least 1 .*, or train_continuations=False",
        ),
        (
            {"train_continuations": True, "num_continuations": 1, "sampling": "parallel"},
            r"train_continuations=True with sampling='parallel', expected 'tree': .*, or train_continuations=False",
        ),
        (
            {"multi_objective_aggregation": "normalize_then_sum"},
            r"expected 'sum_then_normalize': .* decides which goes",
        ),
        (
            {"max_tool_calling_iterations": 3},
            r"max_tool_calling_iterations=3, but a tool is an agent .* Set max_turns",
        ),
        ({"max_completion_length": 0}, r"max_completion_length=0, expected the most tokens of a reply, 1 or more\."),
        (
            {"generation_batch_size": 10, "num_generations": 4},
            r"\(10\) must be divisible by the global batch size \(8\)\. The global batch size 8 is "
            r"per_device_train_batch_size 8 x 1 processes\. Set generation_batch_size=8 or 16\.$",
        ),
        (
            {"generation_batch_size": 128, "num_generations": 3},
            r"must be divisible by num_generations \(3\)\. .* Set generation_batch_size=120 or 144, or "
            r"num_generations=2 or 4\.$",
        ),
        ({"num_generations": 3}, r"Set generation_batch_size=24, or num_generations=2 or 4\.$"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_configuration_that_cannot_be_trained_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, options=options)


def test_a_tokenizer_without_a_chat_template_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    bare = copy.deepcopy(tokenizer)
    bare.chat_template = None
    with pytest.raises(
        ValueError, match=r"no chat template, .*\. Use a chat model, or set `processing_class.chat_tem"
    ):
        trainer(tmp_path, processing_class=bare)


def test_an_agent_of_an_environment_whose_role_peft_cannot_carry_is_told_what_to_do(tmp_path: Path) -> None:
    class Letters(Relay):
        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = ["a_0", "b_0"]

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            super().reset(seed, options)
            self.agent_selection = "a_0"

    with pytest.raises(ValueError, match=r"adapter name 'a' of agent 'a_0': .* Choose another: policies="):
        trainer(tmp_path, env=Letters, policies="lora")


def test_a_stream_that_ends_before_its_first_generation_is_told(
    model_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    short = IterableDataset.from_generator(lambda: iter([{"seed": 1}]))
    options = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 8, "disable_tqdm": True}
    made = trainer(tmp_path, model=model_path, train_dataset=short, processing_class=tokenizer, options=options)
    with pytest.warns(UserWarning, match=r"trained 0 steps: .* takes 2 rows \(generation_batch_size 8 / num_gen"):
        made.train()
    assert made.state.global_step == 0
