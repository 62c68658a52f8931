#!/usr/bin/env bash
# usage: check.sh PROGRAM [PART...]
# Holds PROGRAM to the goldens of this folder; all parts, or those named: resume, rows, tune, hashes, peaks, json_keys,
# options. Exit status: 0 as before, 1 not, 77 skipped.
set -euo pipefail
exec python3 -B "$(dirname "$0")/goldens.py" check "$@"
