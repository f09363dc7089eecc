#!/usr/bin/env bash
# The live tier: real clients through the gateway's own command to a real vLLM on this machine's processors, and the
# conformance suite against that vLLM.
#
#   tests/live/run.sh [pytest arguments]          e.g. -k rates -s
#
# Prepares everything itself: a CPU vLLM (2.5 GB, about 2 minutes, once), node, the npm client and a command-line agent
# (170 MB). All of it lies in .live/ and node_modules/, which git ignores; logs of the last run in .live/run. Loopback
# only.
#
#   LIVE_VLLM_VENV=DIR   a vLLM that is installed already
#   LIVE_FOLDER=DIR    another place for logs and stores
#   LIVE_COMMAND=FILE    another pacekeeper command than .venv/bin/pacekeeper
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
started=$SECONDS

tests/live/engine/install.sh

node=.live/node
if ! cmp -s tests/live/npm/requirements.txt "$node/installed.txt"; then
    rm -rf "$node"
    .venv/bin/python -m venv "$node"
    "$node/bin/python" -m pip install -qq --disable-pip-version-check --require-hashes -r tests/live/npm/requirements.txt
    cp tests/live/npm/requirements.txt "$node/installed.txt"
fi
if ! cmp -s tests/live/npm/package-lock.json tests/live/npm/node_modules/.installed.json; then
    (cd tests/live/npm && PATH="$OLDPWD/$node/bin:$PATH" npm ci --no-audit --no-fund --loglevel=error)
    cp tests/live/npm/package-lock.json tests/live/npm/node_modules/.installed.json
fi
if ! cmp -s tests/live/agent/package-lock.json tests/live/agent/node_modules/.installed.json; then
    (cd tests/live/agent && PATH="$OLDPWD/$node/bin:$PATH" npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    cp tests/live/agent/package-lock.json tests/live/agent/node_modules/.installed.json
fi
echo "live: prepared in $((SECONDS - started)) s"

# Whatever happens to pytest or to this script, nothing that was started outlives it.
export LIVE_FOLDER=${LIVE_FOLDER:-$PWD/.live/run}
finish() {
    local status=$?
    trap - EXIT
    .venv/bin/python -m tests.live.rig.leftover "$LIVE_FOLDER" || status=1
    echo "live: $((SECONDS - started)) s in all"
    exit "$status"
}
trap finish EXIT
trap 'exit 143' TERM
export CONFORMANCE_TARGETS=real
run=(.venv/bin/python -m pytest tests/conformance tests/live -p no:xdist)
"${run[@]}" --durations=10 "$@" || {
    echo "== what failed is run once more, with engines of its own: what passes now has a race in it"
    "${run[@]}" --last-failed --last-failed-no-failures none --maxfail 5
}
