#!/usr/bin/env bash
# usage: sanitize.sh --present
#        sanitize.sh KILN_TESTS PLANTED_BUGS [TOOL...]
#
# Runs the CUDA op cases under the tools of compute-sanitizer, all four unless some are named. Before a tool is
# believed it must find its own bug in PLANTED_BUGS. Status 0: every planted bug was found and nothing else; 1: not so;
# 2: wrong usage; 3: no GPU or no compute-sanitizer, said in one line. --present asks only that.
#
#   KILN_SANITIZE_FILTER    gtest filter (default: every op case, every CUDA variant, every format, once)
#   KILN_SANITIZE_SECONDS   limit for each tool (default 600)
#   KILN_SANITIZE_LOGS      folder that keeps the logs (default: a temporary one, kept when something was found)
#   COMPUTE_SANITIZER       the program, where it is neither on PATH nor in /usr/local/cuda
set -euo pipefail

ALL_TOOLS=(memcheck racecheck initcheck synccheck)
FOUND=86  # the status by which compute-sanitizer says that it reported something

sanitizer() {
  local program
  for program in "${COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer || true)" \
    /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
    [[ -n $program && -x $program ]] && { echo "$program"; return; }
  done
  return 1
}

say_what_is_missing() {
  nvidia-smi -L >/dev/null 2>&1 || { echo "sanitize: no GPU here (nvidia-smi -L finds none)" >&2; exit 3; }
  sanitizer >/dev/null || { echo "sanitize: compute-sanitizer was not found; it comes with the CUDA toolkit" >&2; exit 3; }
}

# Races and barriers are a matter of one kernel, so only kiln's are looked at: the libraries' are not ours to mend, and
# slow. memcheck looks at theirs too: what they write outside their bounds is what we told them. initcheck must follow
# their writes, or every matmul would seem unwritten; its reports are sorted afterwards.
options_of() {
  case $1 in
    memcheck) echo "--padding 64" ;;  # a gap behind each allocation
    # racecheck knows nothing of what TMA and the tensor cores complete (mbarrier, wgmma): to it every
    # tile they hand on is a race. Bit-equality over many runs and a poisoned shared memory stand in for it there.
    racecheck) echo "--kernel-name kernel_substring=kiln --kernel-name-exclude kernel_substring=hopper_" ;;
    synccheck) echo "--kernel-name kernel_substring=kiln" ;;
    # Nor does initcheck see what TMA writes, and flash_hopper's kernels read each other's by the megabyte.
    initcheck) echo "--check-api-memory-access no --kernel-name-exclude kernel_substring=hopper_" ;;  # an unwritten result fails its test
  esac
}

# initcheck does not see what a library's kernel writes by TMA (Hopper's 16-bit matmuls do), and then
# reports the kernel of ours that reads it. Such reports count as theirs; the same kernels are judged in fp32 and fp64,
# whose matmuls write plainly. The cases of large matmuls are left out, or their reports would fill its buffer; and
# racecheck itself breaks down in them and in some of linear's (a hardware exception in the library's kernel, by its own
# word an internal error; memcheck finds these kernels to be right).
READS_PRODUCTS='hopper::delta_kernel|write_sums_kernel|MaskedSoftmaxProblem|scale_kernel|LogitsChunk'
# Nor does racecheck end in a quarter of an hour where a case is about the number of blocks (over 65,535 heads); the same
# kernels are judged in the others.
MANY_BLOCKS='*many_heads*'
LARGE_PRODUCTS='*batched_matmul*:*causal_127*:*grouped_130*:*full_70x129*:*causal_67x200*:*causal_150x70*:*causal_3x128*'

#
# Counts the reports of a log: "ours theirs", and the first two lines of the first of ours. A report begins at the left edge; with the host's stack left out, a name
# with an offset is a kernel's. Theirs are those that name a kernel, and none of kiln's; what names no kernel at all (a
# failed call, say) is ours.
count_reports() {
  awk -v products="$READS_PRODUCTS" '
    function judge() {
      if (open) { if (kernel && !kiln) theirs++; else { if (!ours++) shown = said } }
      open = 0
    }
    /^========= [^ ]/ {
      judge()
      if ($0 !~ /COMPUTE-SANITIZER|SUMMARY|Target application returned|No attachable process/) { open = 1; lines = kernel = kiln = unwritten = 0; said = ""; if ($0 ~ /Uninitialized/) unwritten = 1 }
    }
    open && lines++ < 2 { said = said $0 }
    open && /\+0x/ { kernel = 1 }
    open && /kiln/ { kiln = 1 }
    open && unwritten && /bf16|fp16/ && $0 ~ products { kiln = 0 }
    END { judge(); print ours + 0, theirs + 0, shown }' "$1"
}

