#!/usr/bin/env bash
# usage: two_machines.sh path/to/kiln
# Ranks on two machines over MPI's TCP: two network namespaces of this one, each with a host name of its own and nothing
# between them but a virtual cable. mpirun reaches the second through a stand-in for ssh. Ends with 77 where namespaces
# may not be made (that takes root).
set -uo pipefail
kiln=$(readlink -f "$1")
work=$(mktemp -d)
tag=kiln$$
near=$tag-a far=$tag-b
failures=0

clear() {
  ip netns pids "$far" 2>/dev/null | xargs -r kill -9 2>/dev/null
  ip netns pids "$near" 2>/dev/null | xargs -r kill -9 2>/dev/null
  ip netns del "$near" 2>/dev/null
  ip netns del "$far" 2>/dev/null
  rm -rf "$work"
}
trap clear EXIT
fail() {
  echo "FAILED: $1" >&2
  sed 's/^/    /' "$work/out" "$work/err" >&2
  failures=$((failures + 1))
}

command -v ip >/dev/null && ip netns add "$near" 2>/dev/null && ip netns add "$far" 2>/dev/null &&
  ip -n "$near" link add cable type veth peer name cable netns "$far" 2>/dev/null || {
  echo "no network namespaces here: skipped"
  exit 77
}
ip -n "$near" addr add 10.77.0.1/24 dev cable
ip -n "$far" addr add 10.77.0.2/24 dev cable
for side in "$near" "$far"; do
  ip -n "$side" link set cable up
  ip -n "$side" link set lo up
done

# HOST COMMAND..., as ssh takes them.
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
shift
exec ip netns exec $far unshare --uts bash -c 'hostname machine-b; exec bash -c "\$0"' "\$*"
AGENT
chmod +x "$work/agent"

on_the_near_one() {
  OMPI_MCA_plm_rsh_agent=$work/agent OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 \
    OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 TMPDIR=$work \
    ip netns exec "$near" unshare --uts bash -c 'hostname machine-a; exec "$0" "$@"' "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
}
on_two_machines() { on_the_near_one "$kiln" run --nproc 2 --host 10.77.0.1,10.77.0.2 --transport mpi "$@"; }

on_the_near_one timeout 60 mpirun --allow-run-as-root -n 2 --host 10.77.0.1,10.77.0.2 hostname
[[ $(sort "$work/out" | tr '\n' ' ') == "machine-a machine-b " ]] || {
  cat "$work/out" "$work/err"
  echo "mpirun itself does not get from one namespace to the other: skipped"
  exit 77
}

on_two_machines -- doctor --collectives --json
[[ $status == 0 ]] || fail "doctor --collectives: status $status"
python3 - "$work/out" <<'PY' || fail "the page of doctor --collectives"
import json, sys
page = json.load(open(sys.argv[1]))
assert page["passed"] is True and page["ranks"] == 2 and page["transport"] == "mpi", page
PY

# The cable carried it, and a run over it is the run of one machine.
sent() { ip -n "$near" -s link show cable | awk '/TX:/ { getline; print $1 }'; }
before=$(sent)
train() { echo train --size nano --steps 3 --batch 4 --context 32 --threads 1 --canonical --out "$work/$1"; }
on_two_machines -- $(train two) --strategy fsdp
[[ $status == 0 ]] || fail "train on two machines: status $status"
(($(sent) - before > 1000000)) || fail "the cable carried $(($(sent) - before)) bytes"
"$kiln" $(train one) >"$work/out" 2>"$work/err" || fail "train on one machine"
tensors() { (cd "$work/$1/checkpoints/step-00000003" && sha256sum ./*.safetensors); }
[[ -n $(tensors one) && $(tensors one) == "$(tensors two)" ]] || fail "two machines end in other bits than one"

# The cable is pulled in the middle of a run: it ends, within the time-out, and says so.
before=$(sent)
(
  for ((i = 0; i < 300 && $(sent) - before < 3000000; ++i)); do sleep 0.1; done  # until ranks talk
  ip -n "$far" link set cable down
) &
begun=$SECONDS
KILN_COLLECTIVES_REPEAT=100000 on_two_machines --comm-timeout 3 -- doctor --collectives
[[ $status != 0 ]] || fail "a run over a pulled cable ended well"
((SECONDS - begun < 40)) || fail "a run over a pulled cable ended after $((SECONDS - begun)) s"
grep -q '^kiln: ' "$work/err" || fail "a run over a pulled cable said nothing"
[[ -n ${SHOW:-} ]] && cat "$work/err"
exit $((failures > 0))
