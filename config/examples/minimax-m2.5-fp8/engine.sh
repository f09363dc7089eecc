#!/usr/bin/env bash
# MiniMax-M2.5 as MiniMax ships it (FP8, 230 billion parameters) with expert parallelism, on eight PCIe Blackwell GPUs.
#
#   config/examples/minimax-m2.5-fp8/engine.sh [more vllm arguments]           the real thing: vLLM 0.32
#   VLLM="pacekeeper simulate-engine --preset minimax-m2.5-fp8 --load-speed 500 --" config/examples/minimax-m2.5-fp8/engine.sh
#
# A variable that is set already wins over the one here, so that the same script serves for a trial of another.
set -euo pipefail

# NCCL as it comes, as NVIDIA advises: no NCCL_PROTO, NCCL_ALGO or NCCL_P2P_LEVEL. This deployment is for many users at
# once. Worth a trial on two sockets with all memory channels filled, against a plain restart as control:
#   NCCL_P2P_DISABLE=1 NCCL_MIN_CTAS=16 NCCL_MAX_CTAS=32 NCCL_BUFFSIZE=33554432 CUDA_DEVICE_MAX_CONNECTIONS=32
# was seen to double the throughput of 100 users and to cost a single one a fifth of its pace; it takes memory.
# (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html; https://github.com/local-inference-lab/rtx6kpro)

# What NCCL found and chose, once at the start, at no cost later: the line to look for is "Pattern 4".
export NCCL_DEBUG="${NCCL_DEBUG:-INFO}" NCCL_DEBUG_SUBSYS="${NCCL_DEBUG_SUBSYS:-INIT,GRAPH,TUNING,ENV}"
# One host: do not look for InfiniBand. Shortens the start, changes nothing after it (NCCL's documentation).
export NCCL_IB_DISABLE="${NCCL_IB_DISABLE:-1}"
# vLLM gives up on an engine that is not ready after 600 s; 230 GB from disk take longer (vllm-project/vllm#35547).
export VLLM_ENGINE_READY_TIMEOUT_S="${VLLM_ENGINE_READY_TIMEOUT_S:-2700}"
# Tensors go from the file to the card without a copy in host memory (MiniMax's deployment guide).
export SAFETENSORS_FAST_GPU="${SAFETENSORS_FAST_GPU:-1}"
# Nothing is sent anywhere at the start (vLLM's documentation, "usage stats").
export VLLM_NO_USAGE_STATS="${VLLM_NO_USAGE_STATS:-1}"

arguments=(
    --served-model-name minimax-m2.5       # what clients ask for; the pool in gateway.yaml has the same name
    --host 127.0.0.1 --port "${ENGINE_PORT:-8001}"  # the gateway is on the same host: nobody else need reach it
    --trust-remote-code                    # MiniMax's deployment guide
    --tensor-parallel-size 8 --enable-expert-parallel  # whole experts on each card: tensor parallelism alone cannot
                                           # cut them into eight (vLLM's recipe and MiniMax's deployment guide)
    --max-model-len 196608                 # all that the model can
    --max-num-seqs 256
    --max-num-queued-reqs 1024             # then 503, which the gateway takes to another engine or tells the client
    --reasoning-parser minimax_m2          # not minimax_m2_append_think: that leaves the thinking inside the content,
                                           # where nobody can tell it from the answer
    --tool-call-parser minimax_m2 --enable-auto-tool-choice
    --enable-per-request-metrics           # the engine's own times, which the gateway holds against what it measured
    --shutdown-timeout 120                 # SIGTERM lets open answers finish
    --disable-uvicorn-access-log           # the gateway logs every request
)
# VLLM may be several words: a command and its first arguments.
# shellcheck disable=SC2086
exec ${VLLM:-vllm} serve MiniMaxAI/MiniMax-M2.5 "${arguments[@]}" "$@"
