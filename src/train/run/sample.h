// What `kiln sample` does, apart from its options and its printing.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "train/run/load_model.h"
#include "train/run/text_generator.h"

namespace kiln {

struct SampleRequest {
  ModelRequest model;
  std::string prompt = {};
  bool bos = false;  // the model's beginning-of-text token before the prompt
  GenerateOptions generate = {};
  std::optional<int64_t> context = {};  // max_position_embeddings of the model
};

struct SampleReport {
  Generation generation;
  std::string folder, device;
  int threads = 1;
  int64_t parameters = 0, context = 0;
  double load_seconds = 0;
  // What bounds decoding: each step reads all weights and, on average over the run, this much of the cache.
  double weight_bytes = 0, cache_bytes = 0;
  double copy_rate =
      0;  // bytes a second, measured; 0: not known, or all of it fits into the cache of the CPU

  double predicted_tokens_per_second() const;  // 0 where copy_rate is
};

// Throws Error(usage) for a request that cannot be, before anything is read.
void check_request(const SampleRequest& request);

SampleReport sample(const SampleRequest& request, const TextSink& sink, const WeightProgress& progress);

Json sample_json(const SampleRequest& request, const SampleReport& report);
std::string speed_text(const SampleReport& report);

}  // namespace kiln
