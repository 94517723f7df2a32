#!/usr/bin/env bash
# Makes an environment, or adds to one that is there, what requirements.txt or a group of pyproject.toml asks for.
#
#     bash scripts/environment.sh DIRECTORY REQUIREMENT...
#
# REQUIREMENT is what pip takes: packages, -r FILE, --group NAME. PYTHON names the Python; without it, the newest that all pins have
# wheels for, among those on the path and pyenv's (whose commands for versions that are not chosen are there, and fail).
set -euo pipefail
cd "$(dirname "$0")/.."

readonly directory=$1
shift

find_python() {
    local minor python pyenv=${PYENV_ROOT:-$HOME/.pyenv}
    for minor in 13 12 11; do
        for python in "python3.$minor" "$pyenv/versions/3.$minor."*/bin/python python3; do
            if "$python" -c "import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, $minor))" 2>/dev/null; then
                echo "$python"
                return
            fi
        done
    done
    echo python3
}

if [[ ! -x $directory/bin/python ]]; then
    python=${PYTHON:-$(find_python)}
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    case $version in
        3.12 | 3.13) ;;
        3.11) echo "Python 3.11: the last JAX for it is installed; Python 3.12 and 3.13 get today's" ;;
        *)
            echo "Python 3.11, 3.12 or 3.13 is needed, $python is $version: make ... PYTHON=python3.13" >&2
            exit 1
            ;;
    esac
    "$python" -m venv "$directory"
fi

# By uv, several times faster than pip; by pip where the index is one that only pip is told of. What they say, warnings
# above all, is in a log, of which the end is shown if neither gets to its own. Python compiles what it imports, once,
# unless it may not write; to compile everything ahead takes longer.
uv=$(sed -n 's/^readonly UV=//p' scripts/launch/install.sh)
groups="pip>=25.1" # those before know no --group
log=$directory/install.log
pip=("$directory/bin/python" -m pip install --quiet --disable-pip-version-check)
if ! { "${pip[@]}" "uv==$uv" &&
    "$directory/bin/uv" pip install --quiet ${PYTHONDONTWRITEBYTECODE:+--compile-bytecode} \
        --python "$directory/bin/python" "$groups" --constraint requirements-lock.txt "$@"; } >> "$log" 2>&1; then
    echo "uv could not install the packages ($log): pip does, in some minutes"
    if ! { "${pip[@]}" "$groups" && "${pip[@]}" --constraint requirements-lock.txt "$@"; } >> "$log" 2>&1; then
        tail -n 10 "$log" >&2
        echo "error: the packages could not be installed; all that was said: $log" >&2
        exit 1
    fi
fi
