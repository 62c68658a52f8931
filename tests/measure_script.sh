#!/usr/bin/env bash
# usage: measure_script.sh TOOLS/MEASURE_H200.SH
#
# The script that measures the committed tables, with programs that only write down how they were called: every command gets its
# rows into the right file, a failure does not end the others and is told, and the files are few enough to carry.
set -euo pipefail
script=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "measure_script.sh: $*" >&2; cat "$folder/said" >&2; exit 1; }
cat >"$folder/kiln" <<'STUB'
#!/usr/bin/env bash
[[ $1 != doctor ]] || exit 0
while (($#)); do [[ $1 != --out ]] || { echo '{"command":"kiln"}' >>"$2/results.jsonl"; }; [[ $1 != medium ]] || bad=1; shift; done
exit ${bad:-0}
STUB
cat >"$folder/python" <<'STUB'
#!/usr/bin/env bash
while (($#)); do [[ $1 != --rows ]] || echo '{"command":"peer"}' >>"$2"; shift; done
STUB
chmod +x "$folder/kiln" "$folder/python"
export KILN=$folder/kiln PYTHON=$folder/python
status=0
"$script" "$folder/out" >"$folder/said" 2>&1 || status=$?
((status == 1)) || fail "a command failed, the status is $status"
grep -q 'failed: .*--size medium .*(status 1)' "$folder/said" || fail "the failure is not named"
for want in step.jsonl:6 torch_step.jsonl:6 flash_steps.jsonl:1 flash_tokens16k.jsonl:1 torch_attention.jsonl:2 ablate.jsonl:1; do
  file=$folder/out/${want%:*}
  [[ $(wc -l <"$file") == "${want#*:}" ]] || fail "$want, but $file has $(wc -l <"$file") rows"
done
(($(find "$folder/out" -type f | wc -l) <= 8)) || fail "more than 8 files"
"$script" "$folder/other" ablate >"$folder/said" 2>&1 || fail "one part alone"
[[ ! -e $folder/other/step.jsonl ]] || fail "steps were measured and not asked for"
! "$script" "$folder/other" nothing >"$folder/said" 2>&1 || fail "an unknown part is accepted"
! KILN=/nowhere "$script" "$folder/other" >"$folder/said" 2>&1 || fail "a program that is not there is accepted"
echo "every table has its command"
