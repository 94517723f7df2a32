#!/usr/bin/env bash
# A batch script for sbatch: runs its arguments as a command in every task of the job.
#
# If one task fails the others are stopped; every line is prefixed with the number of its task.
set -euo pipefail

exec srun --label --kill-on-bad-exit=1 "$@"
