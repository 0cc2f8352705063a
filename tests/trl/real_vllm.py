"""vLLM's own server, for tests that ask it itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@contextmanager
def served(model: str, log: Path, options: str = "", **environment: str) -> Iterator[str]:
    """The server's address, for as long as the block lasts. It may still be loading; skips the test without vLLM.

    VLLM_PYTHON: Python of another virtual environment, which has vLLM; a trainer needs none for its servers.

    Args:
        model: Folder of the model, which it serves in float32.
        log: File for what it says.
        options: Further arguments of `vllm serve`.
        environment: Further variables.
    """
    python = os.environ.get("VLLM_PYTHON", sys.executable)
    if python == sys.executable:
        pytest.importorskip("vllm", reason="needs the extra `vllm`, or VLLM_PYTHON=/its/bin/python")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = f"--model {model} --host 127.0.0.1 --port {port} --dtype float32 --enforce-eager {options}"
    with log.open("w") as file:
        process = subprocess.Popen(
            # What `vllm serve` runs; the command itself wants a package called vllm, and that for CPUs is vllm-cpu.
            [python, "-m", "vllm.entrypoints.openai.api_server", *arguments.split()],
            env=os.environ | ENVIRONMENT | environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
