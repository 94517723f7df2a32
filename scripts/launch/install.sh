#!/usr/bin/env bash
# Makes .venv in the unpacked code with a Python of its own: that of the machine may be too old.
#
#     bash scripts/launch/install.sh EXTRA COMMIT
#
# EXTRA is the extra of jax (tpu, cuda13, cpu for none), COMMIT what the code was taken from. May be repeated.
set -euo pipefail

readonly PYTHON=3.13
readonly UV=0.13.9
extra=$1
commit=$2

cd "$(dirname "$0")/../.."
ready=".venv/.ready-$extra"
if [[ -e $ready ]]; then
    exit
fi
echo "$commit" > COMMIT
export UV_UNMANAGED_INSTALL="$HOME/sparse-topk/uv-$UV"
uv="$UV_UNMANAGED_INSTALL/uv"
if [[ ! -x $uv ]]; then
    curl --retry 5 -LsSf "https://astral.sh/uv/$UV/install.sh" | sh
fi
"$uv" venv --quiet --allow-existing --python "$PYTHON" .venv
packages=(-r requirements.txt --group data --constraint requirements-lock.txt -e .)
if [[ $extra != cpu ]]; then
    packages+=("jax[$extra]")
fi
"$uv" pip install --quiet --python .venv/bin/python "${packages[@]}"
touch "$ready"
