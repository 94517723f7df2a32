#!/usr/bin/env bash
# Runs a command on a worker of a TPU, once what an earlier connection has left running there has saved and ended.
#
#     bash scripts/launch/worker.sh [COMMAND ...]        without COMMAND it only ends what runs
#
# A connection that breaks leaves its command running, with the accelerator in its hands. A run whose lines nobody takes
# any more saves and ends by itself. Every line has the end of the worker's name in front.
set -uo pipefail

cd "$(dirname "$0")/../.." || exit
mkdir -p "$HOME/sparse-topk"
record="$HOME/sparse-topk/pid"
exec 9>> "$HOME/sparse-topk/lock" # held by the command, and by all that it starts
if ! flock --nonblock 9; then
    pid=$(cat "$record")
    echo "stopping process $pid, which was left running"
    kill -TERM "$pid"
    if ! flock --timeout 120 9; then
        kill -KILL -- "-$pid"
        flock 9
    fi
fi
if [[ $# == 0 ]]; then
    exit 0
fi
exec 8< <(exec setsid "$@" 2>&1)
command=$!
echo "$command" > "$record"
sed --unbuffered "s/^/[${HOSTNAME##*-}] /" <&8
exec 8<&- # nobody takes its lines any more, if it still runs: it notices at the next one
wait "$command"
