// Every former name of an option and every former value, of every command, and the former names of ops and
// variants: taken, reported in one line, and the same as the new name.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "kiln/command_line.h"
#include "kiln/options.h"
#include "ops/cases/bench_case.h"
#include "ops/op_list.h"

namespace kiln::cli {
namespace {

using Words = std::vector<std::string>;

struct Parsed {
  std::string options;  // of the command and all its sub-commands, after reading
  std::string error, said;
};

std::string all_options(const Command& command) {
  std::string text = command.options.json().dump();
  for (const Option& o : command.options.all()) {
    if (o.is_in_config()) continue;
    text += o.name() + o.json().dump();
  }
  for (const Command& sub : command.subs) text += all_options(sub);
  return text;
}

const CommandEntry& entry_of(std::string_view name) {
  for (const CommandEntry& entry : commands())
    if (entry.name == name) return entry;
  throw Error(cat("no command ", name));
}

Parsed parsed(const Words& path, const Words& typed) {
  DeclaredCommand d(entry_of(path.front()));
  Words args(path.begin() + 1, path.end());
  args.insert(args.end(), typed.begin(), typed.end());
  Parsed p;
  testing::internal::CaptureStderr();
  try {
    (void)parse_arguments(d.command, d.common_options, args);
    (void)parse_arguments(d.command, d.common_options, args);  // as a sweep does for its cells
  } catch (const Error& error) {
    p.error = error.what();
  }
  p.said = testing::internal::GetCapturedStderr();
  p.options = all_options(d.command);
  return p;
}

// A value that is not the default's, or the test would not see that it was read.
std::string value_for(const Option& o) {
  static const std::map<std::string, std::string> kTexts = {
      {"--size", "tiny"},     {"--model", "somewhere"},   {"--bytes", "3MB"},
      {"--variant", "naive"}, {"--w", "3GB/s"},           {"--s", "3MB"},
      {"--warmup", "7"},      {"--val-fraction", "0.25"}, {"--weight-decay", "0.25"}};
  if (!o.choices().empty()) return o.choices().back();
  const auto known = kTexts.find(o.name());
  if (known != kTexts.end()) return known->second;
  if (o.value_name().starts_with("N")) return o.name() == "--train-bpe" ? "300" : "3";
  return o.value_name().starts_with("X") ? "0.25" : "";
}

// f(path of the command, the option) for every option of a command and its sub-commands.
template <class F>
void each_option(const Command& command, const Words& path, F f) {
  for (const Option& o : command.options.all()) f(path, o);
  for (const Command& sub : command.subs) {
    Words inner = path;
    inner.push_back(sub.name);
    each_option(sub, inner, f);
  }
}

template <class F>
void each_option(F f) {
  for (const DeclaredCommand& d : declared_commands()) each_option(d.command, {d.command.name}, f);
}

std::string shown(const Words& path, const std::string& rest) {
  std::string text = "kiln";
  for (const std::string& word : path) text += " " + word;
  return text + " " + rest;
}

TEST(OldSpellings, OptionsBehaveAsTheirSuccessors) {
  int tried = 0;
  each_option([&](const Words& path, const Option& o) {
    for (const std::string& old_name : o.old_names()) {
      SCOPED_TRACE(shown(path, old_name));
      Words before = {old_name}, now = {o.name()};
      if (!o.is_flag()) {
        const std::string value = value_for(o);
        ASSERT_FALSE(value.empty()) << "say a value for " << o.name();
        before.push_back(value);
        now.push_back(value);
      }
      const Parsed old_way = parsed(path, before), new_way = parsed(path, now), neither = parsed(path, {});
      EXPECT_EQ(old_way.error, new_way.error);  // of what else the command needs, if of anything
      EXPECT_EQ(old_way.said, cat("kiln: warning: ", old_name, " is now ", o.name(), "\n"));
      EXPECT_EQ(new_way.said, "");
      EXPECT_EQ(old_way.options, new_way.options);
      EXPECT_NE(old_way.options, neither.options) << "the value is the default";
      ++tried;
    }
  });
  EXPECT_GE(tried, 20);
}

TEST(OldSpellings, ValuesBehaveAsTheirSuccessors) {
  int tried = 0;
  each_option([&](const Words& path, const Option& o) {
    for (const auto& [before, now] : o.old_values()) {
      SCOPED_TRACE(shown(path, cat(o.name(), " ", before)));
      const Parsed old_way = parsed(path, {o.name(), before}), new_way = parsed(path, {o.name(), now});
      EXPECT_EQ(old_way.error, new_way.error);  // of what else the command needs, if of anything
      EXPECT_EQ(old_way.said,
                cat("kiln: warning: ", o.name(), " ", before, " is now ", o.name(), " ", now, "\n"));
      EXPECT_EQ(new_way.said, "");
      EXPECT_EQ(old_way.options, new_way.options);
      ++tried;
    }
  });
  EXPECT_GE(tried, 5);
}

// Wherever variants are named.
TEST(OldSpellings, VariantsAreReportedByEveryCommand) {
  int tried = 0;
  each_option([&](const Words& path, const Option& o) {
    if (o.name() != "--variant") return;
    const bool of_an_op = o.value_name().find('=') == std::string::npos;
    const std::string value = of_an_op ? "few_rows" : "linear=few_rows";
    SCOPED_TRACE(shown(path, value));
    const Parsed p = parsed(path, {"--variant", value});
    EXPECT_EQ(p.error, parsed(path, {"--variant", of_an_op ? "small_m" : "linear=small_m"}).error);
    EXPECT_EQ(p.said, "kiln: warning: variant few_rows is now small_m\n");
    EXPECT_EQ(parsed(path, {"--variant", of_an_op ? "small_m" : "linear=small_m"}).said, "");
    ++tried;
  });
  EXPECT_GE(tried, 10);
}

TEST(OldSpellings, OpsAreReportedWhereTheyAreNamed) {
  EXPECT_EQ(parsed({"ops"}, {"judge_step", "draw_weights"}).said,
            "kiln: warning: op judge_step is now finish_step_scalars\n"
            "kiln: warning: op draw_weights is now init_weights\n");
  EXPECT_EQ(parsed({"bench", "op"}, {"draw_weights"}).said,
            "kiln: warning: op draw_weights is now init_weights\n");
  EXPECT_EQ(parsed({"residuals"}, {"--op", "judge_step"}).said,
            "kiln: warning: op judge_step is now finish_step_scalars\n");
  EXPECT_EQ(
      parsed({"train"}, {"--variant", "judge_step=naive,attention=flash_few_rows"}).said,
      "kiln: warning: op judge_step is now finish_step_scalars\n"
      "kiln: warning: variant flash_few_rows of attention is no longer needed: each pass takes flash or "
      "flash_hopper by itself, whichever is faster on a problem; leave it out\n");
  const std::vector<OpListing> ops = list_ops();
  EXPECT_EQ(&find_op(ops, "judge_step"), &find_op(ops, "finish_step_scalars"));
  EXPECT_EQ(&find_op(ops, "draw_weights"), &find_op(ops, "init_weights"));
  EXPECT_EQ(parse_variants("linear=few_rows,attention=few_rows").all(),
            parse_variants("linear=small_m,attention=small_m").all());
  EXPECT_TRUE(parse_variants("attention=flash_few_rows").all().empty());
}

TEST(OldSpellings, OneOptionGivenTwiceIsRefused) {
  EXPECT_EQ(parsed({"memory"}, {"--micro-steps", "2", "--micro-steps", "2"}).error,
            "--micro-steps is given 2 times; expected once");
  EXPECT_EQ(parsed({"memory"}, {"--grad-accum", "2", "--grad-accum", "3"}).error,
            "--grad-accum is given 2 times; expected once");
  EXPECT_EQ(parsed({"memory"}, {"--micro-steps", "2", "--grad-accum", "2"}).error,
            "--grad-accum and --micro-steps are both given, and are one option; expected one of them");
  EXPECT_EQ(parsed({"memory"}, {"--micro-steps"}).error, "--micro-steps has no value; expected N");
  EXPECT_EQ(parsed({"memory"}, {"--micro-steps", "--wide"}).error,
            "--grad-accum is '--wide'; expected a whole number from 1 to 65536");
  EXPECT_EQ(parsed({"memory"}, {"--seed"}).error, "--seed has no value; expected N");
  EXPECT_EQ(parsed({"doctor"}, {"--seed", "1", "--seed", "2"}).error,
            "--seed is given 2 times; expected once");
}

}  // namespace
}  // namespace kiln::cli
