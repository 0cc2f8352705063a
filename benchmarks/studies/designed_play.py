"""Plays the environments of `designed_envs.py` with a model of this process, many episodes at once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms_envs.registry import make


DESIGNER, MEMBER = "designer", "member"


class Episode(NamedTuple):
    """How an episode ended: what the designer replied, empty where there is none, and the environment's outcome."""

    design: str
    outcome: Mapping[str, Any]


class Team:
    """The adapters of a finished run on its model.

    Args:
        base: The model's folder.
        folder: Of the run's `team`; None: without adapters.
    """

    def __init__(self, base: str, folder: Path | None = None) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        if folder is not None:
            self.model = PeftModel.from_pretrained(self.model, folder / MEMBER, adapter_name=MEMBER)
            self.model.load_adapter(folder / DESIGNER, adapter_name=DESIGNER)
        self.has_adapters = folder is not None
        self.num_generated = 0

    def replies(self, role: str, prompts: Sequence[tuple[str, str]]) -> list[str]:
        """A sampled reply to each system prompt and text."""
        if not prompts:
            return []
        if self.has_adapters:
            self.model.set_adapter(role)
        chats = [[{"role": "system", "content": own}, {"role": "user", "content": text}] for own, text in prompts]
        ids = self.tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        with torch.no_grad():
            out = self.model.generate(**ids, do_sample=True, top_k=0, max_new_tokens=24)
        new = out[:, ids["input_ids"].shape[1] :]
        self.num_generated += int((new != self.tokenizer.pad_token_id).sum())
        return [str(each) for each in self.tokenizer.batch_decode(new, skip_special_tokens=True)]


def play(
    team: Team, fields: Mapping[str, Any], seeds: Sequence[int], split: str, designs: Sequence[str] = ()
) -> list[Episode]:
    """An episode for each seed, in their order.

    Args:
        team: Of all roles.
        fields: `env_id` and `env_kwargs` of a run.
        seeds: Of the questions.
        split: Theirs.
        designs: What the designer replies in each episode; by default what the team does.
    """
    envs = [make(fields["env_id"], **fields["env_kwargs"]) for _ in seeds]
    replied: dict[int, str] = dict(enumerate(designs))
    for env, seed in zip(envs, seeds, strict=True):
        env.reset(seed=seed, options={"split": split})
    while True:
        asked: dict[str, list[int]] = defaultdict(list)
        for number, env in enumerate(envs):
            if not (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
                asked[env.agent_selection.rpartition("_")[0]].append(number)
        if not asked:
            break
        for role, numbers in asked.items():
            shown = [envs[each].observe(envs[each].agent_selection) for each in numbers]
            is_given = role == DESIGNER and bool(designs)
            replies = [] if is_given else team.replies(role, [(each["system"], each["text"]) for each in shown])
            if role == DESIGNER:
                replied.update(zip(numbers, replies, strict=False))
                replies = [replied[each] for each in numbers]
            for number, reply in zip(numbers, replies, strict=True):
                envs[number].step(reply)
    outcomes = [next(each["outcome"] for each in env.infos.values() if "outcome" in each) for env in envs]
    return [Episode(replied.get(number, ""), outcome) for number, outcome in enumerate(outcomes)]
