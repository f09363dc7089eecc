#!/usr/bin/env bash
# Serve the tiny model with a real vLLM on a loopback port; Ctrl-C or SIGTERM stops it.
#
#   tests/live/engine/serve.sh PORT [more vllm arguments]
#
# Becomes vLLM itself (exec), so the process id is vLLM's.  It is up when GET /health answers 200:
# 16 s on two idle cores, a minute on busy ones.  Model name: tiny.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
venv=${LIVE_VLLM_VENV:-$root/.live/vllm}
if [ ! -x "$venv/bin/vllm" ]; then
    echo "serve.sh: no vLLM in $venv; run $here/install.sh first" >&2
    exit 2
fi
if [ $# -lt 1 ]; then
    echo "usage: serve.sh PORT [more vllm arguments]" >&2
    exit 2
fi
port=$1
shift
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1
export VLLM_CPU_KVCACHE_SPACE=1            # GiB; by default vLLM takes a large share of the memory
export VLLM_CPU_OMP_THREADS_BIND=nobind    # by default vLLM sets cores aside, of two that leaves one
export OMP_NUM_THREADS=1
# The model runs inside EngineCore. By default it runs in a process of its own, and the two wait for each other in a
# loop of sched_yield: on two cores and a recent kernel that keeps other processes from running for up to a second.
# With OMP_NUM_THREADS=1 that process is not needed, but vLLM allows its absence only with this variable.
export VLLM_ENABLE_V1_MULTIPROCESSING=0
cd "$here"                                 # so that /v1/models shows a relative path as the model's root
exec "$venv/bin/vllm" serve ./tiny-model --served-model-name tiny --host 127.0.0.1 --port "$port" \
    --max-model-len 2048 --enforce-eager --distributed-executor-backend uni --reasoning-parser qwen3 \
    --enable-auto-tool-choice --tool-call-parser hermes "$@"
