#!/usr/bin/env bash
# usage: tools/install.sh GROUP...      groups: build mpi test bench peers check soak browser notebook cuda
#
# Installs with apt what the groups need and this machine lacks. What was installed by other means (a header in
# /usr/local, a program on PATH) counts as there: the probe looks for the thing, not for the package. Does nothing,
# without asking apt, when all is there. KILN_NO_INSTALL=1 skips it altogether.
set -euo pipefail

# One line per need: group, probe, package; "optional" where kiln builds without it too, and then says what it lacks;
# "by-apt" where a test would be skipped without it: needed wherever apt can bring it. What is here twice has its stricter
# kind first. Probes: command:NAME, header:PATH below an include folder, python:MODULE of the system's own python3.
needs() {
  cat <<'LIST'
test header:gtest/gtest.h libgtest-dev
test command:python3 python3 by-apt
test command:strace strace by-apt
test command:ip iproute2 by-apt
test command:unshare util-linux by-apt
test command:pgrep procps by-apt
test command:mpicc libopenmpi-dev by-apt
test command:mpirun openmpi-bin by-apt
test header:pcre2.h libpcre2-dev by-apt
test command:zsh zsh by-apt
test command:fish fish by-apt
test command:groff groff-base by-apt
browser command:chromium chromium by-apt
build command:g++ g++
build command:cmake cmake
build command:ninja ninja-build
build command:git git
build header:fmt/format.h libfmt-dev
build header:CLI/CLI.hpp libcli11-dev
build header:nlohmann/json.hpp nlohmann-json3-dev
build header:pcre2.h libpcre2-dev optional
mpi command:mpicc libopenmpi-dev optional
mpi command:mpirun openmpi-bin optional
bench header:benchmark/benchmark.h libbenchmark-dev
peers header:dnnl.hpp libdnnl-dev
peers header:openblas_config.h libopenblas-dev
check command:clang++-19 clang-19
check command:clang-tidy-19 clang-tidy-19
check command:jq jq
check command:clang-format-19 clang-format-19
check clang_rt:19 libclang-rt-19-dev
check command:setarch util-linux
soak command:valgrind valgrind
soak command:cppcheck cppcheck
notebook python:nbconvert python3-nbconvert by-apt
notebook python:ipykernel python3-ipykernel by-apt
notebook python:pandas python3-pandas by-apt
notebook python:matplotlib python3-matplotlib by-apt
LIST
}

include_folders() {
  printf '%s\n' /usr/include /usr/local/include /usr/include/x86_64-linux-gnu
  local IFS=:
  local folder
  for folder in ${CPATH:-} ${CPLUS_INCLUDE_PATH:-}; do printf '%s\n' "$folder"; done
  IFS=';:'
  for folder in ${CMAKE_PREFIX_PATH:-} ${CONDA_PREFIX:-}; do printf '%s\n' "$folder/include"; done
}

present() {
  local kind=${1%%:*} what=${1#*:} folder
  case $kind in
    command) command -v "$what" >/dev/null ;;
    header)
      while IFS= read -r folder; do [[ -e $folder/$what ]] && return 0; done < <(include_folders)
      return 1
      ;;
    python) /usr/bin/python3 -c "import $what" 2>/dev/null ;;
    clang_rt) compgen -G "/usr/lib/llvm-$what/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a" >/dev/null ;;
  esac
}

has_nvcc() { command -v nvcc >/dev/null || [[ -x ${CUDACXX:-} || -x /usr/local/cuda/bin/nvcc || -x ${CUDA_HOME:-/x}/bin/nvcc ]]; }

[[ ${KILN_NO_INSTALL:-0} == 1 ]] && exit 0

wanted=" $* "
for group in "$@"; do
  case $group in
    build | mpi | test | bench | peers | check | soak | browser | notebook) ;;
    cuda)
      # The toolkit is gigabytes and tied to the driver: whose it is decides, not a Makefile.
      if ! has_nvcc; then
        echo "install: nvcc was not found on PATH or in /usr/local/cuda/bin; install the CUDA toolkit 13.0" \
          "(https://developer.nvidia.com/cuda-downloads) or set CUDACXX to its nvcc" >&2
        exit 1
      fi
      ;;
    *)
      echo "install: unknown group '$group'; expected build, mpi, test, bench, peers, check, soak, browser, notebook or cuda" >&2
      exit 2
      ;;
  esac
done

apt_can() { command -v apt-get >/dev/null && { [[ $(id -u) == 0 ]] || command -v sudo >/dev/null; }; }

missing=() optional=()
while read -r group probe package kind; do
  [[ $wanted == *" $group "* ]] || continue
  present "$probe" && continue
  [[ $kind != by-apt ]] || apt_can || kind=optional
  [[ " ${missing[*]} ${optional[*]} " != *" $package "* ]] || continue
  if [[ $kind == optional ]]; then optional+=("$package"); else missing+=("$package"); fi
done < <(needs)
[[ ${#missing[@]} == 0 && ${#optional[@]} == 0 ]] && exit 0

give_up() {
  if [[ ${#missing[@]} == 0 ]]; then
    echo "install: $1; continuing without: ${optional[*]} (kiln doctor says what that costs, make test what it skips)" >&2
    exit 0
  fi
  echo "install: $1; missing: ${missing[*]}" >&2
  echo "hint: install them by other means, or set KILN_NO_INSTALL=1 if they are there and were not found" >&2
  exit 1
}

command -v apt-get >/dev/null || give_up "this system has no apt-get"
as_root=()
if [[ $(id -u) != 0 ]]; then
  command -v sudo >/dev/null || give_up "neither root nor sudo"
  as_root=(sudo)
fi

echo "install: ${missing[*]} ${optional[*]}" >&2
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2)
install() { [[ $# == 0 ]] || "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null; }
# The package lists of a fresh machine are empty or old; those of a used one are mostly good enough.
if ! install "${missing[@]}" 2>/dev/null; then
  "${apt[@]}" update >&2 || true  # one dead source must not stop the others
  install "${missing[@]}" || give_up "apt could not install them"
fi
missing=()
# No second try with new lists: a machine without a network would wait for it at every build. But a fresh machine
# has none at all.
if ! install "${optional[@]}" 2>/dev/null; then
  compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null && give_up "apt could not install them"
  "${apt[@]}" update >&2 || true
  install "${optional[@]}" 2>/dev/null || give_up "apt could not install them"
fi
