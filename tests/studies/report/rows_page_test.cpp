// Tables from stored rows: what enters them, and how rows meet those of a peer.
#include "studies/report/rows_page.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "studies/report/peers_page.h"
#include "support/has.h"

namespace kiln {
namespace {

Json step_row(const char* size, double ms) {
  return {{"command", "bench step"},
          {"status", "ok"},
          {"gate", "passed"},
          {"size", size},
          {"mode", "full"},
          {"dtype", "bf16"},
          {"batch", 4},
          {"ctx", 512},
          {"vocab", 10000},
          {"micro_steps", 1},
          {"clip", 0.0},
          {"preset", "optimized"},
          {"p50_ms", ms},
          {"tflops", 300.0},
          {"peak_bytes", 0x1p30},
          {"first_step_ms", 570.0},
          {"device", "cuda:0"},
          {"build_id", "abc"},
          {"time", "2026-11-19T05:00:00Z"},
          {"host", {{"device_name", "H200"}}}};
}

Json peer_of(Json row, double ms) {
  row["peer"] = "PyTorch";
  row["peer_variant"] = "graph";
  row["peer_version"] = "PyTorch 2.11.0";
  row["p50_ms"] = ms;
  row["peak_bytes"] = 0x1p31;
  row["clip"] = 0;  // the same number, written in another way
  row.erase("preset");
  return row;
}

std::string markdown(const StudyPage& page) { return written(page, PageFormat::markdown); }

TEST(RowsPage, PrintsTheTableOfTheCommandThatMeasured) {
  const std::vector<Json> rows = {step_row("small", 4.68), step_row("medium", 13.9)};
  const std::string page = markdown(rows_page(rows, {}, false));
  EXPECT_TRUE(has(page, "cuda:0 (H200), build abc.")) << page;
  EXPECT_TRUE(has(page, "| small | bf16 |") && has(page, "| 4.68 |")) << page;
  const std::string chosen = markdown(rows_page(rows, {"size", "p50_ms", "peak_bytes"}, false));
  EXPECT_TRUE(has(chosen, "| size | ms p50 | peak MiB |\n|---|---:|---:|\n| small | 4.68 | 1024 |\n"))
      << chosen;
  EXPECT_THROW(rows_page(rows, {"no_such_key"}, false), Error);
}

TEST(RowsPage, WithoutAPassedGateThereIsNoPlaceInATable) {
  std::vector<Json> rows = {step_row("small", 4.68), step_row("medium", 13.9), step_row("large", 31)};
  rows[1]["gate"] = "not-verified";
  rows[2]["gate"] = "failed";
  rows[2]["status"] = "failed";
  const std::string page = markdown(rows_page(rows, {}, false));
  EXPECT_FALSE(has(page, "medium") || has(page, "large")) << page;
  EXPECT_TRUE(has(page, "1 row left out: status ok, gate not-verified")) << page;
  EXPECT_TRUE(has(page, "1 row left out: status failed, gate failed")) << page;
  rows[0].erase("gate");
  EXPECT_THROW(rows_page(rows, {}, false), Error) << "a table of nothing";
}

TEST(RowsPage, RowsWithoutATimeSayWhy) {
  std::vector<Json> rows = {step_row("small", 4.68), step_row("10b", 0)};
  rows[1].erase("p50_ms");
  rows[1]["status"] = "oom";
  rows[1]["gate"] = "not-verified";
  EXPECT_TRUE(has(markdown(rows_page(rows, {}, false)), "| 10b |")) << "what ran out of memory is a result";
}

TEST(RowsPage, CommandsMachinesAndBuildsStayApartAndTheLatestCounts) {
  std::vector<Json> rows = {step_row("small", 5), step_row("small", 4.5), step_row("small", 4)};
  rows[2]["build_id"] = "def";
  const StudyPage page = rows_page(rows, {}, false);
  ASSERT_EQ(page.parts.size(), 2U);
  const std::string text = markdown(page);
  EXPECT_TRUE(has(text, "build abc") && has(text, "build def")) << text;
  EXPECT_TRUE(has(text, "1 row was measured again later")) << text;
  EXPECT_FALSE(has(text, "| 5 |")) << text;
}

TEST(RowsPage, ALineThatIsNoRowIsAnError) {
  const std::string path = testing::TempDir() + "kiln_rows_page.jsonl";
  std::ofstream(path) << "{\"command\":\"memory\"}\n\n[1]\n";
  try {
    read_row_files({path});
    FAIL() << "a list was taken for a row";
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), path + ":3")) << e.what();
  }
  std::ofstream(path) << "{\"command\":\"memory\"}\n";
  EXPECT_EQ(read_row_files({path, path}).size(), 2U);
  EXPECT_THROW(read_row_files({path + ".gone"}), Error);
}

