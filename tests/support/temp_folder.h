// A folder that is removed when the test ends.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace kiln {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kiln_test_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

  std::string write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return *this / name;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

// What an expression throws as kiln::Error: its text, with the hint after " | "; or "nothing".
#define KILN_ERROR_OF(...)                                                                  \
  [&]() -> std::string {                                                                    \
    try {                                                                                   \
      (void)(__VA_ARGS__);                                                                  \
    } catch (const kiln::Error& e) {                                                        \
      return std::string(e.what()) + (e.hint().empty() ? std::string() : " | " + e.hint()); \
    }                                                                                       \
    return "nothing";                                                                       \
  }()

}  // namespace kiln
