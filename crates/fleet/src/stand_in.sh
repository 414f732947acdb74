#!/bin/sh
# Stands in for a process of the fleet, under whose name it is started: writes its arguments and its GPUs, and later that
# it was terminated.
name=$(basename "$0")
folder=$(dirname "$0")
trap 'echo "$name" >> "$folder/ended"; exit 0' TERM
echo "$name $* CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES" >> "$folder/started"
while :; do sleep 0.02; done
