#include "ops/renamed.h"

#include "base/error.h"
#include "base/options.h"

namespace kiln {
namespace {

struct Renamed {
  std::string_view op, was, now;  // op: empty where the op itself has another name
  std::string_view advice;        // empty: that it is called `now`
};

constexpr Renamed kRenamed[] = {
    {"", "judge_step", "finish_step_scalars", ""},
    {"", "draw_weights", "init_weights", ""},
    {"linear", "few_rows", "small_m", ""},
    {"attention", "few_rows", "small_m", ""},
    {"attention", "flash_few_rows", "",
     "variant flash_few_rows of attention is no longer needed: each pass takes flash or flash_hopper by "
     "itself, "
     "whichever is faster on a problem; leave it out"},
};

std::string_view current(std::string_view op, std::string_view name) {
  for (const Renamed& r : kRenamed)
    if (r.op == op && r.was == name) return r.now;
  return name;
}

std::string sentence(const Renamed& r) {
  if (!r.advice.empty()) return std::string(r.advice);
  if (r.op.empty()) return cat("op ", r.was, " is now ", r.now);
  return cat("variant ", r.was, " is now ", r.now);
}

// A variant alone may be any op's: of the first that had it.
const Renamed* find_former(std::string_view op, std::string_view word) {
  const std::string_view today = current_op(op);
  for (const Renamed& r : kRenamed)
    if (r.was == word && (op.empty() || r.op == today)) return &r;
  return nullptr;
}

}  // namespace

std::string_view current_op(std::string_view name) { return current("", name); }

std::string_view current_variant(std::string_view op, std::string_view name) { return current(op, name); }

std::vector<std::string> former_names_in(std::string_view text) {
  std::vector<std::string> said;
  const auto say = [&](const Renamed* r) {
    if (r != nullptr) said.push_back(sentence(*r));
  };
  for (const std::string& item : split_list(text)) {
    const auto equals = item.find('=');
    if (equals == std::string::npos) {
      say(find_former({}, item));
      continue;
    }
    const std::string op = item.substr(0, equals);
    if (current_op(op) != op) say(find_former({}, op));
    say(find_former(op, std::string_view(item).substr(equals + 1)));
  }
  return said;
}

}  // namespace kiln
