#!/bin/sh
# Two types of one qualified name in different files are one to the linker, which keeps the inline functions of
# whichever it sees first; no compiler sees both. Lists them, and fails if there are any.
#   tools/one_definition.sh [FOLDER...]     the folders hold what is linked into one program
# Reads text, not C++: it follows braces, namespaces and definitions at namespace level, which is all that
# clang-formatted sources need. Types in anonymous namespaces, inside others and specialisations are left alone.
set -eu
[ $# -gt 0 ] || set -- src apps tests

find "$@" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -type f | LC_ALL=C sort | awk '
function restart() { depth = 0; outside = 0; head = ""; comment = 0; directive = 0; raw = "" }

# The line without directives, comments, strings and characters: what is left has no brace that opens nothing.
function code_of(line,    at, out, c, rest) {
  if (raw == "" && !comment && (directive || line ~ /^[ \t]*#/)) { directive = line ~ /\\$/; return "" }
  out = ""
  while (line != "") {
    if (raw != "") {
      at = index(line, raw)
      if (!at) return out
      line = substr(line, at + length(raw)); raw = ""
    } else if (comment) {
      at = index(line, "*/")
      if (!at) return out
      line = substr(line, at + 2); comment = 0
    } else if (match(line, /\/\/|\/\*|R?"|\047/)) {
      c = substr(line, RSTART, RLENGTH); rest = substr(line, RSTART + RLENGTH)
      out = out substr(line, 1, RSTART - 1)
      if (c == "//") return out
      if (c == "/*") { comment = 1; line = rest; continue }
      if (c ~ /^R/) { at = index(rest, "("); raw = ")" substr(rest, 1, at - 1) "\""; line = substr(rest, at + 1); continue }
      if (c == "\"" && match(rest, /^([^"\\]|\\.)*"/)) line = substr(rest, RLENGTH + 1)
      else if (c != "\"" && match(rest, /^([^\047\\]|\\.[0-9a-f]*)\047/)) line = substr(rest, RLENGTH + 1)
      else line = rest
    } else return out line
  }
  return out
}

# kind[i]: "namespace", or "other" for whatever a definition inside of is nobody else`s
function open_brace(    name) {
  gsub(/[ \t]+/, " ", head)
  ++depth
  kind[depth] = "other"; space[depth] = depth > 1 ? space[depth - 1] : ""
  if (head ~ /(^| )namespace [A-Za-z_0-9:]+ ?$/) {
    name = head; sub(/^.*namespace /, "", name); sub(/ $/, "", name)
    kind[depth] = "namespace"; space[depth] = space[depth] name "::"
  } else if (head ~ /^ ?extern ?$/) {
    kind[depth] = "namespace"
  } else if (!outside && head ~ /(^|[ >])(struct|class|union|enum|enum class) [A-Za-z_0-9]+( final)? ?(:[^:].*)?$/ && head !~ /\(/) {
    name = head; sub(/^.*(struct|class|union|enum) /, "", name)
    if (head ~ / :[^:]/) {  # bases may name types too: only what is before them counts
      name = head; sub(/ :[^:].*$/, "", name); sub(/^.*(struct|class|union|enum) /, "", name)
    }
    sub(/ ?(final)? ?$/, "", name)
    define((depth > 1 ? space[depth - 1] : "") name)
  }
  if (kind[depth] == "other") ++outside
}

function define(name) {
  if (!(name in first)) { first[name] = FILENAME_; return }
  if (first[name] == FILENAME_) return
  printf "%s is defined in %s and in %s\n", name, first[name], FILENAME_
  found = 1
}

{
  FILENAME_ = $0
  restart()
  while ((getline line < FILENAME_) > 0) {
    line = code_of(line)
    while (match(line, /[{};]/)) {
      head = head " " substr(line, 1, RSTART - 1)
      c = substr(line, RSTART, 1)
      line = substr(line, RSTART + 1)
      if (c == "{") open_brace()
      else if (c == "}" && depth > 0) { if (kind[depth] == "other") --outside; --depth }
      head = ""
    }
    head = head " " line
  }
  close(FILENAME_)
  if (depth != 0) { printf "%s: braces that do not match; this check cannot read it\n", FILENAME_; found = 1 }
}
END { exit found }
'
