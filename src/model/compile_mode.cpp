#include "model/compile_mode.h"

#include "base/nearest_name.h"
#include "base/options.h"

namespace kiln {
namespace {

constexpr std::string_view kNames[] = {"none", "regions", "model", "auto"};

}  // namespace

std::string_view name_of(CompileMode m) { return kNames[static_cast<int>(m)]; }

std::vector<std::string_view> compile_mode_names() { return {std::begin(kNames), std::end(kNames)}; }

CompileMode parse_compile(std::string_view option, std::string_view text) {
  return static_cast<CompileMode>(which_name(std::string(option), text, kNames));
}

}  // namespace kiln
