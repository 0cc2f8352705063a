"""Whether trained designers write the answer into a job, in the runs of `designed.yaml` or `designed_plan_path.yaml`.

    python benchmarks/studies/designed_leaks.py benchmarks/studies/designed_plan_path.yaml --work WORK \
        --methods designed disguised untrained --seed 1

WORK is the folder that `pettingllms study --work` was given. For each method: the share of readable designs, the mean
number of members, and `measure_leaks` of 200 designs, whose member without the question is the run's own.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms_envs.core import Unreadable
from pettingllms_envs.registry import make
from pettingllms_envs.studies.results import Cell
from pettingllms_envs.workflows.design_leaks import measure_leaks
from pettingllms_envs.workflows.designs import read_design
from pettingllms_trl.study.plans.study_file import read_study


class Team:
    """The adapters of a finished run on its model.

    Args:
        base: The model's folder.
        folder: Of the run's `team`; None: without adapters.
    """

    def __init__(self, base: str, folder: Path | None) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(base)
        self.model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        if folder is not None:
            self.model = PeftModel.from_pretrained(self.model, folder / "designer", adapter_name="designer")
            self.model.load_adapter(folder / "member", adapter_name="member")
        self.has_adapters = folder is not None

    def reply(self, role: str, system: str, text: str) -> str:
        """A sampled reply."""
        if self.has_adapters:
            self.model.set_adapter(role)
        chat = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        ids = self.tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.no_grad():
            out = self.model.generate(**ids, do_sample=True, top_k=0, max_new_tokens=24)
        return str(self.tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))


def measured(fields: Mapping[str, Any], team: Team, number: int) -> Mapping[str, float]:
    """Of designs for questions of the test split."""
    env = make(fields["env_id"], **fields["env_kwargs"]).unwrapped
    workflow, designs = env.workflow, []
    for seed in range(1000, 1000 + number):
        env.reset(seed=seed, options={"split": "test"})
        shown = env.observe("designer_0")
        design = read_design(team.reply("designer", shown["system"], shown["text"]), workflow.limits)
        if not isinstance(design, Unreadable):
            designs.append((workflow.task.generate(seed, "test"), design))
    system = workflow.system("member_0")
    leaks = measure_leaks(workflow.task, designs, lambda text: team.reply("member", system, text))
    size = sum(len(design.members) for _, design in designs) / max(1, len(designs))
    return {"size": round(size, 2), **leaks._asdict()}


def main() -> None:
    """Print a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["designed", "disguised", "untrained"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=200, help="of designs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    study = read_study(given.study)
    (environment,) = study.environments
    for method in given.methods:
        cell = Cell(phase="evaluation", environment=environment, method=method, seed=given.seed, setting={})
        fields = study.run(cell).config["train"]
        folder = given.work.joinpath("runs", *cell.parts, "team") if study.methods[method].trained else None
        torch.manual_seed(given.seed)
        found = measured(fields, Team(fields["model_name_or_path"], folder), given.number)
        print(json.dumps({"method": method, "asked": given.number, **found}), flush=True)


if __name__ == "__main__":
    main()
