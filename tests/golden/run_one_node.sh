#!/usr/bin/env bash
# tp1 pp2 dp1 mb1 m4 1f1b: 2 ranks on one node
# Start it, in the folder that its paths are relative to.
set -euo pipefail
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export TORCH_CPP_LOG_LEVEL="${TORCH_CPP_LOG_LEVEL:-ERROR}"
export MALLOC_MMAP_MAX_="${MALLOC_MMAP_MAX_:-0}"
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-8589934592}"
export MALLOC_TOP_PAD_="${MALLOC_TOP_PAD_:-67108864}"
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
[ "$(uname)" != Linux ] || export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-lo}"
mkdir -p -- 'build/my run'
rm -f -- 'build/my run/run.json'
exec "${PYTHON:-python3}" -m parsim.launch.lock 'build/my run' '' \
    "${PYTHON:-python3}" -m torch.distributed.run \
    --standalone \
    --local-addr=127.0.0.1 \
    --nproc-per-node=2 \
    --max-restarts=2 \
    -m executor \
    scenario.yaml \
    '--out=build/my run' \
    '--set=plan.stage_layers=[5, 7]'
