#!/usr/bin/env bash
# usage: build_id.sh WRITE_BUILD_ID.CMAKE
#
# The build id names the commit, tells two changed trees apart, and is the same for the same tree: in a repository made
# for it.
set -euo pipefail
script=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$folder/tree header=$folder/id.h
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t

id() {
  cmake -DSOURCE="$tree" -DHEADER="$header" -P "$script" >&2
  sed -n 's/^#define KILN_BUILD_ID "\(.*\)"$/\1/p' "$header"
}
fail() { echo "build_id.sh: $*" >&2; exit 1; }
same() { [[ $1 == "$2" ]] || fail "$3: '$1' and '$2' should be the same"; }
other() { [[ $1 != "$2" ]] || fail "$3: both are '$1'"; }

mkdir -p "$tree/src" "$tree/docs/results" "$tree/tests"
same "$(id)" unknown "outside a repository"
same "$(KILN_SOURCE_ID=abc1234 id)" abc1234 "an archive whose commit is known"
same "$(KILN_SOURCE_ID='a"; evil' id)" unknown "what is no id"
git -C "$tree" init -q
printf 'int one;\n' >"$tree/src/a.cpp"
printf 'page\n' >"$tree/docs/a.md"
printf '*.o\n' >"$tree/.gitignore"
git -C "$tree" add -A
git -C "$tree" commit -qm one
clean=$(id)
same "$clean" "$(git -C "$tree" describe --always)" "a clean tree"
same "$(KILN_SOURCE_ID=abc1234 id)" "$clean" "a repository knows better"

printf 'int two;\n' >"$tree/src/a.cpp"
changed=$(id)
[[ $changed =~ ^"$clean"-dirty\.[0-9a-f]{8}$ ]] || fail "a changed tree is '$changed'"
same "$(id)" "$changed" "the same tree again"
printf 'int three;\n' >"$tree/src/a.cpp"
other "$(id)" "$changed" "two changes of one file"
printf 'int two;\n' >"$tree/src/a.cpp"
git -C "$tree" add -A
same "$(id)" "$changed" "the same change, staged"
git -C "$tree" config diff.noprefix true
git -C "$tree" config color.ui always
same "$(id)" "$changed" "the same change under another configuration"

printf 'int b;\n' >"$tree/src/b.cpp"
added=$(id)
other "$added" "$changed" "a source that git does not know"
printf 'int c;\n' >"$tree/src/b.cpp"
other "$(id)" "$added" "two contents of it"
mv "$tree/src/b.cpp" "$tree/src/c.cpp"
printf 'int b;\n' >"$tree/src/c.cpp"
other "$(id)" "$added" "two names of it"
rm "$tree/src/c.cpp"
printf '\0\1;"\\ @id@ ${id}' >"$tree/src/b.bin"
odd=$(id)
other "$odd" "$changed" "a file of odd bytes"
rm "$tree/src/b.bin"

git -C "$tree" reset -q --hard
printf 'x' >"$tree/src/a.o"
printf 'measured\n' >"$tree/docs/results/a.md"
printf 'test\n' >"$tree/tests/a.cpp"
same "$(id)" "$clean" "what git ignores, measured pages and tests are not in the program"
printf 'other page\n' >"$tree/docs/a.md"
other "$(id)" "$clean" "a page of the built-in text"

# An id that did not change must not compile anything again.
touch -d '2001-01-01' "$header"
id >/dev/null
[[ $(date -r "$header" +%Y) == 2001 ]] || fail "the header was written again though nothing changed"
echo "build ids tell trees apart"
