#!/usr/bin/env bash
# usage: make_dry_run.sh MAKEFILE
# Fails when `make -n`, which only shows, runs part of a recipe. The Makefile stands alone in an empty folder, so
# that anything run there fails or leaves something behind. Status 77: there is no make here.
set -euo pipefail
command -v make >/dev/null || { echo "make is not installed"; exit 77; }
unset MAKEFLAGS MAKELEVEL  # of a make that runs the tests
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$1" "$folder/Makefile"
cd "$folder"
targets=$(sed -n 's/^\.PHONY: *//p' Makefile)
[[ -n $targets ]] || { echo "no targets found in $1"; exit 1; }
for target in $targets; do
  make -n "$target" >out.txt 2>&1 || { echo "make -n $target ran something:"; cat out.txt; exit 1; }
  rm out.txt
  [[ $(ls -A) == Makefile ]] || { echo "make -n $target left behind:"; ls -A; exit 1; }
done
