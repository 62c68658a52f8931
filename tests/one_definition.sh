#!/bin/sh
# tools/one_definition.sh finds two types of one name, and nothing else.
set -eu
check=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "one_definition: $*" >&2; exit 1; }
write() { mkdir -p "$work/$(dirname "$1")"; cat > "$work/$1"; }
clean() { (cd "$work" && "$check" all) > "$work/out" 2>&1 || fail "$1: $(cat "$work/out")"; }
finds() {
  if (cd "$work" && "$check" all) > "$work/out" 2>&1; then fail "not found: $1"; fi
  grep -qF "$1" "$work/out" || fail "not found: $1; it says: $(cat "$work/out")"
}

write all/a.h <<'END'
#define OPEN {
namespace kiln {
struct Forward;
struct Report {  // { a brace in a comment
  struct Row { int x; };
  const char* text = "}} in a string";
  char c = '{';
};
template <class T>
struct Traits {};
template <>
struct Traits<int> {};
namespace {
struct Local {};
}
struct Report make_report() { return {}; }
}  // namespace kiln
END
write all/b.cpp <<'END'
namespace kiln::cli {
struct Report {};
}
namespace kiln {
namespace {
struct Local {};
}
const char* page = R"(struct Report {
}  )";
struct Forward;
struct Page { struct Row {}; };
template <>
struct Traits<float> {};
void f() { struct Report {}; }
}
END
clean "types that only look alike"

write all/c/c.cu <<'END'
namespace kiln {
class Report final
    : public Page {
};
}
END
finds "kiln::Report is defined in all/a.h and in all/c/c.cu"

write all/c/c.cu <<'END'
namespace kiln {
namespace cli {
enum class Report : int { a };
}
}
END
finds "kiln::cli::Report is defined in all/b.cpp and in all/c/c.cu"

write all/c/c.cu <<'END'
namespace kiln {
END
finds "all/c/c.cu: braces that do not match"
