#!/usr/bin/env bash
# Kimi-K2.5 in NVIDIA's NVFP4 build (about 590 GB) on eight PCIe Blackwell GPUs of 96 GB without NVLink.
#
#   config/examples/kimi-k2.5-nvfp4/engine.sh [more vllm arguments]            the real thing: vLLM 0.32, over half an hour to load
#   VLLM="pacekeeper simulate-engine --preset kimi-k2.5-nvfp4 --load-speed 500 --" config/examples/kimi-k2.5-nvfp4/engine.sh
#
# A variable that is set already wins over the one here, so that the same script serves for a trial of another.
set -euo pipefail

# NCCL decides the pace of decode here: vLLM's own all-reduce is off on more than two GPUs without NVLink. No NCCL_PROTO,
# NCCL_ALGO or NCCL_P2P_LEVEL: NCCL's cost model picks Ring/LL for the 14 KB of a token by itself, and NVIDIA's advice is
# to leave them unset. Worth a trial, one at a time and against a plain restart as control:
#   NCCL_P2P_LEVEL=SYS                        two sockets with a good link between them: 0 to +4 % decode, hangs on some boxes
#   NCCL_P2P_LEVEL=SYS NCCL_GRAPH_FILE=FILE   only where the log below shows "bw 0.1" and "SYS/SYS": 1.5 times the pace or more
#   VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1  new in vLLM, opt-in: a token takes 9 to 14 % less on comparable boxes
# (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html; https://github.com/local-inference-lab/rtx6kpro,
# optimization/nccl-tuning; vllm-project/vllm#53576)

# What NCCL found and chose, once at the start, at no cost later: the line to look for is "Pattern 4".
export NCCL_DEBUG="${NCCL_DEBUG:-INFO}" NCCL_DEBUG_SUBSYS="${NCCL_DEBUG_SUBSYS:-INIT,GRAPH,TUNING,ENV}"
# One host: do not look for InfiniBand. Shortens the start, changes nothing after it (NCCL's documentation).
export NCCL_IB_DISABLE="${NCCL_IB_DISABLE:-1}"
# vLLM gives up on an engine that is not ready after 600 s; this one takes about 38 minutes from disk (vllm-project/vllm#35547).
export VLLM_ENGINE_READY_TIMEOUT_S="${VLLM_ENGINE_READY_TIMEOUT_S:-5400}"
# Nothing is sent anywhere at the start (vLLM's documentation, "usage stats").
export VLLM_NO_USAGE_STATS="${VLLM_NO_USAGE_STATS:-1}"

arguments=(
    --served-model-name kimi-k2.5          # what clients ask for; the pool in gateway.yaml has the same name
    --host 127.0.0.1 --port "${ENGINE_PORT:-8001}"  # the gateway is on the same host: nobody else need reach it
    --trust-remote-code                    # the model brings code of its own (its deployment guide)
    --tensor-parallel-size 8               # 74 GB of weights on each card
    --mm-encoder-tp-mode data              # the image encoder whole on every card (its deployment guide)
    --max-model-len 131072                 # of 262144: beside the weights there is room for about 200,000 tokens in all
    --max-num-seqs 256
    --max-num-queued-reqs 1024             # then 503, which the gateway takes to another engine or tells the client
    --reasoning-parser kimi_k2             # thinking comes as `reasoning`, apart from the answer (its deployment guide)
    --tool-call-parser kimi_k2 --enable-auto-tool-choice
    --enable-per-request-metrics           # the engine's own times, which the gateway holds against what it measured
    --shutdown-timeout 120                 # SIGTERM lets open answers finish
    --disable-uvicorn-access-log           # the gateway logs every request
)
# VLLM may be several words: a command and its first arguments.
# shellcheck disable=SC2086
exec ${VLLM:-vllm} serve nvidia/Kimi-K2.5-NVFP4 "${arguments[@]}" "$@"
