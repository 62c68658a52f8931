// What another precision changes, tag by tag, and why.
#include <fmt/format.h>

#include "rows/row_values.h"
#include "studies/format.h"
#include "studies/memory/render.h"

namespace kiln {
namespace {

template <class F>
void each_tag(F f) {
  for (int t = 0; t < kTagCount; ++t) f(static_cast<Tag>(t));
}

PrecisionPolicy policy_for(const MemoryRow& r) {
  return policy_of(r.spec.precision, r.spec.step.micro_steps == 1);
}

Json change_of(const MemoryRow& a, const MemoryRow& b) {
  Json tags = Json::array();
  each_tag([&](Tag t) {
    const std::size_t x = a.predicted.peak[t], y = b.predicted.peak[t];
    if (x == 0 && y == 0) return;
    tags.append({{"tag", name_of(t)},
                 {"from_bytes", x},
                 {"to_bytes", y},
                 {"reason", reason_for(t, policy_for(a), policy_for(b))}});
  });
  return {{"size", a.size.name},
          {"phase", name_of(a.spec.mode)},
          {"ctx", a.spec.step.context},
          {"from", name_of(a.spec.precision)},
          {"to", name_of(b.spec.precision)},
          {"from_bytes", a.predicted.peak_total},
          {"to_bytes", b.predicted.peak_total},
          {"tags", tags}};
}

std::string change_text(const Json& row) {
  return fine_mib(row.at("to_bytes").get<double>() - row.at("from_bytes").get<double>());
}

}  // namespace

std::string reason_for(Tag tag, const PrecisionPolicy& a, const PrecisionPolicy& b) {
  const auto change = [](const char* what, std::string x, std::string y) {
    return x == y ? fmt::format("{} stay {}", what, x) : fmt::format("{} {} instead of {}", what, y, x);
  };
  const auto dtype = [](DType t) { return std::string(name_of(t)); };
  switch (tag) {
    case Tag::param:
      if (a.casts_at_use() != b.casts_at_use())
        return fmt::format("{} copies of weights in use; the weights themselves are master",
                           name_of((b.casts_at_use() ? b : a).compute));
      return change("weights", dtype(a.value), dtype(b.value));
    case Tag::master:
      if (a.split != b.split) return "16 low bits of each weight, exact fp32 with its bf16 half";
      return "weights that are cast at use are here instead of param";
    case Tag::grad:
      return change("gradients", dtype(a.grad), dtype(b.grad));
    case Tag::optim:
      return change("Adam's moments", dtype(a.state), dtype(b.state));
    case Tag::activation:
      if (b.casts_at_use() && !a.casts_at_use())
        return fmt::format("{} inside the halves of a block, {} between them, and casts", name_of(b.compute),
                           name_of(b.value));
      return change("activations", dtype(a.compute), dtype(b.compute)) + "; statistics as before";
    case Tag::workspace:
      return "scratch of other kernels; sums stay fp32";
    case Tag::comm:
      return "buffers of collectives";
    case Tag::data:
      return "token ids have no precision";
  }
  return {};
}

// Of rows that differ in nothing but their precision.
Json precision_changes(const MemoryReport& report) {
  Json changes = Json::array();
  for (const MemoryRow& a : report.rows) {
    if (a.spec.precision != report.request.precisions.front()) continue;
    for (const MemoryRow& b : report.rows) {
      if (b.spec.precision != a.spec.precision && a.size.name == b.size.name && a.spec.mode == b.spec.mode &&
          a.spec.step.context == b.spec.step.context)
        changes.append(change_of(a, b));
    }
  }
  return changes;
}

PageTable change_table(const Json& change) {
  constexpr Unit kMiB = Unit::mebibytes;
  const std::string from = text_at(change, "from"), to = text_at(change, "to");
  const ColumnForm columns[] = {{"tag", "tag, its peak MiB", Unit::text, Where::table},
                                {"reason", "why", Unit::text, Where::table},
                                {"from_bytes", from, kMiB, Where::table},
                                {"to_bytes", to, kMiB, Where::table},
                                {"", "change", kMiB, Where::table, "", change_text}};
  Json rows = change.at("tags");
  rows.append(
      {{"tag", "peak, total"}, {"from_bytes", change.at("from_bytes")}, {"to_bytes", change.at("to_bytes")}});
  return page_table(fmt::format("{}, {}, ctx {}: {} against {}", text_at(change, "size"),
                                text_at(change, "phase"), text_at(change, "ctx"), to, from),
                    columns, rows);
}

}  // namespace kiln
