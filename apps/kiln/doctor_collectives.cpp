#include "studies/doctor/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "dist/launch/collectives_check.h"
#include "dist/launch/ranks.h"
#include "base/parse_number.h"
#include "report/tables/text_table.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

std::string to_text(const CollectivesReport& r, const std::string& device) {
  std::string text =
      fmt::format("{} rank{} on {}, transport {}\n\n", r.world, r.world == 1 ? "" : "s", device, r.transport);
  TextTable numbers = {{"rank", "before", "after all_reduce"}};
  for (std::size_t i = 0; i < r.before.size(); ++i)
    numbers.push_back({std::to_string(i), fmt::format("{}", fmt::join(r.before[i], " ")),
                       fmt::format("{}", fmt::join(r.after[i], " "))});
  text += aligned(numbers, 3) + "\n";
  TextTable checks = {{"collective", "dtype", "result", "elements", "ms"}};
  for (const CollectiveCheck& c : r.checks)
    checks.push_back({c.collective, std::string(name_of(c.dtype)),
                      c.wrong.empty() ? "right" : fmt::format("WRONG on rank {}", fmt::join(c.wrong, ", ")),
                      std::to_string(c.count), fmt::format("{:.3f}", 1e3 * c.seconds)});
  return text + aligned(checks, 3);
}

ordered_json to_json(const CollectivesReport& r, const std::string& device) {
  ordered_json hello = ordered_json::array(), checks = ordered_json::array();
  for (std::size_t i = 0; i < r.before.size(); ++i)
    hello.push_back({{"rank", i}, {"before", r.before[i]}, {"after", r.after[i]}});
  for (const CollectiveCheck& c : r.checks)
    checks.push_back({{"collective", c.collective},
                      {"dtype", name_of(c.dtype)},
                      {"elements", c.count},
                      {"right", c.wrong.empty()},
                      {"wrong_ranks", c.wrong},
                      {"ms", 1e3 * c.seconds}});
  return {{"command", "doctor --collectives"},
          {"transport", r.transport},
          {"ranks", r.world},
          {"device", device},
          {"hello", hello},
          {"checks", checks},
          {"passed", r.passed()}};
}

}  // namespace

void run_doctor_collectives(const CommonOptions& common) {
  // A soak, and something to aim signals at.
  const char* const repeat = std::getenv("KILN_COLLECTIVES_REPEAT");
  const int64_t repeats =
      repeat == nullptr ? 1 : parse_number<int64_t>("KILN_COLLECTIVES_REPEAT", repeat, 1, 1 << 30);
  RanksRequest request = launched_request();
  request.config = fmt::format("doctor --collectives --seed {} --device {}", common.seed, common.device);
  RankOptions options;
  options.device = Device::parse(common.device);
  options.seed = common.seed;
  options.matmuls = false;
  CollectivesReport report;
  run_ranks(request, options, [&](RankContext& ctx, Communicator& ranks) {
    CollectivesReport r = check_collectives(ctx, ranks, common.seed);
    for (int64_t i = 1; i < repeats && r.passed(); ++i) r = check_collectives(ctx, ranks, common.seed);
    if (ranks.rank() == 0) report = std::move(r);
  });
  const std::string device = options.device.str();
  std::fputs(common.json ? (to_json(report, device).dump(2) + "\n").c_str() : to_text(report, device).c_str(),
             stdout);
  if (!report.passed()) throw Error("a collective gave wrong values", "see the rows that say so");
}

}  // namespace kiln::cli
