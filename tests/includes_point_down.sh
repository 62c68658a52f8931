#!/usr/bin/env bash
# Reads every #include of src/ and apps/ and fails on one that points up: from a folder to one that is above
# it, or on the same step, in the order of the house.
#   tests/includes_point_down.sh [ROOT]
set -euo pipefail
root=${1:-$(cd "$(dirname "$0")/.." && pwd)}

# A step a line, from the ground up; folders of one step do not know each other.
steps='base
rows data tune
device
tensor
autograd
ops
model optim abi
dist
perf
compile
train
report
studies
kiln'

check() {
  (cd "$1" && find src apps -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort |
    xargs awk -v steps="$steps" '
      BEGIN {
        n = split(steps, lines, "\n")
        for (i = 1; i <= n; i++) { m = split(lines[i], names, " "); for (j = 1; j <= m; j++) step[names[j]] = i }
      }
      FNR == 1 {
        split(FILENAME, parts, "/")
        room = parts[1] == "apps" ? "kiln" : parts[2]
        if (!(room in step)) { print FILENAME ": src/" room "/ has no step of its own; give it one in this test"; bad = 1; nextfile }
      }
      # KILN_SIMD_FILE is included by device/cpu/simd_each.h in the name of the file that defines it.
      /^[ \t]*#[ \t]*(include|define KILN_SIMD_FILE)[ \t]*["<]/ {
        split($0, quoted, /["<>]/); split(quoted[2], path, "/"); target = path[1]
        if (quoted[2] == "kiln/attention.h") next  # the published header, include/kiln
        if (target == "." || target == "..") {
          print FILENAME ":" FNR ": includes " quoted[2] "; say it from src/ on, so that its folder shows"; bad = 1
        }
        if ((target in step) && target != room && step[target] >= step[room]) {
          print FILENAME ":" FNR ": includes " quoted[2] ", which is above"; bad = 1
        }
      }
      END { exit bad }')
}

# A check that cannot fail is none: it must find what is planted here.
planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
mkdir -p "$planted"/src/{ops/add,train,base} "$planted/apps/kiln"
echo '#include "base/error.h"' > "$planted/src/ops/add/add.h"
echo '#include "ops/add/add.h"' > "$planted/src/train/step.h"
echo '#include "train/step.h"' > "$planted/apps/kiln/main.cpp"
check "$planted" >/dev/null || { echo "includes_point_down: finds fault with includes that point down"; exit 1; }
right=$(<"$planted/src/ops/add/add.h")
for wrong in '#include "train/step.h"' '#include <train/step.h>' '#  include "train/step.h"' '#include "../../train/step.h"' \
  '#define KILN_SIMD_FILE "train/step.h"'; do
  printf '%s\n%s\n' "$right" "$wrong" > "$planted/src/ops/add/add.h"
  if check "$planted" >/dev/null; then echo "includes_point_down: does not see an include that points up: $wrong"; exit 1; fi
done

check "$root"
echo "every include points down"
