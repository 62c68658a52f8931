#include "base/call_stack.h"

#include <cxxabi.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

namespace kiln {
namespace {

// Where the program was loaded: its addresses are counted from there.
std::size_t load_address() {
  std::size_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::size_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program itself
      },
      &base);
  return base;
}

template <class T>
std::vector<T> read_table(std::ifstream& file, std::size_t offset, std::size_t bytes) {
  std::vector<T> table(bytes / sizeof(T));
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(table.data()), static_cast<std::streamsize>(table.size() * sizeof(T)));
  if (!file) table.clear();
  return table;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         std::free);
  return status == 0 && text ? text.get() : name;
}

// "kiln::Block::attend(kiln::RankContext&, ...) const" -> "Block::attend"; nothing for what is not kiln's.
std::optional<std::string> short_name(std::string text) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (std::size_t at = text.find(kAnonymous); at != std::string::npos; at = text.find(kAnonymous))
    text.erase(at, kAnonymous.size());
  const std::size_t end = text.find_first_of("(<");
  if (end != std::string::npos) text.erase(end);
  if (const std::size_t type = text.rfind(' '); type != std::string::npos)
    text.erase(0, type + 1);  // it returns
  constexpr std::string_view kOurs = "kiln::";
  if (text.rfind(kOurs, 0) != 0) return {};
  return text.substr(kOurs.size());
}

}  // namespace

CallStack CallStack::here() {
  CallStack stack;
  stack.count = ::backtrace(stack.frames.data(), kMost);
  return stack;
}

FunctionNames::FunctionNames() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const auto header = read_table<Elf64_Ehdr>(file, 0, sizeof(Elf64_Ehdr));
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      header[0].e_ident[EI_CLASS] != ELFCLASS64)
    return;
  const auto sections =
      read_table<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum * sizeof(Elf64_Shdr));
  const std::size_t base = load_address();
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type != SHT_SYMTAB || s.sh_link >= sections.size()) continue;
    const auto symbols = read_table<Elf64_Sym>(file, s.sh_offset, s.sh_size);
    auto names = read_table<char>(file, sections[s.sh_link].sh_offset, sections[s.sh_link].sh_size);
    if (names.empty()) continue;
    names.back() = '\0';
    for (const Elf64_Sym& symbol : symbols) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0 || symbol.st_name >= names.size())
        continue;
      const std::size_t begin = base + symbol.st_value;
      functions_.push_back({begin, begin + symbol.st_size, &names[symbol.st_name]});
    }
  }
  std::sort(functions_.begin(), functions_.end(),
            [](const Function& a, const Function& b) { return a.begin < b.begin; });
}

const FunctionNames::Function* FunctionNames::at(std::size_t address) const {
  const auto after = std::upper_bound(functions_.begin(), functions_.end(), address,
                                      [](std::size_t a, const Function& f) { return a < f.begin; });
  if (after == functions_.begin() || address >= (after - 1)->end) return nullptr;
  return &*(after - 1);
}

std::vector<std::string> FunctionNames::of(const CallStack& stack) const {
  std::vector<std::string> names;
  for (int i = 0; i < stack.count; ++i) {
    // A frame holds where its call returns to, which may be past the end of the function that called last.
    const Function* f = at(reinterpret_cast<std::size_t>(stack.frames[static_cast<std::size_t>(i)]) - 1);
    const std::optional<std::string> name =
        f != nullptr ? short_name(demangled(f->name.c_str())) : std::nullopt;
    if (name && (names.empty() || names.back() != *name)) names.push_back(*name);
  }
  return names;
}

}  // namespace kiln
