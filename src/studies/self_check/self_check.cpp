#include "studies/self_check/self_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "ops/cases/run_case.h"
#include "ops/op_list.h"
#include "rows/schema.h"

namespace kiln {
namespace {

constexpr uint64_t kSeed = 7;
constexpr DType kFormats[] = {DType::f32, DType::bf16, DType::f16};

double spacing_of(DType dtype) {
  return dtype == DType::f32 ? 0x1p-23 : dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
}

// An output that the definition happens to get exactly. A composed variant rounds what is between its parts;
// TF32 keeps 11 bits of its operands.
double floor_of(DType dtype, std::string_view variant, DeviceType device) {
  if (variant.ends_with("_tf32")) return 0x1p-10;
  if (variant == "composed") return spacing_of(dtype);
  return spacing_of(dtype) / (device == DeviceType::cuda ? 2 : 4);
}

RankOptions on(const Device& device) {
  RankOptions o;
  o.device = device;
  return o;
}

bool has_naive(const OpListing& op) {
  return std::any_of(op.variants.begin(), op.variants.end(), [](const VariantListing& v) {
    return v.device == DeviceType::cpu && v.name == "naive";
  });
}

struct DefinitionRun {
  CaseData data;
  CaseResult exact, low;  // in fp64, and in the format
};

// What the definitions give, on the CPU: once for all variants.
class Definitions {
 public:
  explicit Definitions(const std::vector<OpListing>& ops) : ctx_(on(Device::cpu())) {
    for (const OpListing& op : ops) ctx_.variants().set(op.name, has_naive(op) ? "naive" : "composed");
  }
  const DefinitionRun& of(const OpCase& c, DType dtype) {
    auto& run = runs_[dtype];
    if (!run) {
      run.emplace();
      run->data = draw_case(c, dtype, kSeed);
      run->exact = run_case(ctx_, c, run->data, DType::f64);
      run->low = run_case(ctx_, c, run->data, dtype);
    }
    return *run;
  }
  void next_case() { runs_.clear(); }

 private:
  RankContext ctx_;
  std::map<DType, std::optional<DefinitionRun>> runs_;
};

// Whether the variant is for this case in this format, by its own word, which meta gives too.
bool takes(const OpCase& c, const std::string& variant, const Device& device, DType dtype) {
  RankOptions o = on(device.type == DeviceType::cuda ? Device::meta(DeviceType::cuda) : Device::meta());
  o.variants.set(c.op, variant);
  RankContext ctx(o);
  try {
    (void)run_case(ctx, c, draw_case(c, dtype, kSeed), dtype);
  } catch (const Error&) {
    return false;
  }
  return true;
}

void judge(const OpCase& c, DType dtype, const DefinitionRun& known, const CaseResult& seen, double floor,
           SelfCheckRow& row) {
  const auto compare = [&](const std::string& what, const std::vector<double>& got,
                           const std::vector<double>& low, const std::vector<double>& exact) {
    const double error = relative_error(got, exact), allowed = 2 * relative_error(low, exact) + floor;
    if (error <= row.worst * allowed) return;
    row.worst = error / allowed;
    row.worst_run = fmt::format("{} {}", c.name, name_of(dtype));
    if (error > allowed || error != error)
      row.reason = fmt::format("{} of {} in {}: error {:.2e}, {:.2e} allowed", what, c.name, name_of(dtype),
                               error, allowed);
  };
  compare("output", seen.y, known.low.y, known.exact.y);
  for (std::size_t i = 0; i < seen.grads.size(); ++i)
    compare(fmt::format("d{}", c.inputs[i].name), seen.grads[i], known.low.grads[i], known.exact.grads[i]);
}

void check_case(const SelfCheckRequest& request, const OpCase& c, Definitions& definitions,
                SelfCheckRow& row) {
  for (const DType dtype : kFormats) {
    if (!takes(c, row.variant, request.device, dtype)) continue;
    throw_if_stopped(request.stop);
    try {
      RankOptions o = on(request.device);
      o.variants.set(c.op, row.variant);
      RankContext ctx(o);
      const DefinitionRun& known = definitions.of(c, dtype);
      judge(c, dtype, known, run_case(ctx, c, known.data, dtype),
            floor_of(dtype, row.variant, request.device.type), row);
      ++row.runs;
    } catch (const Error& e) {
      row.reason = fmt::format("{} in {}: {}", c.name, name_of(dtype), e.what());
    }
  }
}

const Schema<SelfCheckRow>& schema() {
  static const Schema<SelfCheckRow> kSchema = {
      {"op", "op", Unit::text, field<&SelfCheckRow::op>, Where::table},
      {"variant", "variant", Unit::text, field<&SelfCheckRow::variant>, Where::table},
      {"device", "device", Unit::text, field<&SelfCheckRow::device>, Where::differs},
      {"check", "check", Unit::text,
       [](const SelfCheckRow& r) { return Json(r.passed() ? "passed" : "failed"); }, Where::table},
      {"runs", "runs", Unit::count, field<&SelfCheckRow::runs>, Where::table},
      {"worst", "worst error / allowed", Unit::number, field<&SelfCheckRow::worst>, Where::table},
      {"worst_run", "in", Unit::text, field<&SelfCheckRow::worst_run>, Where::table},
      {"reason", "reason", Unit::text,
       [](const SelfCheckRow& r) { return r.reason.empty() ? Json() : Json(r.reason); }, Where::table}};
  return kSchema;
}

}  // namespace

std::vector<SelfCheckRow> self_check(const SelfCheckRequest& request,
                                     const std::function<void(const std::string&)>& progress) {
  const std::vector<OpListing> all = list_ops(), here = list_ops(request.device);
  const std::vector<OpCase> cases = all_op_cases();
  Definitions definitions(all);
  std::vector<SelfCheckRow> rows;
  for (const OpListing& op : here) {
    const bool asked = request.ops.empty() ||
                       std::find(request.ops.begin(), request.ops.end(), op.name) != request.ops.end();
    if (!asked) continue;
    progress(std::string(op.name));
    std::vector<SelfCheckRow> of_op;
    for (const VariantListing& v : op.variants) {
      const bool is_definition =
          v.device == DeviceType::cpu && v.name == (has_naive(find_op(all, op.name)) ? "naive" : "composed");
      if (v.available && v.device == request.device.type && !is_definition)
        of_op.push_back({std::string(op.name), v.name, request.device.str()});
    }
    for (const OpCase& c : cases) {
      if (c.op != op.name) continue;
      definitions.next_case();
      for (SelfCheckRow& row : of_op) check_case(request, c, definitions, row);
    }
    for (SelfCheckRow& row : of_op)
      if (row.runs > 0 || !row.reason.empty()) rows.push_back(std::move(row));
  }
  return rows;
}

StudyPage self_check_page(const std::vector<SelfCheckRow>& rows, const Device& device) {
  StudyPage page;
  page.columns = schema().forms();
  int runs = 0;
  std::size_t failed = 0;
  for (const SelfCheckRow& r : rows) {
    page.rows.push_back(schema().row(r));
    runs += r.runs;
    failed += r.passed() ? 0 : 1;
  }
  page.notes.push_back(
      fmt::format("{} variants on {} agree with their ops' definitions in {} runs; {} do not.",
                  rows.size() - failed, device.str(), runs, failed));
  page.json = {{"command", "ops --check"},
               {"device", device.str()},
               {"runs", runs},
               {"failed", failed},
               {"rows", schema().rows(rows)}};
  return page;
}

}  // namespace kiln
