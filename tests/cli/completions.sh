#!/usr/bin/env bash
# usage: completions.sh KILN
# Every command, sub-command and option that --help shows is offered by bash's completion and is in the manual
# page; values are offered where they are words. zsh and fish read their scripts, where they are installed.
set -euo pipefail
kiln=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}

"$kiln" completions bash >"$work/kiln.bash"
"$kiln" completions zsh >"$work/_kiln"
"$kiln" completions fish >"$work/kiln.fish"
"$kiln" man >"$work/kiln.1"
# shellcheck disable=SC1091
source "$work/kiln.bash"

# offered WORD...: what completes the last word, a line each.
offered() {
  COMP_WORDS=(kiln "$@")
  COMP_CWORD=$#
  _kiln
  printf '%s\n' "${COMPREPLY[@]}"
}
expect() {  # expect 'WORD ...' ANSWER...: the answers are among what is offered
  local typed=$1 answer
  shift
  local -a words
  read -ra words <<<"$typed"
  [[ $typed != *' ' ]] || words+=('')
  offered "${words[@]}" >"$work/offered"
  for answer in "$@"; do
    grep -qxF -- "$answer" "$work/offered" || fail "after 'kiln $typed' completion does not offer $answer"
  done
}

# The names a section of --help lists: "  --ctx,--context N,...   tokens of a sequence".
listed() { awk -v section="$1" '/^[^ ]/ { on = index($0, section) == 1; next } on && /^  [^ ]/ { print $1 }' "$work/help"; }

check_command() {  # check_command WORD...: this command and those below it
  local options subs sub name
  "$kiln" "$@" --help >"$work/help"
  mapfile -t options < <(listed 'Options:' | tr ',' '\n' | grep -- '^--' || true)
  mapfile -t subs < <(listed 'Subcommands:')
  expect "$* -" "${options[@]}"
  [[ ${#subs[@]} == 0 ]] || expect "$* " "${subs[@]}"
  for name in "${options[@]}"; do
    grep -qF -- "\\fB${name//-/\\-}\\fR" "$work/kiln.1" || fail "the manual page lacks $name of kiln $*"
    grep -qF -- " -l ${name#--} " "$work/kiln.fish" || fail "fish's completion lacks $name of kiln $*"
    grep -qF -- "'$name:" "$work/_kiln" || fail "zsh's completion lacks $name of kiln $*"
  done
  grep -qF -- ".SS \"kiln ${*//-/\\-}\"" "$work/kiln.1" || fail "the manual page lacks kiln $*"
  for sub in "${subs[@]}"; do check_command "$@" "$sub"; done
}

"$kiln" --help >"$work/help"
mapfile -t commands < <(listed 'Commands:')
[[ ${#commands[@]} -ge 15 ]] || fail "kiln --help lists only ${#commands[@]} commands"
expect ' ' "${commands[@]}"
for command in "${commands[@]}"; do check_command "$command"; done

expect 'be' bench
expect 'bench --size small st' step  # an option's value is no sub-command, and hides none
expect 'bench step --graph ' auto on off
expect 'bench step --graph = o' on off  # as bash passes --graph=o
expect 'bench step --mode forward,f' forward,full
expect 'bench step --device ' cpu cuda meta auto
expect 'run --nproc 2 -- doc' doctor
cd "$work"
touch config.json
expect 'train --config conf' config.json
offered bench step --zzz >"$work/offered"
if grep -q . "$work/offered"; then fail "something is offered where nothing fits"; fi
offered bench step --micro >"$work/offered"
if grep -q . "$work/offered"; then fail "a former spelling is offered: $(cat "$work/offered")"; fi

without() { echo "skipped: $1 $2: $2 is not installed"; }  # tools/skipped_tests.py counts such lines
if command -v zsh >/dev/null; then
  zsh -n "$work/_kiln" || fail "zsh cannot read its script"
else
  without "completion in" zsh
fi
if command -v fish >/dev/null; then
  fish -n "$work/kiln.fish" || fail "fish cannot read its script"
  # Into a file: grep -q ends at the first match, and a fish that still writes then fails the pipe.
  fish_offers() {  # fish_offers TYPED ANSWER
    fish -N -c "source $work/kiln.fish; complete -C '$1'" >"$work/offered"
    cut -f 1 "$work/offered" | grep -xF -- "$2" >/dev/null || fail "fish does not offer $2 after '$1'"
  }
  fish_offers 'kiln bench st' step
  fish_offers 'kiln bench step --gra' --graph
  fish_offers 'kiln bench step --graph ' auto
else
  without "completion in" fish
fi
if command -v groff >/dev/null; then
  groff -man -Tutf8 -ww "$work/kiln.1" >"$work/page" 2>"$work/warnings" || fail "groff cannot read the manual page"
  [[ ! -s $work/warnings ]] || fail "groff on the manual page: $(head -3 "$work/warnings")"
else
  without "the manual page by" groff
fi

[[ $failures == 0 ]] || { echo "$failures failure(s)"; exit 1; }
echo "${#commands[@]} commands: all of their options are completed and in the manual page"
