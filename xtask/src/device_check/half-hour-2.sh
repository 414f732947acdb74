#!/bin/sh
# Second call of a borrowed half hour, at most 10 minutes: training on Connect Four, and the accuracy afterwards.
# half-hour-2.sh OUT [OPTION OF run.sh]…; see docs/device-check.md.
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
    echo "usage: $0 OUT [OPTION]..." >&2
    exit 2
fi
out=$1
shift
exec timeout 590 "$here/run.sh" --out "$out" --budget-seconds 560 --steps connect4 "$@"
