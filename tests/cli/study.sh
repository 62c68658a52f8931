#!/usr/bin/env bash
# usage: study.sh KILN
# Both studies at the tiny scale: every part is done; Ctrl-C keeps what is finished and the same command resumes; what
# was reduced is said; a part that cannot run is named and the others are done.
source "${BASH_SOURCE%/*}/scratch.sh"
done_parts() { grep -c '"status": "ok"' "$work/runs/study-2025-tiny/study.json" 2>/dev/null || true; }
study=("$kiln" study 2025 --scale tiny --device cpu --out "$work/runs")

(trap - INT; exec "${study[@]}" >"$work/out" 2>"$work/err") &
process=$!
for _ in {1..900}; do
  [[ $(done_parts) -ge 1 ]] && break
  kill -0 "$process" 2>/dev/null || fail "ended before its first part"
  sleep 0.1
done
kill -INT "$process"
status=0
wait "$process" || status=$?
((status == 0)) || fail "SIGINT: exit $status"
grep -q 'stopped before the end; the same command resumes there' "$work/out" || fail "does not say how it ended"
before=$(done_parts)
((before >= 1 && before < 23)) || fail "$before parts done"

"${study[@]}" >"$work/out" 2>"$work/err" || fail "resume: exit $?"
grep -q "$before of 23 parts were run before" "$work/out" || fail "does not resume from what is done"
grep -q '^23 of 23 parts done' "$work/out" || fail "not all parts are done"
grep -q '^Reduced: ' "$work/out" || fail "does not say that it is reduced"
grep -q '  step: --size nano,micro,tiny instead of small,' "$work/out" || fail "does not say what is reduced"
[[ $(done_parts) == 23 ]] || fail "expected 23 parts in study.json"
folder=$work/runs/study-2025-tiny
for name in step-ctx/step/time-over-ctx step/step/time-over-params step/step/speedup-dtype \
  memory-scaling/memory/scaling-nano-bf16-b4-peak ddp/ddp/overlap zero/zero/memory-over-ranks fsdp/fsdp/overlap; do
  [[ -s $folder/$name.svg ]] || fail "there is no $name.svg"
  grep -qF "($name.svg)" "$folder/${name%%/*}.md" || fail "${name%%/*}.md does not show $name.svg"
done
grep -q '10.0001335' "$folder/precision-accumulate.md" || fail "a part's page lacks its table"
grep -qF '[profile.md](profile.md)' "$folder/study.md" || fail "study.md does not lead to the parts"
grep -q 'stage 1 on 2 ranks keeps .* of state on a rank' "$folder/zero.md" || fail "a part does not begin with its answer"
grep -q '^- .*: flat .* as fast as naive' "$folder/study.md" || fail "study.md lacks a part's answer"
grep -q '"part":"flash"' "$work/runs/results.jsonl" || fail "rows are not gathered"

# A command line from the list, run by hand, does the same.
line=$("$kiln" precision --study 2025 --only precision-toymodel --list --device cpu --out "$work/hand" | grep '^kiln ')
"$kiln" ${line#kiln } >"$work/out" 2>"$work/err" || fail "by hand: exit $?"
grep -q 'fc1 output' "$work/out" || fail "by hand: another table"

# Of the other study what this one has not.
"$kiln" study 2026 --scale tiny --device cpu --out "$work/runs" --json \
  --only step-10b,profile,memory,memory-fused,residuals-block,residuals-block-16-heads,residuals-rms-norm,recompute,weighted-sum \
  >"$work/out" 2>"$work/err" || fail "2026: exit $?"
[[ $(grep -c '"status": "ok"' "$work/out") == 9 ]] || fail "2026: not all parts are done"

# A part that takes too long is named, the other is done; the next run tries it again.
status=0
"$kiln" study 2025 --scale tiny --device cpu --only step,precision-layernorm --part-timeout 1.5 --out "$work/odd" \
  >"$work/out" 2>"$work/err" || status=$?
((status == 1)) || fail "a part that takes too long: exit $status"
grep -q '^precision-layernorm  *ok' "$work/out" || fail "the other part is not done"
grep -q '^kiln: step: it took more than 1.5 s$' "$work/err" || fail "does not name the part"

# Where no kernel runs, the parts that have something to say say it, and the others are named.
"$kiln" study 2025 --scale tiny --device meta --out "$work/meta" >"$work/out" 2>"$work/err" || fail "meta: exit $?"
grep -q '^memory  *ok' "$work/out" || fail "meta: memory is not done"
grep -q '^precision-accumulation  *unavailable' "$work/out" || fail "meta: what times is not said to be unavailable"