TEST(PeersPage, StepsMeetWhereTheyMeasuredTheSame) {
  const std::vector<Json> rows = {step_row("small", 4), step_row("medium", 14), step_row("large", 31)};
  std::vector<Json> peers = {peer_of(rows[0], 6), peer_of(rows[1], 7)};
  const std::string page =
      markdown(peers_page(rows, peers, {"size", "kiln_ms", "peer_ms", "ratio", "peer_peak_bytes"}));
  EXPECT_TRUE(has(page, "| model | kiln ms | PyTorch ms | ratio | PyTorch peak MiB |")) << page;
  EXPECT_TRUE(has(page, "| small | 4 | 6 | 1.50x | 2048 |")) << page;
  EXPECT_TRUE(has(page, "| medium | 14 | 7 | 0.50x | 2048 |")) << "slower is shown, too";
  EXPECT_FALSE(has(page, "| large |")) << page;
  EXPECT_TRUE(has(page, "1 of 3 figures of kiln has no partner among the peer's")) << page;
  EXPECT_TRUE(has(page, "kiln abc; PyTorch 2.11.0; measured 2026-11-19")) << page;
  for (const char* key : {"ctx", "batch", "vocab", "dtype", "clip"}) {
    Json other = peers[0];
    other[key] = other[key].is_number() ? Json(77) : Json("other");
    EXPECT_THROW(peers_page(std::vector<Json>{rows[0]}, std::vector<Json>{other}, {}), Error)
        << key << " differs: these did not measure the same";
  }
}

TEST(PeersPage, APeerThatFailedSaysHowAndOneWithoutAGateIsLeftOut) {
  const std::vector<Json> rows = {step_row("small", 4), step_row("medium", 14)};
  std::vector<Json> peers = {peer_of(rows[0], 6), peer_of(rows[1], 7)};
  peers[1].erase("p50_ms");
  peers[1]["status"] = "oom";
  EXPECT_TRUE(has(markdown(peers_page(rows, peers, {"size", "kiln_ms", "peer_ms", "ratio"})),
                  "| medium | 14 | OOM | - |"));
  peers[0]["gate"] = "not-verified";
  const std::string page = markdown(peers_page(rows, peers, {"size", "kiln_ms", "peer_ms"}));
  EXPECT_FALSE(has(page, "| small |")) << page;
  EXPECT_TRUE(has(page, "1 row of the peer left out: status ok, gate not-verified")) << page;
}

TEST(PeersPage, SeveralPeersAreTwoLines) {
  const std::vector<Json> rows = {step_row("small", 4)};
  std::vector<Json> peers = {peer_of(rows[0], 6), peer_of(rows[0], 8)};
  peers[1]["peer_variant"] = "eager";
  const std::string page = markdown(peers_page(rows, peers, {"size", "peer", "ratio"}));
  EXPECT_TRUE(has(page, "| small | PyTorch graph | 1.50x |") &&
              has(page, "| small | PyTorch eager | 2.00x |"))
      << page;
  peers[1]["peer"] = "JAX";
  EXPECT_TRUE(has(markdown(peers_page(rows, peers, {"size", "peer_ms"})), "| peer ms |"));
}

TEST(PeersPage, AnotherMachinesFiguresDoNotCompare) {
  const std::vector<Json> rows = {step_row("small", 4), step_row("medium", 14)};
  std::vector<Json> peers = {peer_of(rows[0], 6), peer_of(rows[1], 7)};
  peers[0]["host"]["device_name"] = "A100";
  const std::string page = markdown(peers_page(rows, peers, {}));
  EXPECT_FALSE(has(page, "| small |")) << page;
  EXPECT_TRUE(has(page, "measured on A100, kiln's on H200")) << page;
  peers[1].erase("host");
  EXPECT_THROW(peers_page(rows, peers, {}), Error);
}

TEST(PeersPage, AttentionHasItsPassesSideBySide) {
  std::vector<Json> rows, peers;
  for (const char* pass : {"forward", "backward", "both"}) {
    Json r = {{"command", "bench flash"},
              {"status", "ok"},
              {"gate", "passed"},
              {"dtype", "bf16"},
              {"batch", 4},
              {"heads", 12},
              {"seq", 512},
              {"d", 64},
              {"causal", true},
              {"packed", true},
              {"variant", "flash_hopper"},
              {"pass", pass},
              {"p50_ms", 0.02},
              {"tflops", 117.0},
              {"build_id", "abc"},
              {"host", {{"device_name", "H200"}}}};
    rows.push_back(r);
    r["peer"] = "cuDNN";
    r.erase("variant");
    r["p50_ms"] = std::string(pass) == "backward" ? 0.01 : 0.03;
    peers.push_back(r);
  }
  const std::string page =
      markdown(peers_page(rows, peers,
                          {"form", "sizes", "peer", "kiln_forward_ms", "peer_backward_ms", "forward_ratio",
                           "backward_ratio", "both_ratio"}));
  EXPECT_TRUE(has(page, "| causal packed | 4x12x512x64 | cuDNN | 0.02 | 0.01 | 1.50x | 0.50x | 1.50x |"))
      << page;
}

}  // namespace
}  // namespace kiln
