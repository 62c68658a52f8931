// Resolves the folder given by --checkpoint, --from or --model.
#pragma once

#include <string>

namespace kiln {

// The folder itself where it holds a model in Hugging Face's form; of a run's folder, its newest good
// checkpoint (on stderr, why any newer one was passed over). Throws Error(usage) that says what was expected
// for any other path.
std::string model_folder(const std::string& path);

}  // namespace kiln
