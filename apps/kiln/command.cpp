#include "kiln/command.h"

namespace kiln::cli {

Command& Command::sub(std::string_view sub_name, std::string_view sub_summary, std::string_view sub_example) {
  Command& command =
      subs.emplace_back(std::string(sub_name), std::string(sub_summary), std::string(sub_example));
  command.parent = this;
  command.options.tell_old_name = options.tell_old_name;
  return command;
}

std::string Command::full_name() const {
  return (parent == nullptr ? "kiln" : parent->full_name()) + " " + name;
}

}  // namespace kiln::cli
