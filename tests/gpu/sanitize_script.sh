#!/usr/bin/env bash
# Does tests/gpu/sanitize.sh draw the right conclusions? A made-up compute-sanitizer writes the reports, so this needs no
# GPU. Its behaviour is set by FAKE: what it says of the op cases, or BLIND: the tool that misses its planted bug.
set -euo pipefail
script=$(cd "$(dirname "$0")" && pwd)/sanitize.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"

program() { cat >"$folder/bin/$1" && chmod +x "$folder/bin/$1"; }
program nvidia-smi <<'EOF'
#!/usr/bin/env bash
[[ -z ${NO_GPU:-} ]]
EOF
program tests <<'EOF'
#!/usr/bin/env bash
[[ $KILN_ALLOC == raw ]] || exit 9
[[ ${FAKE:-} != failing ]] || { echo "[  FAILED  ] All/CudaOpCases.AsGoodAsTheCpu/x"; exit 1; }
[[ ${FAKE:-} != skipping ]] || { echo "[  PASSED  ] 0 tests."; exit 0; }
echo "[  PASSED  ] 7 tests."
EOF
program planted <<'EOF'
#!/usr/bin/env bash
exit 0
EOF
program compute-sanitizer <<'EOF'
#!/usr/bin/env bash
while [[ $1 == --* ]]; do
  case $1 in --tool) tool=$2 ;; --log-file) log=$2 ;; --error-exitcode) found=$2 ;; esac
  shift 2
done
exec 3>"$log"
say() { echo "========= $1" >&3; }
say COMPUTE-SANITIZER
status=0
"$@" || status=$?
count=0
report() { count=1; say "$1"; say "    at $2+0x70"; say "    by thread (0,0,0) in block (0,0,0)"; say ""; status=$found; }
if [[ $1 == */planted ]]; then
  [[ $2 == "${BLIND:-}" ]] || report "Some error" "kiln::planted_bug(float *)"
else
  case ${FAKE:-} in
    ours) report "Invalid __global__ read of size 4 bytes" "void kiln::softmax_kernel<float>(float *)" ;;
    theirs) report "Uninitialized __global__ memory read of size 4 bytes" "cublasLt::reduce_kernel(float *)" ;;
    call) say "Program hit cudaErrorInvalidValue on CUDA API call to cudaMalloc."; status=$found ;;
    crash) exit 1 ;;
    new_form) count=3 ;;
  esac
fi
if [[ $tool == racecheck ]]; then say "RACECHECK SUMMARY: $count hazards"; else say "ERROR SUMMARY: $count errors"; fi
exit $status
EOF

expect() {  # STATUS TEXT [VARIABLE=VALUE...]
  local wanted=$1 text=$2 status=0
  shift 2
  env PATH="$folder/bin:$PATH" TMPDIR="$folder" "$@" "$script" "$folder/bin/tests" "$folder/bin/planted" \
    >"$folder/out.txt" 2>&1 || status=$?
  if [[ $status != "$wanted" ]] || ! grep -q -- "$text" "$folder/out.txt"; then
    echo "with '$*': status $status, expected $wanted and '$text' in:"
    cat "$folder/out.txt"
    exit 1
  fi
}

expect 0 '^synccheck  *found  *7  *0  *0 '
expect 1 '^initcheck  *found  *7  *0  *1  *[0-9]* *$' FAKE=theirs
expect 1 '^memcheck  *found  *7  *1  *0 ' FAKE=theirs
expect 1 '^memcheck  *found  *7  *1  *0 .*Invalid __global__ read' FAKE=ours
expect 1 '^memcheck  *found  *7  *1  *0 ' FAKE=call
expect 1 'tests failed' FAKE=failing
expect 1 'no test ran' FAKE=skipping
expect 1 'the tool itself failed' FAKE=crash
expect 1 'a form this script does not know' FAKE=new_form
for tool in memcheck racecheck initcheck synccheck; do
  expect 1 "^$tool  *MISSED" BLIND=$tool
done
expect 3 'no GPU here' NO_GPU=1

status=0
"$script" >/dev/null 2>&1 || status=$?
[[ $status == 2 ]] || { echo "without arguments: status $status, expected 2"; exit 1; }
