// Token files as they come from elsewhere: one .bin or .npy of the formats token_format.h names, or a folder
// of them, without the dataset.json of `kiln tokenize`.
#pragma once

#include <string>

#include "data/training_text.h"

namespace kiln {

// A file whose name or first bytes say that it holds tokens, or a folder that holds such files and no text.
bool is_token_files(const std::string& path);

// Its tokens as training data. The tokenizer is the one asked for, else one that lies beside the files, else
// none: then the vocabulary reaches to the largest id. A folder's files with "val" in their names are for
// validation; of a single file its last part is.
TrainingText read_token_files(const std::string& path, const TextOptions& options, ThreadPool& pool);

}  // namespace kiln
