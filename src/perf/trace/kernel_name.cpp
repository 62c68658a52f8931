#include "perf/trace/kernel_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace kiln {
namespace {

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  if (status == 0 && text) return text.get();
  // nvcc writes some names that no demangler reads: the identifier is still in there, behind its length.
  constexpr std::string_view kEnd = "_kernel";
  const std::size_t at = name.find(kEnd);
  if (name.rfind("_Z", 0) != 0 || at == std::string::npos) return name;
  std::size_t begin = at;
  while (begin > 0 && (name[begin - 1] == '_' || (name[begin - 1] >= 'a' && name[begin - 1] <= 'z'))) --begin;
  return name.substr(begin, at + kEnd.size() - begin);
}

void remove_all(std::string& text, std::string_view what) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at))
    text.erase(at, what.size());
}

}  // namespace

bool of_a_library(const std::string& name) { return name.find("4kiln") == std::string::npos; }

std::string short_kernel_name(const std::string& name) {
  constexpr std::size_t kMost = 72;
  std::string text = readable(name);
  for (std::string_view part : {"(anonymous namespace)::", "kiln::"}) remove_all(text, part);
  if (text.rfind("void ", 0) == 0) text.erase(0, 5);
  int depth = 0;  // inside <>
  std::size_t open = std::string::npos;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
    if (depth == 0 && open == std::string::npos && c == '(') {
      open = i;
    } else if (depth == 0 && open != std::string::npos && (c == ',' || c == ')')) {
      text = text.substr(0, i) + ")";
      break;
    }
  }
  if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
  return text;
}

}  // namespace kiln
