#include "rows/metrics_log.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TEST(MetricsLog, KeepsWhatTheRunResumesFromAndNoMore) {
  const std::string text =
      "{\"step\":1,\"loss\":3.5}\n{\"step\":2,\"loss\":3.25}\n{\"step\":2,\"validation_loss\":3}\n"
      "not ours\n{\"step\":-1}\n{\"step\":3,\"loss\":3}\n{\"step\":2,\"lo";
  const KeptMetrics kept = keep_metrics(text, 2);
  EXPECT_EQ(kept.text,
            "{\"step\":1,\"loss\":3.5}\n{\"step\":2,\"loss\":3.25}\n{\"step\":2,\"validation_loss\":3}\n");
  EXPECT_EQ(kept.losses, (std::vector<double>{3.5, 3.25}));
  EXPECT_EQ(keep_metrics(text, 0).text, "");
  EXPECT_EQ(keep_metrics("", 5).text, "");
}

TEST(MetricsLog, RestartsOrAppends) {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsLog(path, 0).append("{\"step\":1,\"loss\":2}");
  {
    MetricsLog again(path, 1);
    EXPECT_EQ(again.kept_losses(), (std::vector<double>{2}));
    again.append("{\"step\":2,\"loss\":1}");
  }
  EXPECT_EQ(folder.read("metrics.jsonl"), "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n");
  EXPECT_TRUE(MetricsLog(path, 0).kept_losses().empty());
  EXPECT_EQ(folder.read("metrics.jsonl"), "");
  EXPECT_NE(KILN_ERROR_OF(MetricsLog(folder / "no/such/metrics.jsonl", 0)), "nothing");
}

}  // namespace
}  // namespace kiln