# run_tool TOOL LOG PROGRAM ARGUMENTS...; what the program prints goes to LOG.out
run_tool() {
  local tool=$1 log=$2
  shift 2
  # shellcheck disable=SC2046  # options are words
  timeout -k 10 "${KILN_SANITIZE_SECONDS:-600}" "$(sanitizer)" --tool "$tool" $(options_of "$tool") --log-file "$log" \
    --error-exitcode "$FOUND" --show-backtrace no --print-limit 100000 "$@" >"$log.out" 2>&1
}

finds_its_bug() {
  local tool=$1 log=$logs/planted_$1.log status=0
  run_tool "$tool" "$log" "$planted" "$tool" || status=$?
  [[ $status != 0 ]] && grep -q 'planted_' "$log"  # a kernel that was stopped is also an error of the program
}

# Fills ours, theirs, ran and trouble.
check_ops() {
  local tool=$1 log=$logs/$1.log status=0
  local only=$filter
  if [[ -z ${KILN_SANITIZE_FILTER:-} ]]; then
    [[ $tool != initcheck ]] || only="$filter:-$LARGE_PRODUCTS"
    [[ $tool != racecheck ]] || only="$filter:-$LARGE_PRODUCTS:$MANY_BLOCKS:*linear*"
  fi
  trouble=
  KILN_ALLOC=raw run_tool "$tool" "$log" "$tests" "--gtest_filter=$only" --gtest_brief=1 || status=$?
  if [[ -e $log ]]; then read -r ours theirs first < <(count_reports "$log"); else ours=0 theirs=0 first=; fi
  if [[ $tool == memcheck ]]; then ours=$((ours + theirs)) theirs=0; fi  # see options_of
  ran=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\{0,1\}\..*/\1/p' "$log.out" | tail -n 1)
  ran=${ran:-0}
  if [[ $status == 124 || $status == 137 ]]; then
    trouble="not done after ${KILN_SANITIZE_SECONDS:-600} s"
  elif ! grep -q "ERROR SUMMARY\|RACECHECK SUMMARY" "$log" 2>/dev/null; then
    trouble="the tool itself failed: $(tail -n 1 "$log.out")"
  elif grep -q '^\[  FAILED  \]' "$log.out"; then
    trouble="tests failed"
  elif [[ $ran == 0 ]]; then
    trouble="no test ran"
  elif [[ $ours == 0 && $theirs == 0 ]] && grep -q 'SUMMARY: [1-9]' "$log"; then
    trouble="reports in a form this script does not know: $(grep -m 1 'SUMMARY:' "$log" | tr -d '=')"
  elif [[ $ours != 0 ]]; then
    [[ -n $first ]] || first=$(grep -m 1 -A 1 '^========= [^ C]' "$log" | tr '\n' ' ')  # a library's, by memcheck
    trouble=$(tr -s '= ' ' ' <<<"$first")
  fi
}

[[ ${1:-} == --present ]] && { say_what_is_missing; exit 0; }
[[ $# -ge 2 ]] || { echo "usage: sanitize.sh KILN_TESTS PLANTED_BUGS [TOOL...]" >&2; exit 2; }
tests=$1 planted=$2
shift 2
tools=("$@")
[[ $# -gt 0 ]] || tools=("${ALL_TOOLS[@]}")
for tool in "${tools[@]}"; do
  [[ " ${ALL_TOOLS[*]} " == *" $tool "* ]] || { echo "sanitize: unknown tool '$tool'; one of: ${ALL_TOOLS[*]}" >&2; exit 2; }
done
for program in "$tests" "$planted"; do
  [[ -x $program ]] || { echo "sanitize: $program is not a program; make cuda builds it" >&2; exit 2; }
done
say_what_is_missing

filter=${KILN_SANITIZE_FILTER:-*CudaOpCases.AsGoodAsTheCpu*}
if [[ -n ${KILN_SANITIZE_LOGS:-} ]]; then
  logs=$KILN_SANITIZE_LOGS
  mkdir -p "$logs"
else
  logs=$(mktemp -d)
fi

bad=0
row="%-10s  %-8s  %6s  %6s  %10s  %7s  %s\n"
# shellcheck disable=SC2059  # the format is the table's
printf "$row" tool planted tests errors "library's" seconds ""
for tool in "${tools[@]}"; do
  begin=$SECONDS
  status=found ours=- theirs=- ran=- trouble=
  if finds_its_bug "$tool"; then
    check_ops "$tool"
  else
    status=MISSED trouble="the tool does not see its planted bug, so it is not believed"
  fi
  [[ -z $trouble ]] || bad=1
  # shellcheck disable=SC2059
  printf "$row" "$tool" "$status" "$ran" "$ours" "$theirs" $((SECONDS - begin)) "$trouble"
done

if [[ $bad == 0 && -z ${KILN_SANITIZE_LOGS:-} ]]; then
  rm -rf "$logs"
else
  echo "logs: $logs"
fi
exit $bad
