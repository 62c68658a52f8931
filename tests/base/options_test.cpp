// What an option takes, says of a wrong value, and shows in --help; former names; and a run config.
#include "base/options.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_reader.h"

namespace kiln {
namespace {

enum class Mode { quick, full };
constexpr NamedValue<Mode> kModes[] = {{"quick", Mode::quick, "fast"}, {"full", Mode::full}};

struct Request {
  int64_t steps = 500;
  double lr = 1e-3;
  std::optional<int> warmup;
  bool fresh = false;
  Mode mode = Mode::full;
  std::vector<Mode> modes = {Mode::full};
  std::vector<int64_t> sizes = {1, 2};
  std::string schedule = "cosine";
  std::vector<std::string> words;
};

struct Declared {
  Declared() {
    o.tell_old_name = [this](const std::string& line) { said.push_back(line); };
    o.opt("--steps", r.steps, at_least<int64_t>(1), "training steps").was("--updates,--iterations");
    o.opt("--lr", r.lr, between(0.0, 1.0), "learning rate");
    o.opt("--warmup", r.warmup, between(0, 100), "warm-up").unset("a tenth of --steps");
    o.opt("--fresh", r.fresh, "restart").not_in_config();
    o.opt("--mode", r.mode, kModes, "one of {}");
    o.opt("--modes", r.modes, kModes, "several");
    o.opt("--sizes", r.sizes, at_least<int64_t>(1), "sizes");
    o.opt("--schedule", r.schedule, one_of({"cosine", "linear", "constant"}), "{}")
        .was_value("flat", "constant");
    o.opt("--words", r.words, "words").repeat();
  }

  Option& at(std::string_view name) { return *o.find(name); }
  std::string complaint(std::string_view name, std::string_view text) {
    try {
      at(name).read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.hint().empty() ? error.what() : cat(error.what(), " | ", error.hint());
    }
    return "no complaint";
  }
  std::string config_complaint(const std::string& text) {
    try {
      read_config(text);
    } catch (const Error& error) {
      return error.hint().empty() ? error.what() : cat(error.what(), " | ", error.hint());
    }
    return "no complaint";
  }
  void read_config(const std::string& text) {
    const Json document = parse_json(text, {.max_values = 100, .comments = true}, "run.json");
    o.read(JsonValue(document, "run.json"));
  }

