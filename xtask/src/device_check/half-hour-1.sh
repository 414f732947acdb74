#!/bin/sh
# First call of a borrowed half hour, at most 10 minutes: correctness, short runs, and PyTorch on the same card.
# half-hour-1.sh OUT [OPTION OF run.sh]…; see docs/device-check.md.
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
    echo "usage: $0 OUT [OPTION]..." >&2
    exit 2
fi
out=$1
shift
mkdir -p "$out" || exit 2
timeout 530 "$here/run.sh" --out "$out" --budget-seconds 520 \
    --steps env,load,abi,graphs,train,threads,nccl,precision,sweep,learner,run,drain,killed,reference \
    "$@" >"$out/table.txt" 2>&1
status=$?
cat "$out/table.txt"
if grep -q '^train  *FAIL' "$out/table.txt" && command -v compute-sanitizer >/dev/null; then
    folders=$("${PYTHON:-python3}" -c \
        'import json, sys; print(":".join(json.load(open(sys.argv[1]))["machine"]["libtorch"]))' "$out/check.json")
    LD_LIBRARY_PATH=$folders timeout 60 compute-sanitizer --tool memcheck "$here/bin/device" train --device cuda 2>&1 |
        tail -n 200 >"$out/memcheck.txt"
fi
exit $status
