"""The SLURM scripts, on fakes of SLURM's commands: what is started, on which node."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
SLURM = ROOT / "examples" / "slurm"
FAKES = {
    "scontrol": "echo node1; sleep 0.2; echo node2",  # who reads the first line alone is gone by then
    # Runs a command of all nodes on two, one after the other; one of a single node once.
    "srun": """
if [[ "$1" == --kill-on-bad-exit=1 ]]; then
    shift
    SLURM_NODEID=0 "$@"; SLURM_NODEID=1 "$@"
else
    while [[ "$1" == --* ]]; do [[ "$1" == --nodelist ]] && node=$2; [[ "$1" == --overlap ]] && shift || shift 2; done
    NODE=$node exec "$@"
fi""",
    # Where a test says so, until the trainers are told to stop.
    "accelerate": """
echo "${NODE:-node$SLURM_NODEID} accelerate $*" >> "$SAID"
until [[ -z "${STOPPED:-}" || -e "$STOPPED" ]]; do sleep 0.1; done
exit "${STATUS:-0}\"""",
    "pkill": 'echo "${NODE:-all} pkill $*" >> "$SAID"; touch "$STOPPED"',
    "vllm": 'echo "$NODE gpu $CUDA_VISIBLE_DEVICES vllm $*" >> "$SAID"',
    "scancel": 'sleep 1; echo "scancel $*" >> "$SAID"',
}


def run(
    tmp_path: Path, script: str, *arguments: str, is_ended: bool = False, **environment: str
) -> tuple[int, list[str], str]:
    """Exit status of a script, what the fakes were asked, and its errors. It may be ended while it trains."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for name, body in FAKES.items():
        (fakes / name).write_text(f"#!/bin/bash\n{body}\n")
        (fakes / name).chmod(0o755)
    said = tmp_path / "said"
    said.touch()
    variables = {
        "PATH": f"{fakes}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NNODES": "2",
        "SLURM_GPUS_ON_NODE": "4",
        "SLURM_JOB_ID": "7",
        "SAID": str(said),
    }
    with subprocess.Popen(
        ["bash", str(SLURM / script), *arguments],
        env=os.environ | variables | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if is_ended:
            while "accelerate" not in said.read_text() and process.poll() is None:
                time.sleep(0.05)
            process.terminate()
        _, errors = process.communicate(timeout=60)
    return process.returncode, said.read_text().splitlines(), errors


def test_every_node_launches_its_processes_of_one_run(tmp_path: Path) -> None:
    status, said, _ = run(tmp_path, "train.sh", "run.yaml", "zero3.yaml", "--learning_rate", "1e-6")
    assert (status, len(said)) == (0, 2)
    for rank, line in enumerate(said):
        assert "--config_file examples/accelerate_configs/zero3.yaml" in line
        assert f"--num_machines 2 --num_processes 8 --machine_rank {rank} --main_process_ip node1" in line
        assert line.endswith("-m pettingllms_trl.cli train --config run.yaml --learning_rate 1e-6")


def test_the_first_node_trains_and_each_gpu_of_the_others_serves(tmp_path: Path) -> None:
    status, said, _ = run(tmp_path, "servers.sh", "run.yaml", "model")
    (trains,) = [line for line in said if "accelerate" in line]
    assert trains.startswith("node1 accelerate launch")
    assert "--num_processes 4 -m pettingllms_trl.cli train --config run.yaml --vllm_mode server" in trains
    urls = ",".join(f"http://node2:{port}" for port in range(8000, 8004))
    assert f"--vllm_server_base_url {urls} " in trains
    served = sorted(line for line in said if " vllm serve " in line)
    assert [line.partition(" --max-model-len")[0] for line in served] == [
        f"node2 gpu {gpu} vllm serve model --host 0.0.0.0 --port {8000 + gpu}" for gpu in range(4)
    ]
    assert (status, said[-1]) == (0, "scancel 7")


def test_a_training_that_fails_ends_the_servers_and_the_job_fails(tmp_path: Path) -> None:
    status, said, _ = run(tmp_path, "servers.sh", "run.yaml", "model", STATUS="3")
    assert (status, said[-1]) == (3, "scancel 7")


@pytest.mark.parametrize(("script", "where"), [("train.sh", "all"), ("servers.sh", "node1")])
def test_a_job_that_ends_tells_the_trainers_and_waits_for_them(script: str, where: str, tmp_path: Path) -> None:
    status, said, _ = run(tmp_path, script, "run.yaml", "model", is_ended=True, STOPPED=str(tmp_path / "stopped"))
    (told,) = [line for line in said if "pkill" in line]
    assert told == f"{where} pkill -TERM -f python[0-9.]* -u -m pettingllms_trl.cli"
    assert status == 0  # of the trainers: 143 is that of a script that did not wait
    assert said.index(told) > 0


@pytest.mark.parametrize(("script", "given"), [("train.sh", []), ("servers.sh", []), ("servers.sh", ["run.yaml"])])
def test_a_missing_argument_is_named(script: str, given: list[str], tmp_path: Path) -> None:
    status, said, error = run(tmp_path, script, *given)
    assert status != 0
    assert "missing; expected" in error
    assert said == []


@pytest.mark.parametrize("script", ["train.sh", "servers.sh"])
def test_a_script_that_slurm_did_not_start_says_so_in_one_line(script: str, tmp_path: Path) -> None:
    status, said, error = run(tmp_path, script, "run.yaml", "model", SLURM_JOB_NODELIST="")
    assert status != 0
    assert f"is of SLURM; expected sbatch examples/slurm/{script} ..., or" in error
    assert (said, error.count("\n")) == ([], 1)
