// Any arguments give a request or a usage error with a message fit for one line; nothing else may come out.
// The input is the arguments, each ended by a newline or a zero.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/one_line.h"
#include "bounds.h"
#include "kiln/command_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  std::vector<std::string> args;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    const auto end = rest.find_first_of(std::string_view("\n\0", 2));
    args.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  try {
    const kiln::cli::Request request = kiln::cli::parse_command_line(args);
    if (request.text.empty() == !request.run) std::abort();  // exactly one of the two
  } catch (const kiln::Error& error) {
    if (error.kind() != kiln::ErrorKind::usage) std::abort();
    const std::string line = kiln::one_line(error.what());
    if (line.empty() || line.find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
