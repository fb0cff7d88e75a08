#!/usr/bin/env bash
# tp8 pp2 dp1 mb1 m4 1f1b: 8 ranks on each of 2 nodes
# Start it on every node, in the folder that its paths are relative to.
set -euo pipefail
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export TORCH_CPP_LOG_LEVEL="${TORCH_CPP_LOG_LEVEL:-ERROR}"
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE="${TORCH_DISABLE_SHARE_RDZV_TCP_STORE:-1}"
export MALLOC_MMAP_MAX_="${MALLOC_MMAP_MAX_:-0}"
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-8589934592}"
export MALLOC_TOP_PAD_="${MALLOC_TOP_PAD_:-67108864}"
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
endpoint="${RDZV_ENDPOINT:?set it to HOST:PORT of one node, the same on all}"
mkdir -p -- build/run
rm -f -- build/run/run.json
exec "${PYTHON:-python3}" -m parsim.launch.lock build/run parsim-0123456789ab \
    "${PYTHON:-python3}" -m torch.distributed.run \
    --nnodes=2 \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$endpoint" \
    --rdzv-id=parsim-0123456789ab \
    --rdzv-conf=join_timeout=300,read_timeout=300 \
    --nproc-per-node=8 \
    -m executor \
    scenario.yaml \
    --out=build/run \
    --nnodes=2
