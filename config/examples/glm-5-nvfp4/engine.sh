#!/usr/bin/env bash
# GLM-5 in NVIDIA's NVFP4 build (about 430 GB) on eight PCIe Blackwell GPUs of 96 GB without NVLink.
#
#   config/examples/glm-5-nvfp4/engine.sh [more vllm arguments]                the real thing: vLLM 0.32
#   VLLM="pacekeeper simulate-engine --preset glm-5-nvfp4 --load-speed 500 --" config/examples/glm-5-nvfp4/engine.sh
#
# A variable that is set already wins over the one here, so that the same script serves for a trial of another.
set -euo pipefail

# NCCL as it comes, as NVIDIA advises: no NCCL_PROTO, NCCL_ALGO or NCCL_P2P_LEVEL. On this model and this class of box a
# tuner that made large all-reduces 10 to 50 % faster changed decode not at all: nine calls in ten are LL already.
# (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html; https://github.com/local-inference-lab/rtx6kpro,
# optimization/nccl-tuning)

# What NCCL found and chose, once at the start, at no cost later: the line to look for is "Pattern 4".
export NCCL_DEBUG="${NCCL_DEBUG:-INFO}" NCCL_DEBUG_SUBSYS="${NCCL_DEBUG_SUBSYS:-INIT,GRAPH,TUNING,ENV}"
# One host: do not look for InfiniBand. Shortens the start, changes nothing after it (NCCL's documentation).
export NCCL_IB_DISABLE="${NCCL_IB_DISABLE:-1}"
# vLLM gives up on an engine that is not ready after 600 s; 430 GB from disk take longer (vllm-project/vllm#35547).
export VLLM_ENGINE_READY_TIMEOUT_S="${VLLM_ENGINE_READY_TIMEOUT_S:-3600}"
# Nothing is sent anywhere at the start (vLLM's documentation, "usage stats").
export VLLM_NO_USAGE_STATS="${VLLM_NO_USAGE_STATS:-1}"

arguments=(
    --served-model-name glm-5              # what clients ask for; the pool in gateway.yaml has the same name
    --host 127.0.0.1 --port "${ENGINE_PORT:-8001}"  # the gateway is on the same host: nobody else need reach it
    --tensor-parallel-size 8               # 54 GB of weights on each card
    --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'  # the model's own head drafts (vLLM's recipe
                                           # takes 3; of the third one few were accepted, and many users pay for each)
    --max-num-seqs 256
    --max-num-queued-reqs 1024             # then 503, which the gateway takes to another engine or tells the client
    --reasoning-parser glm45               # thinking comes as `reasoning`, apart from the answer (vLLM's recipe)
    --tool-call-parser glm47 --enable-auto-tool-choice  # the parser's names differ, as in vLLM's recipe
    --enable-per-request-metrics           # the engine's own times, which the gateway holds against what it measured
    --shutdown-timeout 120                 # SIGTERM lets open answers finish
    --disable-uvicorn-access-log           # the gateway logs every request
)
# VLLM may be several words: a command and its first arguments.
# shellcheck disable=SC2086
exec ${VLLM:-vllm} serve nvidia/GLM-5-NVFP4 "${arguments[@]}" "$@"
