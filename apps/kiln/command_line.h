// From arguments to a piece of work, without doing any of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace kiln::cli {

struct Request {
  std::string text;           // to print and be done (help, version); otherwise empty
  std::function<void()> run;  // set when text is empty
};

// `args` without the program's name. Throws Error of kind usage.
Request parse_command_line(std::span<const std::string> args);

// Throw Error of kind usage unless the text is a whole number, or a device name as --device takes it.
std::uint64_t parse_seed(std::string_view text);
void check_device_name(std::string_view text);

}  // namespace kiln::cli
