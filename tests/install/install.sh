#!/usr/bin/env bash
# usage: install.sh BUILD_TREE
# Installs a built tree into its own folder, moves that, and uses it as others would: the program, the manual
# page, the completions; and where the tree has a library, a C program compiled by pkg-config and by find_package.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "install: $1"
  exit 1
}

DESTDIR=$work/package cmake --install "$build" --prefix /opt/kiln >"$work/log" || fail "cmake --install: $(tail -3 "$work/log")"
[[ $(ls "$work/package") == opt ]] || fail "DESTDIR is not heeded: $(ls "$work/package")"
mv "$work/package/opt/kiln" "$work/moved"
prefix=$work/moved

for file in bin/kiln share/man/man1/kiln.1 share/bash-completion/completions/kiln \
  share/zsh/site-functions/_kiln share/fish/vendor_completions.d/kiln.fish share/doc/kiln/LICENSE; do
  [[ -s $prefix/$file ]] || fail "$file is missing or empty"
done
[[ $("$prefix/bin/kiln" --version) == "$("$build/kiln" --version)" ]] || fail "another program was installed"
cmp -s <("$prefix/bin/kiln" man) "$prefix/share/man/man1/kiln.1" || fail "kiln.1 is not what the program writes"

if [[ ! -e $build/libkiln.so ]]; then
  for file in $(cd "$prefix" && find . -name '*.cmake' -o -name '*.pc' -o -name '*.so*' -o -name '*.h'); do
    fail "this build has no library, and yet $file was installed"
  done
  echo "program, manual page and completions are installed; this build has no libkiln.so, and so no header"
  exit 0
fi

[[ -s $prefix/include/kiln/attention.h ]] || fail "the library's header is missing"
lib=$(dirname "$(cd "$prefix" && find . -name libkiln.so)")
if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH=$prefix/$lib/pkgconfig
  # shellcheck disable=SC2046
  cc "$here/user.c" -o "$work/by_pkg_config" $(pkg-config --cflags --libs kiln) -Wl,-rpath,"$prefix/$lib" || fail "pkg-config"
  "$work/by_pkg_config" || fail "what was compiled by pkg-config"
else
  echo "skipped: a program by pkg-config: it is not installed"
fi
mkdir "$work/user"
cp "$here/user.c" "$work/user"
cat >"$work/user/CMakeLists.txt" <<'LIST'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(kiln 0.1 REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE kiln::kiln)
LIST
cmake -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 || fail "find_package: $(tail -5 "$work/log")"
cmake --build "$work/user/build" >"$work/log" 2>&1 || fail "kiln::kiln: $(tail -5 "$work/log")"
"$work/user/build/user" || fail "what was compiled by find_package"
echo "program, header, library, manual page and completions are installed"
