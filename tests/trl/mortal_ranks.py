"""One of two processes, each with a vLLM engine, of a small training run that saves after every step: to be killed."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import torch

import ranks
from mortal import Reports
from pettingllms_trl.checkpoints.atomic import newest


STEPS = 8
RUN = {
    "name": "run",
    "layout": "lora",
    "options": {
        "use_vllm": True,
        "vllm_max_model_length": 256,
        "max_completion_length": 12,
        "batch_size": 4,
        "steps_per_generation": 4,
        "gradient_accumulation_steps": 2,  # two steps a generation: every other save lies inside one
        "max_steps": STEPS,
        "save_strategy": "steps",
        "save_steps": 1,
        "save_total_limit": 2,
        "optim": "adamw_torch",
        "adam_epsilon": 1e-2,
        "learning_rate": 1e-2,
    },
}


def live(model: str, path: Path, port: str, process: int, says: Connection, slowly: bool) -> None:
    """Train from the newest checkpoint there is; what is sampled is kept in `path/sampled`, a file for a generation.

    Args:
        model: Folder of the model.
        path: Folder of the run.
        port: At which the processes find each other.
        process: Which of the two it is.
        says: Is told when training and each save begin and end.
        slowly: Each file operation in a save takes 4 ms more, so that a kill finds it in the middle.
    """
    os.environ |= {"RANK": str(process), "LOCAL_RANK": str(process), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
    ranks.take_little_memory()
    checkpoint = newest(path / "run")
    spec = {**RUN, "model": model, "resume": None if checkpoint is None else str(checkpoint)}
    reports = Reports(says)
    if slowly:
        sys.addaudithook(reports.dawdle)
    says.send("training")
    sampled = path / "sampled"
    sampled.mkdir(exist_ok=True)
    trainer = ranks.trained(spec, path, callbacks=[reports], keep=sampled)
    if trainer.is_world_process_zero():
        torch.save({name: p.detach() for name, p in trainer.model.named_parameters()}, path / "weights.pt")
    torch.distributed.barrier()
    says.send("done")
    os._exit(0)  # as `ranks.py` ends
