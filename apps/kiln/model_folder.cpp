#include "kiln/model_folder.h"

#include <filesystem>

#include "base/error.h"

namespace kiln::cli {

std::string model_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status))
    throw Error(cat("there is no folder ", path), "--checkpoint takes the folder of a model",
                ErrorKind::usage);
  if (!fs::is_directory(status))
    throw Error(cat(path, " is a file; expected the folder of a model"),
                "such a folder holds config.json, *.safetensors and tokenizer.json", ErrorKind::usage);
  if (!fs::exists(fs::path(path) / "config.json", ignored))
    throw Error(cat(path, " holds no config.json; expected the folder of a model"),
                "such a folder holds config.json, *.safetensors and tokenizer.json", ErrorKind::usage);
  return path;
}

}  // namespace kiln::cli
