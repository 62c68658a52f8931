#include "report/result_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/error.h"

namespace kiln {

void append_results(const std::string& folder, const std::vector<std::string>& lines) {
  const std::string path = (std::filesystem::path(folder) / "results.jsonl").string();
  auto give_up = [&](const std::string& why) {
    throw Error(cat("cannot write ", path, ": ", why), "name another folder with --out");
  };
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) give_up(error.message());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) give_up(std::strerror(errno));
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(file, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int why = errno;
      ::close(file);
      give_up(std::strerror(why));
    }
    done += static_cast<std::size_t>(n);
  }
  if (::close(file) != 0) give_up(std::strerror(errno));
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

}  // namespace kiln
