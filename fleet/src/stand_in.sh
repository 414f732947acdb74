#!/bin/sh
# Stands in for a process of the fleet, under whose name it is started: writes how, and later that it was terminated.
name=$(basename "$0")
folder=$(dirname "$0")
trap 'echo "$name" >> "$folder/ended"; exit 0' TERM
echo "$name $*" >> "$folder/started"
while :; do sleep 0.02; done
