#!/bin/bash
# Train on whole nodes, an engine in every process:
#     sbatch --nodes 2 examples/slurm/train.sh examples/configs/gpus_2x8x80_L2_8B.yaml [ddp.yaml] [--any_field value]
# The environment with pettingllms must be active, and output_dir on a file system that all nodes see.
#SBATCH --job-name=pettingllms
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00                 # a longer run: submit it again with --resume_from_checkpoint true, once it has
# a checkpoint (sbatch --dependency=afterany:JOB ...). --requeue repeats a command as it is: only for one with that option.
#SBATCH --signal=B:TERM@600             # the trainer then saves a checkpoint; go on with --resume_from_checkpoint true
set -euo pipefail
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-64}  # srun does not inherit it

config=${1:?the configuration of the run is missing; expected examples/configs/gpus_2x8x80_L2_8B.yaml, say}
shift
sharding=ddp.yaml
if [[ "${1:-}" == *.yaml ]]; then
    sharding=$1
    shift
fi
gpus=${SLURM_GPUS_ON_NODE:-8}
: "${SLURM_JOB_NODELIST:?is of SLURM; expected sbatch examples/slurm/train.sh ..., or accelerate launch (docs/gpus.md)}"
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")   # to its end: `head` may end scontrol by SIGPIPE
HEAD_NODE=${nodes[0]}
export HEAD_NODE

# To the trainers, not to accelerate launch, which would kill them after 30 seconds.
trap 'srun --overlap --ntasks "$SLURM_NNODES" pkill -TERM -f "python[0-9.]* -u -m pettingllms_trl.cli" || true' TERM

# Single quotes: SLURM_NODEID differs on each node.
srun --kill-on-bad-exit=1 bash -c '
    exec accelerate launch --config_file "examples/accelerate_configs/$1" \
        --num_machines "$SLURM_NNODES" --num_processes "$((SLURM_NNODES * $2))" --machine_rank "$SLURM_NODEID" \
        --main_process_ip "$HEAD_NODE" --main_process_port 29500 \
        -m pettingllms_trl.cli train --config "$3" "${@:4}"
' train "$sharding" "$gpus" "$config" "$@" &
trainers=$!
while kill -0 "$trainers" 2> /dev/null; do
    sleep 1 &
    wait $! || true                     # not for the trainers: a SIGTERM just before it would wait for them, too
done
status=0
wait "$trainers" || status=$?
exit $status
