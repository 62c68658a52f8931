#!/usr/bin/env bash
# usage: install_needs.sh ROOT
# What tests would be skipped without is needed wherever apt can bring it, and only said where it cannot. With an apt-get of
# our own on a PATH without strace: nothing is installed.
set -euo pipefail
script=$1/tools/install.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
for folder in /usr/local/bin /usr/bin /bin /usr/sbin /sbin; do
  for program in "$folder"/*; do
    case ${program##*/} in strace | apt-get | sudo) continue ;; esac
    [[ -e $work/bin/${program##*/} ]] || ln -s "$program" "$work/bin/${program##*/}"
  done
done
cat >"$work/id" <<'END'
#!/bin/sh
echo 0
END
chmod +x "$work/id"
ln -sf "$work/id" "$work/bin/id"

check() { # STATUS TEXT WHAT
  local got=0
  env -u KILN_NO_INSTALL PATH="$work/bin" bash "$script" test >"$work/out" 2>&1 || got=$?
  [[ $got == "$1" ]] && grep -q -- "$2" "$work/out" || {
    echo "$3: status $got, expected $1 and '$2' in:"
    cat "$work/out"
    exit 1
  }
}

check 0 'this system has no apt-get; continuing without: .*strace' "no apt"
printf '#!/bin/sh\nprintf "%%s\\n" "$*" >>%s/asked\nexit 100\n' "$work" >"$work/bin/apt-get"
chmod +x "$work/bin/apt-get"
check 1 'apt could not install them; missing: .*strace' "an apt that fails"
printf '#!/bin/sh\nprintf "%%s\\n" "$*" >>%s/asked\n' "$work" >"$work/bin/apt-get"
: >"$work/asked"
check 0 '^install: .*strace' "an apt that works"
grep -q ' install .*strace' "$work/asked" || { echo "apt was not asked for strace: $(cat "$work/asked")"; exit 1; }
echo "what tests need is asked for, and said where it cannot be had"
