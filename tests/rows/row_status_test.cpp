// What became of a row and what its gate said, of rows of today and of those stored before there were two
// keys.
#include "rows/row_status.h"

#include <gtest/gtest.h>

#include <set>

#include "rows/row_outcome.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

TEST(RowStatus, WordsAreReadBackAsTheyWereWritten) {
  std::set<std::string> words;
  for (int i = 0; i <= static_cast<int>(RowStatus::modelled); ++i) {
    const RowOutcome outcome{.status = static_cast<RowStatus>(i)};
    const Json row = outcome_json(outcome);
    EXPECT_EQ(status_of(row), outcome.status);
    EXPECT_EQ(gate_of(row), Gate::not_verified);
    EXPECT_FALSE(counts(row)) << row.dump();
    words.insert(row.at("status").text());
  }
  EXPECT_EQ(words, (std::set<std::string>{"ok", "failed", "oom", "unsupported", "unavailable", "timeout",
                                          "interrupted", "skipped", "modelled"}));
  for (const Gate gate : {Gate::not_verified, Gate::passed, Gate::failed})
    EXPECT_EQ(gate_of(outcome_json({.gate = gate})), gate);
  EXPECT_TRUE(counts(outcome_json({.gate = Gate::passed})));
}

TEST(RowStatus, RowsOfTheFirstSchemaSaidBothInTheirGate) {
  struct Former {
    const char* gate;
    RowStatus status;
    Gate now;
  };
  for (const Former& f : {Former{"passed", RowStatus::ok, Gate::passed},
                          {"failed", RowStatus::failed, Gate::failed},
                          {"no memory", RowStatus::oom, Gate::not_verified},
                          {"timed out", RowStatus::timeout, Gate::not_verified},
                          {"not available", RowStatus::unavailable, Gate::not_verified},
                          {"skipped", RowStatus::skipped, Gate::not_verified},
                          {"not run", RowStatus::skipped, Gate::not_verified},
                          {"no effect", RowStatus::skipped, Gate::not_verified},
                          {"planned", RowStatus::modelled, Gate::not_verified},
                          {"predicted", RowStatus::modelled, Gate::not_verified}}) {
    const Json row = {{"command", "bench op add"}, {"gate", f.gate}};
    EXPECT_EQ(status_of(row), f.status) << f.gate;
    EXPECT_EQ(gate_of(row), f.now) << f.gate;
  }
  for (const char* command : {"bench step", "bench warmup", "profile"})
    EXPECT_FALSE(counts({{"command", command}, {"gate", "passed"}})) << "it compared nothing: " << command;
}

TEST(RowStatus, ACheckThatWasPassedCountsOnlyWithTimes) {
  RowOutcome row{.gate = Gate::passed};
  row.set(RowStatus::oom, "9 GiB");
  EXPECT_EQ(row.gate, Gate::not_verified);
  row.fail_gate("y is off");
  EXPECT_EQ(row.status, RowStatus::failed);
  EXPECT_EQ(row.gate, Gate::failed);
  EXPECT_EQ(row.reason, "y is off");
}

TEST(RowStatus, PartsAndCellsOfOldAreRead) {
  EXPECT_EQ(status_of(Json{{"status", "done"}}), RowStatus::ok);
  EXPECT_EQ(status_of(Json{{"status", "timed out"}}), RowStatus::timeout);
  EXPECT_EQ(status_of(Json{{"status", "not available"}}), RowStatus::unavailable);
}

TEST(RowStatus, TablesMarkWhatIsNotVerifiedAndNameWhatHasNoTimes) {
  const std::vector<ColumnForm> columns = [] {
    std::vector<ColumnForm> forms(outcome_forms().begin(), outcome_forms().end());
    forms.push_back({"p50_ms", "ms", Unit::milliseconds, Where::table});
    return forms;
  }();
  const auto timed = [](Gate gate) {
    Json row = outcome_json({.gate = gate});
    row["p50_ms"] = 2.0;
    return row;
  };
  std::vector<Json> rows = {timed(Gate::passed), timed(Gate::not_verified)};
  for (const RowStatus s : {RowStatus::oom, RowStatus::unsupported, RowStatus::timeout, RowStatus::failed})
    rows.push_back(outcome_json({.status = s, .reason = "why"}));
  const RowTable table = row_table(columns, rows);
  ASSERT_EQ(table.lines.size(), 7U);
  EXPECT_EQ(table.lines[1], (std::vector<std::string>{"passed", "2"}));
  EXPECT_EQ(table.lines[2], (std::vector<std::string>{"not verified", "2"}));
  EXPECT_EQ(table.lines[3][1], "OOM");
  EXPECT_EQ(table.lines[4][1], "unsupported");
  EXPECT_EQ(table.lines[5][1], "timeout");
  EXPECT_EQ(table.lines[6][1], "failed");
  rows.resize(2);
  rows[0].erase("p50_ms");
  EXPECT_EQ(row_table(columns, rows).lines[1][1], "-") << "a row that is ok has nothing to explain";
}

}  // namespace
}  // namespace kiln
