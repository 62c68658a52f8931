#!/usr/bin/env bash
# usage: tools/valgrind.sh KILN_TESTS [FILTER]
# valgrind memcheck over unit tests. It does not know AVX-512, so kernels run as on a machine with AVX2: what the
# sanitizers' builds do not run that way. Every allocation stands alone (KILN_ALLOC=raw). A mistake is planted first, which
# must be found. The default filter leaves out what takes minutes under valgrind; 77: valgrind is not here.
set -euo pipefail
tests=$(realpath "$1")
filter=${2:-Checkpoint*:Manifest*:RunFolder*:Safetensors*:Json*:Allocator*:Tape*:TokenS*:Tokenizer*:Bpe*:Tiktoken*:BatchLoader*:HfConfig*:HfIndex*:Options*:Crc32c*:AtomicFile*:TrainStep*:Tensor*-*HundredThousand*:*OffsetsBeyond*:*NoCut*:*WithEvery*}
command -v valgrind >/dev/null || { echo "skipped: memcheck: valgrind is not here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/planted.c" <<'EOF'
#include <stdlib.h>
int main(void) { int* a = malloc(8); int b = a[1]; free(a); return b > 3 ? 7 : 0; }
EOF
${CC:-cc} -O0 -g -o "$work/planted" "$work/planted.c"
supp=$(cd "$(dirname "$0")/../tests" && pwd)/memcheck.supp
memcheck=(valgrind --quiet --suppressions="$supp" --error-exitcode=9 --leak-check=no --num-callers=20)
status=0
"${memcheck[@]}" "$work/planted" >/dev/null 2>&1 || status=$?
((status == 9)) || { echo "memcheck does not find a planted mistake"; exit 1; }

status=0
KILN_ALLOC=raw KILN_CPU_ISA=avx2 "${memcheck[@]}" "$tests" --gtest_brief=1 --gtest_filter="$filter" >"$work/log" 2>&1 || status=$?
if ((status != 0)); then
  tail -80 "$work/log"
  echo "memcheck: exit $status"
  exit 1
fi
echo "memcheck: $(grep -oE '[0-9]+ tests? from|PASSED  \] [0-9]+ tests?' "$work/log" | tail -1 | grep -oE '[0-9]+ tests?'), 0 errors"
