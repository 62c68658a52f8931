#!/usr/bin/env bash
# usage: all.sh KILN
# kiln all with steps that have no time: each is named, the others are done all the same, what is done is not done again,
# and the bundle has the folder. The steps themselves have tests of their own.
source "${BASH_SOURCE%/*}/scratch.sh"
run() { "$kiln" all --quick --step-timeout 0.4 --device cpu --out "$work/runs" "$@" >"$work/out" 2>"$work/err"; }

status=0
run || status=$?
((status == 1)) || fail "exit $status, expected 1: steps have failed"
grep -q '^check  *failed .*it took more than 0.4 s' "$work/out" || fail "does not say which step took too long"
grep -q '^bundle  *done' "$work/out" || fail "a step that fails ends the others"
grep -q '^kiln: check: it took more than 0.4 s' "$work/err" || fail "the failure is not the command's"
# Not a pipe: grep -q ends at its first hit, and tar would then fail.
grep -q '^runs/all.json$' <(tar -tzf "$work/runs.tar.gz") || fail "the bundle lacks all.json"

status=0
run || status=$?
grep -q '^bundle  *reused' "$work/out" || fail "does again what is done"
grep -q '^check  *failed' "$work/out" || fail "takes what failed for done"
run --fresh --json || true
python3 - "$work/out" <<'END' || fail "--fresh --json is no document of steps that were done again"
import json, sys
steps = json.load(open(sys.argv[1]))["steps"]
assert [s["name"] for s in steps] == ["check", "study-2025", "ablate", "quality", "report", "bundle"], steps
assert steps[-1]["outcome"] == "done", steps[-1]
END

# A file where the folder should be.
: >"$work/file"
status=0
"$kiln" all --quick --out "$work/file" >"$work/out" 2>"$work/err" || status=$?
((status == 1)) && [[ $(wc -l <"$work/err") -le 2 ]] || fail "a folder that cannot be: exit $status"
echo "all: passed"
