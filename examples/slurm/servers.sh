#!/bin/bash
# Train on the first node; the GPUs of all others serve, a replica each, shared by all trainer processes. For adapters:
#     sbatch --nodes 2 examples/slurm/servers.sh examples/configs/gpus_8x80_L2_8B.yaml Qwen/Qwen3-8B
# For other lengths or ranks than in that configuration, change --max-model-len and --max-lora-rank below.
# The environment with pettingllms and vLLM must be active. Servers read adapters from output_dir, so that it must be on
# a file system that all nodes see, under one path.
#SBATCH --job-name=pettingllms
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@600             # the trainer then saves a checkpoint; go on with --resume_from_checkpoint true
set -euo pipefail
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-64}  # srun does not inherit it

config=${1:?the configuration of the run is missing; expected examples/configs/gpus_8x80_L2_8B.yaml, say}
model=${2:?the model that is served is missing; expected model_name_or_path of the configuration, Qwen/Qwen3-8B, say}
shift 2
gpus=${SLURM_GPUS_ON_NODE:-8}
: "${SLURM_JOB_NODELIST:?is of SLURM; expected sbatch examples/slurm/servers.sh ..., or by hand (docs/gpus.md)}"
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")

urls=
for node in "${nodes[@]:1}"; do
    for ((gpu = 0; gpu < gpus; gpu++)); do
        urls+=${urls:+,}http://$node:$((8000 + gpu))
        srun --nodes 1 --ntasks 1 --nodelist "$node" --overlap \
            env CUDA_VISIBLE_DEVICES=$gpu VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 \
            vllm serve "$model" --host 0.0.0.0 --port $((8000 + gpu)) --max-model-len 4608 \
            --logprobs-mode processed_logprobs --enable-lora --max-loras 2 --max-cpu-loras 4 --max-lora-rank 16 &
    done
done

# To the trainers, not to accelerate launch, which would kill them after 30 seconds, and not to the servers.
first=(srun --nodes 1 --ntasks 1 --nodelist "${nodes[0]}" --overlap)
trap '"${first[@]}" pkill -TERM -f "python[0-9.]* -u -m pettingllms_trl.cli" || true' TERM

# Replicas may take minutes to load: vllm_server_timeout is how long the trainer waits for them.
"${first[@]}" \
    accelerate launch --config_file examples/accelerate_configs/ddp.yaml --num_processes "$gpus" \
    -m pettingllms_trl.cli train --config "$config" \
    --vllm_mode server --vllm_server_base_url "$urls" --vllm_server_timeout 1200 "$@" &
trainers=$!
while kill -0 "$trainers" 2> /dev/null; do
    sleep 1 &
    wait $! || true                     # not for the trainers: a SIGTERM just before it would wait for them, too
done
status=0
wait "$trainers" || status=$?
scancel "$SLURM_JOB_ID"                 # ends the servers
exit $status