  Request r;
  Options o;
  std::vector<std::string> said;
};

TEST(Options, ReadIntoTheirFields) {
  Declared d;
  d.at("--steps").read("7");
  d.at("--lr").read("2e-4");
  d.at("--warmup").read("0");
  d.at("--fresh").read("true");
  d.at("--mode").read("quick");
  d.at("--modes").read("quick,full,quick");
  d.at("--sizes").read("4,4,8");
  d.at("--words").read("a,b");
  d.at("--words").read("c");
  EXPECT_EQ(d.r.steps, 7);
  EXPECT_EQ(d.r.lr, 2e-4);
  EXPECT_EQ(d.r.warmup, 0);
  EXPECT_TRUE(d.r.fresh);
  EXPECT_EQ(d.r.mode, Mode::quick);
  EXPECT_EQ(d.r.modes, (std::vector{Mode::quick, Mode::full}));
  EXPECT_EQ(d.r.sizes, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(d.r.words, (std::vector<std::string>{"a,b", "c"}));
  EXPECT_TRUE(d.said.empty());
}

TEST(Options, AWrongValueIsAnsweredWithWhatWasExpected) {
  Declared d;
  EXPECT_EQ(d.complaint("--steps", "0"), "--steps is '0'; expected a whole number of 1 or more");
  EXPECT_EQ(d.complaint("--steps", "1.5"), "--steps is '1.5'; expected a whole number of 1 or more");
  EXPECT_EQ(d.complaint("--lr", "nan"), "--lr is 'nan'; expected a number from 0 to 1");
  EXPECT_EQ(d.complaint("--warmup", "101"), "--warmup is '101'; expected a whole number from 0 to 100");
  EXPECT_EQ(d.complaint("--sizes", "1,,2"), "--sizes is ''; expected a whole number of 1 or more");
  // All words that would do, and besides them the one that was probably meant.
  EXPECT_EQ(d.complaint("--schedule", "cosin"),
            "--schedule is 'cosin'; expected one of: cosine, linear, constant | did you mean 'cosine'?");
  EXPECT_EQ(d.complaint("--schedule", "zzz"),
            "--schedule is 'zzz'; expected one of: cosine, linear, constant");
  EXPECT_EQ(d.complaint("--mode", ""), "--mode is ''; expected one of: quick, full");
  EXPECT_EQ(d.complaint("--fresh", "perhaps"),
            "--fresh is 'perhaps'; expected one of: true, false, on, off, yes, no, 1, 0");
  EXPECT_EQ(d.r.steps, 500);
  EXPECT_EQ(d.r.schedule, "cosine");
}

TEST(Options, FormerNamesAndValuesAreTakenAndReported) {
  Declared d;
  EXPECT_EQ(d.o.find("--updates"), d.o.find("--steps"));
  EXPECT_EQ(d.o.find("--iterations"), d.o.find("--steps"));
  EXPECT_EQ(d.o.find("--update"), nullptr);
  d.at("--mode").read("fast");
  EXPECT_EQ(d.r.mode, Mode::quick);
  EXPECT_EQ(d.said, (std::vector<std::string>{"--mode fast is now --mode quick"}));
  d.at("--modes").read("full,fast");  // as an item of a list
  EXPECT_EQ(d.r.modes, (std::vector{Mode::full, Mode::quick}));
  EXPECT_EQ(d.said.back(), "--modes fast is now --modes quick");
  d.at("--schedule").read("flat");
  EXPECT_EQ(d.r.schedule, "constant");
  EXPECT_EQ(d.said.size(), 3U);
}

TEST(Options, HelpShowsTheFieldsDefaultAndTheWords) {
  Declared d;
  EXPECT_EQ(d.at("--steps").help(), "training steps (default 500)");
  EXPECT_EQ(d.at("--warmup").help(), "warm-up (default a tenth of --steps)");
  EXPECT_EQ(d.at("--fresh").help(), "restart");
  EXPECT_EQ(d.at("--mode").help(), "one of quick or full (default full)");
  EXPECT_EQ(d.at("--schedule").help(), "cosine, linear or constant (default cosine)");
  EXPECT_EQ(d.at("--sizes").help(), "sizes (default 1,2)");
  const std::array<std::string, 1> one = {"a"};
  EXPECT_EQ(or_list(one), "a");
  EXPECT_EQ(or_list({}), "");
}

TEST(Options, ARunConfigIsReadByTheSameDeclarations) {
  Declared d;
  d.read_config(
      "{ // a comment\n \"steps\": 9, \"lr\": 0.5, /* another */ \"warmup\": null, \"mode\": \"full\",\n"
      "  \"sizes\": [3, 4], \"words\": [\"a,b\", \"c\"] }");
  EXPECT_EQ(d.r.steps, 9);
  EXPECT_EQ(d.r.lr, 0.5);
  EXPECT_FALSE(d.r.warmup.has_value());
  EXPECT_EQ(d.r.sizes, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(d.r.words, (std::vector<std::string>{"a,b", "c"}));
  // What is written is what is read.
  Declared again;
  again.read_config(d.o.json().dump());
  EXPECT_EQ(again.o.json().dump(), d.o.json().dump());
  EXPECT_EQ(d.o.json().find("fresh"), nullptr);  // it says how, not what
}

TEST(Options, ARunConfigsMistakesAreNamedWithTheirPlace) {
  Declared d;
  const std::string unknown = d.config_complaint(R"({"stesp": 9})");
  EXPECT_NE(unknown.find("stesp"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("steps"), std::string::npos) << unknown;  // the nearest
  const std::string wrong = d.config_complaint(R"({"steps": "many"})");
  EXPECT_NE(wrong.find("run.json"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("--steps is 'many'; expected a whole number"), std::string::npos) << wrong;
  EXPECT_NE(d.config_complaint(R"({"lr": {"peak": 1}})").find("expected what the command line takes"),
            std::string::npos);
  EXPECT_NE(d.config_complaint(R"({"steps": 1.5})").find("expected a whole number"), std::string::npos);
  EXPECT_NE(d.config_complaint(R"({"fresh": true})").find("fresh"), std::string::npos);
  EXPECT_NE(d.config_complaint("[1]"), "no complaint");
  EXPECT_EQ(d.r.steps, 500);
}

TEST(Options, CheckReadsEveryFieldAgain) {
  Declared d;
  d.o.check();
  d.r.steps = -3;
  try {
    d.o.check();
    FAIL() << "a field that its declaration does not allow passed";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "--steps is '-3'; expected a whole number of 1 or more");
  }
}

}  // namespace
}  // namespace kiln
