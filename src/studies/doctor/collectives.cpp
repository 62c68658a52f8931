#include "studies/doctor/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/json.h"
#include "base/parse_number.h"
#include "dist/launch/collectives_check.h"
#include "dist/launch/ranks.h"
#include "report/tables/study_page.h"

namespace kiln {
namespace {

std::string result_text(const Json& row) {
  if (row.at("right").get<bool>()) return "right";
  return fmt::format("WRONG on rank {}", fmt::join(row.at("wrong_ranks").get<std::vector<int>>(), ", "));
}

std::string numbers(const Json& list) {
  std::string text;
  for (const Json& x : list) text += (text.empty() ? "" : " ") + x.dump();
  return text;
}

const Schema<CollectiveCheck>& check_schema() {
  using R = CollectiveCheck;
  static const Schema<R> kSchema = {
      {"collective", "collective", Unit::text, field<&R::collective>, Where::table},
      {"dtype", "dtype", Unit::text, field<&R::dtype>, Where::table},
      {"right", "result", Unit::text, [](const R& r) { return Json(r.wrong.empty()); }, Where::table, "",
       result_text},
      {"elements", "elements", Unit::count, field<&R::count>, Where::table},
      {"wrong_ranks", "", Unit::text, field<&R::wrong>},
      {"ms", "ms", Unit::milliseconds, [](const R& r) { return Json(1e3 * r.seconds); }, Where::table},
  };
  return kSchema;
}

constexpr ColumnForm kHello[] = {
    {"rank", "rank", Unit::text, Where::table},
    {"before", "before", Unit::text, Where::table, "", [](const Json& r) { return numbers(r.at("before")); }},
    {"after", "after all_reduce", Unit::text, Where::table, "",
     [](const Json& r) { return numbers(r.at("after")); }},
};

StudyPage collectives_page(const CollectivesReport& r, const std::string& device) {
  StudyPage page;
  page.place =
      fmt::format("{} rank{} on {}, transport {}", r.world, r.world == 1 ? "" : "s", device, r.transport);
  page.columns = check_schema().forms();
  Json hello = Json::array();
  for (std::size_t i = 0; i < r.before.size(); ++i)
    hello.append({{"rank", i}, {"before", r.before[i]}, {"after", r.after[i]}});
  for (const CollectiveCheck& c : r.checks) page.rows.push_back(check_schema().row(c));
  page.tables = {page_table("What each rank holds", kHello, hello)};
  page.json = {{"command", "doctor --collectives"},
               {"transport", r.transport},
               {"ranks", r.world},
               {"device", device},
               {"hello", hello},
               {"checks", page.rows},
               {"passed", r.passed()}};
  return page;
}

}  // namespace

void run_doctor_collectives(const std::string& device_name, uint64_t seed, bool json) {
  // A soak, and something to aim signals at.
  const char* const repeat = std::getenv("KILN_COLLECTIVES_REPEAT");
  const int64_t repeats =
      repeat == nullptr ? 1 : parse_number<int64_t>("KILN_COLLECTIVES_REPEAT", repeat, 1, 1 << 30);
  RanksRequest request = launched_request();
  request.config = fmt::format("doctor --collectives --seed {} --device {}", seed, device_name);
  RankOptions options;
  options.device = Device::parse(device_name);
  options.seed = seed;
  options.matmuls = false;
  CollectivesReport report;
  run_ranks(request, options, [&](RankContext& ctx, Communicator& ranks) {
    CollectivesReport r = check_collectives(ctx, ranks, seed);
    for (int64_t i = 1; i < repeats && r.passed(); ++i) r = check_collectives(ctx, ranks, seed);
    if (ranks.rank() == 0) report = std::move(r);
  });
  const StudyPage page = collectives_page(report, options.device.str());
  std::fputs(written(page, json ? PageFormat::json : PageFormat::text).c_str(), stdout);
  if (!report.passed()) throw Error("a collective gave wrong values", "see the rows that say so");
}

}  // namespace kiln
