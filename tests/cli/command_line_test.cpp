#include "kiln/command_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/one_line.h"

namespace kiln::cli {
namespace {

Request parse(const std::vector<std::string>& args) { return parse_command_line(args); }

// The message of the usage error that `args` give.
std::string complaint(const std::vector<std::string>& args) {
  try {
    parse(args);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "no complaint";
}

TEST(CommandLine, HelpAndVersionAreText) {
  EXPECT_NE(parse({"--help"}).text.find("doctor"), std::string::npos);
  EXPECT_EQ(parse({"--version"}).text.rfind("kiln ", 0), 0U);
  EXPECT_EQ(parse({"version"}).text, parse({"--version"}).text);
  EXPECT_EQ(parse({"-V"}).text, parse({"--version"}).text);
  EXPECT_EQ(parse({"help", "bench", "op"}).text, parse({"bench", "op", "--help"}).text);
  EXPECT_NE(parse({"doctor", "--help"}).text.find("Example:\n  kiln doctor"), std::string::npos);
  EXPECT_FALSE(parse({"doctor", "--help"}).run);
}

TEST(CommandLine, CommonOptionsAreTakenByEveryCommand) {
  const Request request =
      parse({"doctor", "--json", "--seed", "18446744073709551615", "--device=cuda:3", "--out", "x"});
  EXPECT_TRUE(request.text.empty());
  EXPECT_TRUE(request.run);
}

TEST(CommandLine, TheBareNameShowsTheHelp) {
  const std::vector<std::string> nothing;
  EXPECT_FALSE(parse_command_line(nothing).run);
  EXPECT_EQ(parse_command_line(nothing).text, parse({"--help"}).text);
}

TEST(CommandLine, UnknownNamesGetTheNearest) {
  EXPECT_EQ(complaint({"docter"}), "unknown command 'docter'; did you mean 'doctor'?");
  EXPECT_EQ(complaint({"zzz"}), "unknown command 'zzz'");
  EXPECT_EQ(complaint({"--hepl"}), "unknown option '--hepl'; did you mean '--help'?");
  EXPECT_EQ(complaint({"doctor", "--jsno"}), "unknown option '--jsno'; did you mean '--json'?");
  EXPECT_EQ(complaint({"doctor", "--sed=4"}), "unknown option '--sed'; did you mean '--seed'?");
  EXPECT_EQ(complaint({"doctor", "extra"}), "unexpected argument 'extra'");
}

TEST(CommandLine, WrongValuesSayWhatWasExpected) {
  EXPECT_EQ(complaint({"doctor", "--device", "gpu"}), "no complaint");
  EXPECT_EQ(complaint({"doctor", "--device", "gpu:1"}), "no complaint");
  EXPECT_EQ(complaint({"doctor", "--device", "gpus"}), "unknown device 'gpus'");
  for (const char* device : {"cuda:", "cuda:x", "cuda:-1", "cuda:99999", "CPU", ""}) {
    EXPECT_THROW(check_device_name(device), Error) << device;
  }
  for (const char* seed : {"", "-1", "1.5", "0x10", "18446744073709551616", "ten"}) {
    EXPECT_THROW(parse_seed(seed), Error) << seed;
  }
  EXPECT_NE(complaint({"doctor", "--seed"}).find("--seed"), std::string::npos);
}

TEST(OneLine, KeepsTheTerminalSafe) {
  EXPECT_EQ(one_line("a\nb\x1b[31m\n"), "a; b\\x1b[31m");
  EXPECT_EQ(one_line("grün"), "grün");
  EXPECT_LT(one_line(std::string(100000, 'x')).size(), 2100U);
}

}  // namespace
}  // namespace kiln::cli
