// What `kiln convert` does, apart from how it is asked for and how it is printed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/hf_save.h"

namespace kiln::cli {

struct ConvertRequest {
  // One of these three says what is written.
  std::string from = {};    // a folder
  std::string random = {};  // a size known by name, freshly initialised
  std::string config = {};  // a config.json, freshly initialised
  std::string to = {};
  std::optional<DType> dtype = {};  // as in the source unless given; fresh ones fp32
  HfSaveOptions save = {};
  bool force = false;  // replace the model that --to already holds
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

// Bytes done and in all, counted as fp32.
ConvertReport convert(const ConvertRequest& request, const WeightProgress& progress);

}  // namespace kiln::cli
