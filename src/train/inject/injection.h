// Faults that a user asks for with --inject KIND:key=value,...: what one says, and the tables of kinds, keys
// and points. Parsed here and nowhere else. What happens then is injector.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

enum class FaultKind : uint8_t { kill, stall, slow, nan, flip, enospc, eio, oom };

// Where in a run: in the order in which a rank comes by. Those of a save are before its first write, its
// first fsync, the rename of its manifest, the rename of its folder, and the clearing of older ones.
enum class FaultPoint : uint8_t {
  init,
  forward,
  backward,
  reduce,
  update,
  save,
  save_sync,
  save_manifest,
  save_publish,
  save_retire,
  finalize
};

enum class NanSite : uint8_t { activation, gradient, bucket, weight, loss };

struct Injection {
  std::string text;  // as it was spelled
  FaultKind kind = FaultKind::kill;
  int rank = 0;
  int64_t step = 0;   // 0: not given, where it need not be
  int64_t until = 0;  // of slow: the last step; 0: to the end
  FaultPoint point = FaultPoint::forward;
  NanSite site = NanSite::activation;
  bool infinite = false;  // of nan: infinity in its place
  double factor = 3;      // of slow: how many times as long the rank computes
  double seconds = 0;     // of stall; 0: until SIGCONT
  std::string tensor;     // a part of its name; empty: the first of the first block
  int64_t element = 0;
  int bit = 0;
  int call = 1;  // of a save's writes or fsyncs, or of the step's allocations, which one
};

struct FaultKindRow {
  std::string_view name;
  FaultKind kind;
  std::vector<std::string_view> keys;
  std::string_view what, example;
};
std::span<const FaultKindRow> fault_kinds();

struct FaultKeyRow {
  std::string_view name, value, what;
  void (*read)(Injection&, const std::string& name, const std::string& value);
};
std::span<const FaultKeyRow> fault_keys();

std::vector<std::string_view> fault_point_names();
std::string_view name_of(FaultPoint point);
bool is_of_save(FaultPoint point);

// Throws Error(usage): an unknown kind, key or word, with the nearest known one; a key twice or without a
// value; a key that is missing.
Injection parse_injection(std::string_view text);
std::vector<Injection> parse_injections(std::span<const std::string> texts);

// What a run must be like for its injections to happen. Throws Error(usage) where one could not.
struct InjectedRun {
  int ranks = 1;
  int64_t steps = 0, save_every = 0;
  bool sums_gradients = false;  // a strategy is there that does
};
void check_injections(std::span<const Injection> injections, const InjectedRun& run);

}  // namespace kiln
