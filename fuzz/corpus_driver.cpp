// usage: fuzz_corpus FOLDER
// Feeds every fuzz target what FOLDER/<target>/ holds, and variations of it that are the same in every run:
// each input cut short at some lengths, and with single bytes changed. A target that finds something wrong
// aborts. The last line printed before names target and input.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.h"

#define KILN_FUZZ_TARGET(name) extern "C" int name(const std::uint8_t* data, std::size_t size);
#include "fuzz_targets.inc"
#undef KILN_FUZZ_TARGET

namespace {

namespace fs = std::filesystem;

struct Target {
  const char* name;
  int (*run)(const std::uint8_t* data, std::size_t size);
  // Those that open sockets cost milliseconds a call.
  std::size_t variations() const { return std::string_view(name) == "fuzz_rendezvous" ? 2 : 60; }
};

constexpr Target kTargets[] = {
#define KILN_FUZZ_TARGET(name) {#name, name},
#include "fuzz_targets.inc"
#undef KILN_FUZZ_TARGET
};

const kiln::PhiloxKey kKey = kiln::philox_key(1, "corpus");

// A copy of exactly that size, so that a sanitizer sees a read beyond it.
void feed(const Target& target, const std::string& input) {
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  (void)target.run(bytes.data(), bytes.size());
}

std::size_t feed_with_variations(const Target& target, const std::string& input) {
  feed(target, input);
  const std::size_t size = input.size(), count = std::min(target.variations(), size);
  for (std::size_t i = 0; i < count; ++i) {
    feed(target, input.substr(0, i * size / count));
    const kiln::Philox4 random = kiln::philox(kKey, i, static_cast<uint32_t>(size));
    std::string changed = input;
    changed[random.x % size] = static_cast<char>(random.y);
    feed(target, changed);
  }
  return 1 + 2 * count;
}

std::vector<fs::path> inputs_of(const fs::path& folder) {
  std::vector<fs::path> files;
  if (fs::exists(folder))
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: fuzz_corpus FOLDER\n");
    return 2;
  }
  bool complete = true;
  for (const Target& target : kTargets) {
    const std::vector<fs::path> files = inputs_of(fs::path(argv[1]) / target.name);
    std::size_t executed = 0;
    for (const fs::path& path : files) {
      std::ifstream file(path, std::ios::binary);
      const std::string input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      fmt::print("{} {}\n", target.name, path.filename().string());
      std::fflush(stdout);
      executed += feed_with_variations(target, input);
    }
    fmt::print("{}: {} inputs, {} executions\n", target.name, files.size(), executed);
    if (executed == 0) {
      fmt::print(stderr, "FAILED: {} has no corpus in {}\n", target.name, argv[1]);
      complete = false;
    }
  }
  return complete ? 0 : 1;
}
