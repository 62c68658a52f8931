#include <gtest/gtest.h>

#include "studies/format.h"

namespace kiln {
namespace {

struct Report {
  std::string device_name = "AMD EPYC", isa = "avx2";
  int threads = 2;
  HostLoad load;
};

Report busy() {
  Report r;
  r.load = {.seconds = 4, .cpus = 2, .load_before = 5.9, .others = 1.3};
  return r;
}

TEST(LoadNote, ABusyMachineIsTheFirstNoteAndInTheRow) {
  std::vector<std::string> notes = {"another"};
  add_load_note(busy(), notes);
  const std::string sentence =
      "load 5.9 on 2 cores, 1.3 of them used by others meanwhile: timings unreliable";
  EXPECT_EQ(notes, (std::vector<std::string>{sentence, "another"}));
  const Json load = host_json(busy()).at("load");
  EXPECT_EQ(load.at("unreliable").text(), sentence);
  EXPECT_DOUBLE_EQ(load.at("others_cores").get<double>(), 1.3);
  EXPECT_DOUBLE_EQ(load.at("load_before").get<double>(), 5.9);
  const Json line =
      Json::parse(result_line("bench op", Json::object(), summarize({1, 1}), host_json(busy())));
  EXPECT_TRUE(line.at("host").at("load").contains("unreliable"));
}

TEST(LoadNote, AQuietMachineHasFiguresAndNoNote) {
  Report quiet = busy();
  quiet.load.others = 0.02;
  std::vector<std::string> notes;
  add_load_note(quiet, notes);
  EXPECT_TRUE(notes.empty());
  EXPECT_FALSE(host_json(quiet).at("load").contains("unreliable"));
  EXPECT_DOUBLE_EQ(host_json(quiet).at("load").at("seconds").get<double>(), 4);
}

TEST(LoadNote, WhatWasNotWatchedHasNoLoad) { EXPECT_FALSE(host_json(Report()).contains("load")); }

}  // namespace
}  // namespace kiln
