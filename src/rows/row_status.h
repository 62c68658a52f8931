// What became of a row, and what the numerical check before it said: two questions, two keys of every row.
//
//   "status": "ok", "gate": "passed"            timed, and what was timed is right
//   "status": "ok", "gate": "not-verified"      timed, compared with nothing: its command shows it, marked;
//                                               it enters no report and no comparison of stored rows
//   "status": "failed", "gate": "failed"        it computes something else: not timed
//   "status": "oom", "gate": "not-verified"     no memory for it
//
// Rows of schema 1, which had both answers in "gate", are read by status_of() and gate_of(), too.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace kiln {

enum class RowStatus {
  ok,
  failed,
  oom,
  unsupported,  // a variant does not take this shape, dtype or device
  unavailable,  // this machine lacks something: a GPU, a library, a profiler
  timeout,
  interrupted,
  skipped,   // nobody asked for it, or it would say nothing new
  modelled,  // worked out, not run
};

enum class Gate { not_verified, passed, failed };

// The "schema" of the rows that are stored now. Those without the key are of schema 1.
inline constexpr int kRowSchema = 2;

// What the row of any study begins with.
struct RowOutcome {
  RowStatus status = RowStatus::ok;
  Gate gate = Gate::not_verified;
  std::string reason = {};  // where it is not ok

  bool ok() const { return status == RowStatus::ok; }
  bool gate_failed() const { return gate == Gate::failed; }
  // A check that was passed says nothing of a row without times.
  void set(RowStatus what, std::string why) {
    status = what;
    reason = std::move(why);
    if (!ok() && gate == Gate::passed) gate = Gate::not_verified;
  }
  // It computes something else.
  void fail_gate(std::string why) {
    set(RowStatus::failed, std::move(why));
    gate = Gate::failed;
  }
};

std::string_view name_of(RowStatus status);
std::string_view name_of(Gate gate);

// Of an error that has nothing to do with memory, raised while a row was made.
inline RowStatus status_of(ErrorKind kind) {
  return kind == ErrorKind::unavailable ? RowStatus::unavailable : RowStatus::failed;
}

// Of a stored row; ok and not_verified where it says nothing.
RowStatus status_of(const Json& row);
Gate gate_of(const Json& row);

// May its times enter a report or a comparison with other rows?
inline bool counts(const Json& row) {
  return status_of(row) == RowStatus::ok && gate_of(row) == Gate::passed;
}

}  // namespace kiln
