#!/usr/bin/env bash
# usage: sweep_signals.sh KILN
# Ctrl-C ends a sweep with what is done kept, printed and exit 0; the same command resumes; a cell that takes too long
# is a row; no cell's process or folder is left behind.
source "${BASH_SOURCE%/*}/scratch.sh"
rows() { grep -c '"cell":' "$work/runs/results.jsonl" 2>/dev/null || true; }
# Every other cell would take minutes.
sweep=(bench step --size micro --grid ctx=32,64 --grid steps=5,1000000 --warmup 1 --threads 1 --device cpu --out "$work/runs")

(trap - INT; exec "$kiln" "${sweep[@]}" >"$work/out" 2>"$work/err") &
process=$!
for _ in {1..600}; do
  [[ $(rows) -ge 1 ]] && break
  kill -0 "$process" 2>/dev/null || fail "ended before its first cell"
  sleep 0.1
done
sleep 0.5 # inside the second cell by now
kill -INT "$process"
status=0
wait "$process" || status=$?
((status == 0)) || fail "SIGINT: exit $status"
grep -q 'stopped with 3 of 4 cells not run; the same command resumes there' "$work/out" || fail "does not say how it ended"
grep -q '^32 *5 ' "$work/out" || fail "the finished row is not shown"
[[ $(rows) == 1 ]] || fail "expected the one finished row to be kept"
compgen -G "$work/runs/cell-*" >/dev/null && fail "a cell's folder is left"

# Resumes, gives up what takes too long, and repairs a torn line on the way.
printf '{"command":"bench st' >>"$work/runs/results.jsonl"
"$kiln" "${sweep[@]}" --cell-timeout 4 >"$work/out" 2>"$work/err" || fail "resume: exit $?"
grep -q '1 of 4 cells were measured before' "$work/out" || fail "does not resume from the stored row"
grep -q 'the last line was cut off after 20 bytes and is removed' "$work/out" || fail "does not say that it repaired the file"
grep -Eq '^32 *1000000 .*timeout' "$work/out" || fail "no row for the cell that took too long"
[[ $(rows) == 4 ]] || fail "expected 4 stored rows, there are $(rows)"
compgen -G "$work/runs/cell-*" >/dev/null && fail "a cell's folder is left"
"$kiln" "${sweep[@]}" --cell-timeout 4 >"$work/out" 2>"$work/err" || fail "third: exit $?"
grep -q '4 of 4 cells were measured before' "$work/out" || fail "measures again what is stored"
