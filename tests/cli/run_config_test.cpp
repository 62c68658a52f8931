// --config FILE: options from a JSON file, under those that are typed.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "kiln/command_line.h"
#include "kiln/options.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

class RunConfig : public testing::Test {
 protected:
  std::string file(const std::string& text) { return folder_.write("config.json", text); }

  // Reads `kiln train --config FILE args...`.
  void read(const std::string& config, std::vector<std::string> args = {}) {
    args.insert(args.begin(), {"--config", file(config)});
    for (const CommandEntry& entry : commands())
      if (entry.name == "train") train_.emplace(entry);
    (void)parse_arguments(train_->command, train_->common_options, args);
  }
  std::string value(const char* option) {
    const Option* o = train_->command.options.find(option);
    return (o != nullptr ? o : train_->common_options.find(option))->json().dump();
  }
  std::string complaint(const std::string& config, ErrorKind kind = ErrorKind::usage) {
    try {
      read(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.hint().empty() ? error.what() : cat(error.what(), " | ", error.hint());
    }
    return "no complaint";
  }

  TempFolder folder_;
  std::optional<DeclaredCommand> train_;
};

TEST_F(RunConfig, TheCommandLineWins) {
  read(R"({"steps": 7, "lr": 0.5, "batch": 4, "seed": 11})", {"--lr", "0.25", "--seed", "12"});
  EXPECT_EQ(value("--steps"), "7");
  EXPECT_EQ(value("--batch"), "4");
  EXPECT_EQ(value("--lr"), "0.25");
  EXPECT_EQ(train_->common.seed, 12U);
}

TEST_F(RunConfig, CommentsAndFormerNamesAreTaken) {
  testing::internal::CaptureStderr();
  read("// of a run\n{\"accumulate\": 3, /* one by one */ \"on_save_error\": \"go-on\"}");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(value("--grad-accum"), "3");
  EXPECT_EQ(value("--on-save-error"), "\"continue\"");
  EXPECT_NE(said.find("kiln: warning: --on-save-error go-on is now --on-save-error continue\n"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("kiln: warning: accumulate is now grad_accum\n"), std::string::npos) << said;
}

TEST_F(RunConfig, AnUnknownKeyIsAnsweredWithTheNearest) {
  const std::string said = complaint(R"({"stesp": 7})");
  EXPECT_NE(said.find("stesp"), std::string::npos) << said;
  EXPECT_NE(said.find("did you mean 'steps'?"), std::string::npos) << said;
}

TEST_F(RunConfig, AWrongTypeIsAnsweredWithWhatWasExpected) {
  EXPECT_NE(complaint(R"({"steps": "many"})").find("--steps is 'many'; expected a whole number"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"steps": true})").find("--steps is 'true'; expected a whole number"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"schedule": "cosin"})").find("did you mean 'cosine'?"), std::string::npos);
  EXPECT_NE(complaint(R"({"fresh": true})").find("fresh"), std::string::npos);  // how, not what
  // A file that is no JSON has nothing asked wrongly: it cannot be read.
  EXPECT_NE(complaint(R"({"steps": 1, "steps": 2})", ErrorKind::failed).find("steps"), std::string::npos);
  EXPECT_NE(complaint("[]"), "no complaint");
  EXPECT_NE(complaint("{\"steps\": 1", ErrorKind::failed), "no complaint");
}

}  // namespace
}  // namespace kiln::cli
