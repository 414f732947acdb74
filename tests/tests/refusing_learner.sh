#!/bin/sh
# Stands in for a learner that refuses its configuration.
echo "error: learner.device: no such device" >&2
exit 2
