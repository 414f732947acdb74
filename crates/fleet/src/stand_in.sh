#!/bin/sh
# Takes the place of a fleet process in tests, under the name of the process. Appends name, arguments and visible GPUs
# to the file `started`, and after SIGTERM the name to the file `ended`.
name=$(basename "$0")
folder=$(dirname "$0")
trap 'echo "$name" >> "$folder/ended"; exit 0' TERM
echo "$name $* CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES" >> "$folder/started"
while :; do sleep 0.02; done
