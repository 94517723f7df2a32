#!/usr/bin/env bash
# A batch script for sbatch: runs its arguments as a command in every task of the job.
#
# If one task fails the others are stopped; every line is prefixed with the number of its task.
set -euo pipefail

# Since 22.05 srun does not take over what sbatch was given.
if [[ -n "${SLURM_CPUS_PER_TASK:-}" ]]; then
    export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
fi
exec srun --label --kill-on-bad-exit=1 "$@"
