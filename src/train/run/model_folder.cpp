#include "train/run/model_folder.h"

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/one_line.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

namespace kiln {

std::string model_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status))
    throw Error(cat("there is no folder ", path), "expected the folder of a model or of a run",
                ErrorKind::usage);
  if (!fs::is_directory(status))
    throw Error(cat(path, " is a file; expected the folder of a model"),
                "such a folder holds config.json, *.safetensors and tokenizer.json", ErrorKind::usage);
  if (fs::exists(fs::path(path) / Manifest::kName, ignored)) (void)verify_checkpoint(path);
  if (fs::exists(fs::path(path) / "config.json", ignored)) return path;
  const std::string checkpoints = (fs::path(path) / "checkpoints").string();
  const auto warn = [](const std::string& line) {
    std::fprintf(stderr, "warning: %s\n", one_line(line).c_str());
  };
  if (const auto newest = newest_checkpoint(checkpoints, warn)) return *newest;
  throw Error(
      cat(path, " holds neither config.json nor checkpoints; expected the folder of a model or of a run"),
      "a model's folder holds config.json, *.safetensors and tokenizer.json", ErrorKind::usage);
}

}  // namespace kiln
