#!/usr/bin/env bash
# Serve the tiny model with a real vLLM on a loopback port; Ctrl-C or SIGTERM stops it.
#
#   tests/live/engine/serve.sh PORT [more vllm arguments]
#
# Becomes vLLM itself (exec), so the process id is vLLM's.  It is up when GET /health answers 200:
# 25 s on two idle cores, over a minute on busy ones.  Model name: tiny.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
venv=${PACEKEEPER_VLLM_VENV:-$root/.live/vllm}
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
cd "$here"                                 # so that /v1/models shows a relative path as the model's root
exec "$venv/bin/vllm" serve ./tiny-model --served-model-name tiny --host 127.0.0.1 --port "$port" \
    --max-model-len 2048 --enforce-eager --reasoning-parser qwen3 \
    --enable-auto-tool-choice --tool-call-parser hermes "$@"
