#!/usr/bin/env bash
# Two real engines with the tiny model, to try the gateway with; Ctrl-C stops both.
#
#   tests/live/engine/pair.sh [PORT PORT] [-- more vllm arguments]     ports 8001 and 8002 by default
#
# Installs vLLM first where that has not been done. Needs 5 GB of memory; on two cores both are up in a minute.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
ports=(8001 8002)
if [ $# -ge 2 ] && [ "$1" != -- ]; then
    ports=("$1" "$2")
    shift 2
fi
[ "${1:-}" != -- ] || shift
"$here/install.sh"

logs="$root/.live"
mkdir -p "$logs"
engines=()
# vLLM is three processes; a session each makes them all reachable, even when the first has died.
stop() {
    trap - EXIT INT TERM
    for engine in "${engines[@]}"; do kill -TERM "$engine" 2>/dev/null || true; done
    for _ in $(seq 50); do
        pgrep --session "$(IFS=,; echo "${engines[*]}")" >/dev/null || break
        sleep 0.1
    done
    pkill -KILL --session "$(IFS=,; echo "${engines[*]}")" || true
    wait
}
trap stop EXIT INT TERM
for port in "${ports[@]}"; do
    setsid "$here/serve.sh" "$port" --enable-per-request-metrics "$@" >"$logs/pair-$port.log" 2>&1 &
    engines+=($!)
done

for i in 0 1; do
    until curl --silent --fail --max-time 2 --output /dev/null "http://127.0.0.1:${ports[$i]}/health"; do
        if ! kill -0 "${engines[$i]}" 2>/dev/null; then
            echo "the engine on port ${ports[$i]} ended; the last lines of $logs/pair-${ports[$i]}.log:" >&2
            tail -n 15 "$logs/pair-${ports[$i]}.log" >&2
            exit 1
        fi
        sleep 0.5
    done
    echo "engine $((i + 1)) of 2 serves the model 'tiny' on http://127.0.0.1:${ports[$i]}"
done
echo "both are up; Ctrl-C stops them"
wait
