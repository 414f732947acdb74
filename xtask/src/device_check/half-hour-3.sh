#!/bin/sh
# Third call of a borrowed half hour, at most 10 minutes: this archive beside a baseline, then two kinds of runs.
# half-hour-3.sh BASELINE OUT [OPTION OF run.sh]…; BASELINE is an archive, or the folder of an unpacked one. See
# docs/device-check.md.
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ]; then
    echo "usage: $0 BASELINE OUT [OPTION]..." >&2
    exit 2
fi
baseline=$1
out=$2
shift 2
if [ -f "$baseline" ]; then
    work=$(mktemp -d) || exit 2
    trap 'rm -rf "$work"' EXIT
    tar -xf "$baseline" -C "$work" || exit 2
    baseline=$work/device-check
fi
# This archive defines the steps, the baseline has the programs.
timeout 215 "$here/bin/xtask" device-check --run --folder "$baseline" --out "$out/baseline" --budget-seconds 205 \
    --steps learner,selfplay,muzero "$@"
timeout 220 "$here/run.sh" --out "$out/tested" --budget-seconds 210 --against "$out/baseline/check.json" \
    --steps learner,selfplay,muzero,baseline "$@"
status=$?
timeout 160 "$here/run.sh" --out "$out/runs" --budget-seconds 150 --steps group,boards "$@" || status=1
exit $status
