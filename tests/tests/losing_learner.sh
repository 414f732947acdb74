#!/bin/sh
# Stands in for a learner with an accelerator that fails during the run, as an asynchronous fault does: some time after
# the first checkpoint the process ends at once, with the status of a lost device. On the CPU it is the real learner.
real=$(dirname "$0")/real-learner
case " $* " in
*" learner.device=cpu "* | *" --devices "*) exec "$real" "$@" ;;
esac
before=
run=.
for argument in "$@"; do
    if [ "$before" = --config ]; then
        run=$(dirname "$argument")
    fi
    before=$argument
done
# A process in the background has no standard input unless it is named.
exec 3<&0
"$real" "$@" <&3 &
learner=$!
trap 'kill -TERM "$learner"; wait "$learner"; exit "$?"' TERM
while kill -0 "$learner" 2>/dev/null && ! ls "$run"/checkpoints/*/optimiser.safetensors >/dev/null 2>&1; do
    sleep 0.05
done
kill -KILL "$learner"
wait "$learner"
echo "error: the device is lost: CUDA error: an illegal memory access was encountered" >&2
exit 3
