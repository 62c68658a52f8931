// What `kiln convert` does, apart from its options and its printing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/hf_save.h"
#include "model/model_options.h"

namespace kiln {

struct ConvertRequest {
  // One of the two says what is written.
  std::string from = {};    // a folder
  ModelOptions fresh = {};  // a size or a config.json, freshly initialised
  std::string to = {};
  std::optional<DType> dtype = {};  // as in the source unless given; fresh ones fp32
  HfSaveOptions save = {};
  bool rope_given = false;  // save.from was: only a folder has an order
  bool force = false;       // replace the model that --to already holds
  uint64_t seed = 0;
};

struct ConvertReport {
  std::string from, to;
  HfConfig config;
  std::vector<SavedTensor> tensors;
  std::vector<std::string> copied;  // tokenizer files
  int64_t parameters = 0;
  uint64_t bytes = 0, source_bytes = 0;  // of the tensors
  std::size_t files = 0, source_files = 0;
  double seconds = 0;
};

// Throws Error(usage) for a request that cannot be, before anything is read.
void check_request(const ConvertRequest& request);

// Bytes done and total, counted as fp32.
ConvertReport convert(const ConvertRequest& request, const WeightProgress& progress);

Json convert_json(const ConvertReport& report);
std::string convert_text(const ConvertReport& report);

}  // namespace kiln
