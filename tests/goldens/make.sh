#!/usr/bin/env bash
# usage: make.sh PROGRAM [PART...]
# Writes the goldens of this folder anew from PROGRAM. README.md says when that is right: almost never.
set -euo pipefail
exec python3 -B "$(dirname "$0")/goldens.py" make "$@"
