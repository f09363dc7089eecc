#!/usr/bin/env bash
# A tiny real model (1.5 MB, made for this project's tests) on vLLM's CPU build: everything real but the size.
#
#   tests/live/engine/install.sh                                          installs vLLM, once: 2.5 GB
#   VLLM=.live/vllm/bin/vllm config/examples/tiny-cpu/engine.sh           half a minute to load on two cores
#   VLLM="pacekeeper simulate-engine --preset qwen3-8b-h200 --load-speed 500 --" config/examples/tiny-cpu/engine.sh
#
# A variable that is set already wins over the one here.
set -euo pipefail
model=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../tests/live/engine/tiny-model" && pwd)

# No NCCL: one process on processors has nobody to talk to.
# The model is a folder here: never ask the hub for it (Hugging Face's documentation).
export HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}"
# GiB for keys and values; by default vLLM takes a large share of the memory (vLLM's documentation, CPU).
export VLLM_CPU_KVCACHE_SPACE="${VLLM_CPU_KVCACHE_SPACE:-1}"
# By default vLLM sets cores aside, and of two that leaves one (vLLM's documentation, CPU).
export VLLM_CPU_OMP_THREADS_BIND="${VLLM_CPU_OMP_THREADS_BIND:-nobind}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# The model runs inside EngineCore: a process of its own and EngineCore would wait for each other in a loop that keeps
# other processes of a small machine from running (measured on two cores).
export VLLM_ENABLE_V1_MULTIPROCESSING="${VLLM_ENABLE_V1_MULTIPROCESSING:-0}"
# Nothing is sent anywhere at the start (vLLM's documentation, "usage stats").
export VLLM_NO_USAGE_STATS="${VLLM_NO_USAGE_STATS:-1}"

arguments=(
    --served-model-name tiny               # what clients ask for; the pool in gateway.yaml has the same name
    --host 127.0.0.1 --port "${ENGINE_PORT:-8001}"  # the gateway is on the same host: nobody else need reach it
    --max-model-len 2048                   # all that the model can
    --enforce-eager                        # nothing is compiled: it would take longer than it saves here
    --distributed-executor-backend uni     # belongs to VLLM_ENABLE_V1_MULTIPROCESSING=0 above
    --reasoning-parser qwen3               # the model thinks between the same marks
    --tool-call-parser hermes --enable-auto-tool-choice
    --enable-per-request-metrics           # the engine's own times, which the gateway holds against what it measured
    --shutdown-timeout 10                  # SIGTERM lets open answers finish
    --disable-uvicorn-access-log           # the gateway logs every request
)
# VLLM may be several words: a command and its first arguments.
# shellcheck disable=SC2086
exec ${VLLM:-vllm} serve "$model" "${arguments[@]}" "$@"
