"""Compare credit schemes on delayed rewards: a team of two tiny models, each with one word to find.

    python examples/delayed_rewards.py

No GPU and no network are needed. First the caller says a word, then the closer. The closer should say "b" and is
rewarded at its own step. The caller should say "a" and is rewarded only after the closer has acted, as in a game that
rewards everybody at the end of a round. Each scheme trains a model for each role from the same weights; the table
shows how often each role then says its word. docs/delayed_rewards.md explains the outcome.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any, ClassVar

import torch
from datasets import Dataset
from pettingzoo import AECEnv
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen3Config, Qwen3ForCausalLM, set_seed

from pettingllms_envs.spaces import ChatText
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


ROLES = {"caller_0": "a", "closer_0": "b"}
WORDS = [
    "<pad>",
    "<unk>",
    "<end>",
    "<user>",
    "<assistant>",
    "role",
    "caller",
    "closer",
    *"abcdefgh",
    *map(str, range(20)),
]
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
SCHEMES: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("at_grpo", "tree", "at_grpo", {}),
    ("at_grpo, return_to_go", "tree", {"at_grpo": {"value": "return_to_go"}}, {}),
    ("counterfactual", "tree", "counterfactual", {"num_continuations": 1}),
    ("grpo", "parallel", "grpo", {}),
    ("magrpo", "parallel", "magrpo", {}),
]


class PaidLater(AECEnv):
    """Both roles act once, and both are rewarded at the closer's step: 1 for their own word."""

    metadata: ClassVar[dict[str, Any]] = {"name": "paid_later_v0", "render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = list(ROLES)
        self.text = ChatText()

    def observation_space(self, agent: str) -> ChatText:
        """Any string."""
        return self.text

    def action_space(self, agent: str) -> ChatText:
        """Any string."""
        return self.text

    def observe(self, agent: str) -> str:
        """The role alone; nobody sees what the other one said."""
        return f"role {agent.removesuffix('_0')}"

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """All instances are the same."""
        self.agents = self.possible_agents[:]
        self.agent_selection = self.agents[0]
        self.right: dict[str, float] = {}
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def step(self, action: str | None) -> None:
        """The first word of a reply counts."""
        if action is None:
            self._was_dead_step(action)
            return
        agent = self.agent_selection
        self._cumulative_rewards[agent] = 0.0
        self.right[agent] = float(action.split()[:1] == [ROLES[agent]])
        if agent == "closer_0":
            self.rewards = dict(self.right)
            self._accumulate_rewards()
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = "closer_0" if agent == "caller_0" else "caller_0"


def tiny_model() -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """A random Qwen3 of two layers and a tokenizer of whole words."""
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
    tokenizer.chat_template = TEMPLATE
    set_seed(1)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=512,
            tie_word_embeddings=False,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )
    return model, tokenizer


def train(sampling: str, credit: Any, options: dict[str, Any], *, steps: int) -> dict[str, float]:
    """Train with a scheme; how often each role then says its word, in [0, 1]."""
    model, tokenizer = tiny_model()
    with tempfile.TemporaryDirectory() as folder:
        trainer = MultiAgentGRPOTrainer(
            model=model,
            env=PaidLater,
            processing_class=tokenizer,
            policies="full",
            credit=credit,
            args=MultiAgentGRPOConfig(
                output_dir=folder,
                sampling=sampling,
                num_generations=4,
                per_device_train_batch_size=64,
                steps_per_generation=1,
                max_completion_length=2,
                learning_rate=1e-2,
                max_steps=steps,
                save_strategy="no",
                logging_steps=1000,
                disable_tqdm=True,
                use_cpu=True,
                bf16=False,
                report_to="none",
                **options,
            ),
            train_dataset=Dataset.from_dict({"seed": range(2000)}),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        episodes = trainer.play([{"seed": seed} for seed in range(100)])
    said = [{d.agent: d.played.completion.text.split()[:1] for d in episode.decisions} for episode in episodes]
    return {agent: sum(each[agent] == [word] for each in said) / len(said) for agent, word in ROLES.items()}


def main() -> None:
    """Train with each scheme and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| {'credit':22} | {'sampling':8} | caller, paid later | closer, paid at once |")
    print(f"|{'-' * 24}|{'-' * 10}|{'-' * 20}|{'-' * 22}|")
    for name, sampling, credit, more in SCHEMES:
        share = train(sampling, credit, more, steps=options.steps)
        print(f"| {name:22} | {sampling:8} | {share['caller_0']:18.2f} | {share['closer_0']:20.2f} |", flush=True)


if __name__ == "__main__":
    main()
