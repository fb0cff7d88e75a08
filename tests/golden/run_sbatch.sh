#!/usr/bin/env bash
#SBATCH --job-name=parsim
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=8
# tp8 pp2 dp1 mb1 m4 1f1b: 8 ranks on each of 2 nodes
# Start it with sbatch; add what your site asks for: --partition, --account, --time.
set -euo pipefail
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export TORCH_CPP_LOG_LEVEL="${TORCH_CPP_LOG_LEVEL:-ERROR}"
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE="${TORCH_DISABLE_SHARE_RDZV_TCP_STORE:-1}"
export MALLOC_MMAP_MAX_="${MALLOC_MMAP_MAX_:-0}"
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-8589934592}"
export MALLOC_TOP_PAD_="${MALLOC_TOP_PAD_:-67108864}"
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
head_node="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)"
endpoint="$head_node:$((20000 + SLURM_JOB_ID % 10000))"
mkdir -p -- build/run
rm -f -- build/run/run.json
srun --kill-on-bad-exit=1 --cpus-per-task=8 \
    "${PYTHON:-python3}" -m parsim.launch.lock build/run "$SLURM_JOB_ID" \
    "${PYTHON:-python3}" -m torch.distributed.run \
    --nnodes=2 \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$endpoint" \
    --rdzv-id="$SLURM_JOB_ID" \
    --rdzv-conf=join_timeout=300,read_timeout=300 \
    --nproc-per-node=8 \
    -m executor \
    scenario.yaml \
    --out=build/run \
    --nnodes=2
