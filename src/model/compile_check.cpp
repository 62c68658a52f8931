#include "model/compile_check.h"

#include "autograd/region.h"

namespace kiln {

void check_compile(const ModelConfig& config, const Device& device) {
  if (config.compile == CompileMode::none || config.compile == CompileMode::automatic) return;
  const std::string why = why_not_compiled(device);
  if (!why.empty())
    throw Error(cat("--compile is '", name_of(config.compile), "': ", why),
                "--compile auto compiles where the device can", ErrorKind::unavailable);
}

std::string compile_note(const ModelConfig& config, const Device& device) {
  if (config.compile != CompileMode::automatic) return {};
  const std::string why = why_not_compiled(device);
  return why.empty() ? why : cat("--compile auto: ", why);
}

}  // namespace kiln
