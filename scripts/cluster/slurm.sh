#!/usr/bin/env bash
# A matrix as a Slurm job array, one shard a task:
#
#   POWERFAIL=/path/to/powerfail OUT=/shared/run sbatch --array=0-3 scripts/cluster/slurm.sh scripts/nightly.toml
#   powerfail report /shared/run --html page.html          when all are done; says what is missing
#
# A task that was killed and is requeued goes on where it was. Each task needs what the rig needs: root and the tools for
# host-loop, or QEMU, nbd-client and e2fsprogs for guests.
#SBATCH --job-name=powerfail
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --cpus-per-task=2
set -euo pipefail
matrix=${1:?the matrix file}
out=${OUT:?a folder that all tasks see}/$SLURM_ARRAY_TASK_ID
resume=()
[ -e "$out/run.json" ] && resume=(--resume)
# 1 says that a cell departs: a result, and no reason for Slurm to call the task failed. The report has it.
code=0
"${POWERFAIL:-powerfail}" matrix "$matrix" --shard auto --out "$out" --keep violated "${resume[@]}" "${@:2}" || code=$?
[ "$code" -le 1 ]
