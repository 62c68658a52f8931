#include "rows/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/write_at.h"

namespace kiln {
namespace {

constexpr std::size_t kFlushBytes = 64 * 1024;
constexpr std::size_t kMostPendingBytes = std::size_t{4} << 20;
constexpr int kMostFilesASecond = 1000;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// As part of a file's name.
std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  std::string text = name.data();
  for (char& c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '.' && c != '-') c = '_';
  }
  return text;
}

// --- numbers and protobuf fields, little-endian

template <class T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// A field's number and how its value is laid out.
enum class Wire : uint8_t { varint = 0, eight_bytes = 1, text = 2, four_bytes = 5 };
void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

void put_text(std::string& out, int field, std::string_view text) {
  put_key(out, field, Wire::text);
  put_varint(out, text.size());
  out += text;
}

void put_double(std::string& out, int field, double value) {
  put_key(out, field, Wire::eight_bytes);
  put(out, std::bit_cast<uint64_t>(value));
}

// A checksum of data that holds checksums would be weak; the format therefore turns and shifts each.
uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8U;
}

}  // namespace

std::string event_record(std::string_view payload) {
  std::string record;
  put(record, static_cast<uint64_t>(payload.size()));
  put(record, masked_crc(record));
  record += payload;
  put(record, masked_crc(payload));
  return record;
}

std::string version_event(double wall_time) {
  std::string event;
  put_double(event, 1, wall_time);
  put_text(event, 3, "brain.Event:2");
  return event;
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string scalar;
  put_text(scalar, 1, tag);
  put_key(scalar, 2, Wire::four_bytes);
  put(scalar, std::bit_cast<uint32_t>(value));
  std::string summary;
  put_text(summary, 1, scalar);
  std::string event;
  put_double(event, 1, wall_time);
  put_key(event, 2, Wire::varint);
  put_varint(event, static_cast<uint64_t>(step));
  put_text(event, 5, summary);
  return event;
}

EventFile::EventFile(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);  // what went wrong, open() will say
  const double wall_time = now();
  const std::string stem = (std::filesystem::path(folder) /
                            cat("events.out.tfevents.", static_cast<int64_t>(wall_time), ".", host_name()))
                               .string();
  path_ = stem;
  for (int more = 1; file_ < 0; ++more) {
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (file_ >= 0) break;
    if (errno != EEXIST || more == kMostFilesASecond)
      throw Error(cat("cannot create ", path_, ": ", std::strerror(errno)), "name another folder with --out");
    path_ = cat(stem, ".", more);  // a run that was resumed within the second
  }
  pending_ = event_record(version_event(wall_time));
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a destructor cannot report
  }
  ::close(file_);
}

void EventFile::add(int64_t step, std::string_view tag, double value) {
  pending_ += event_record(scalar_event(now(), step, tag, static_cast<float>(value)));
  if (pending_.size() >= kFlushBytes) flush();
}

void EventFile::flush() {
  std::string_view left = pending_;
  if (!append_to(file_, left)) {
    const int why = errno;
    const bool cut = left.size() == pending_.size() || ::ftruncate(file_, static_cast<off_t>(whole_)) == 0;
    if (pending_.size() > kMostPendingBytes)
      pending_.clear();  // a disk that stays full must not fill memory too
    throw Error(cat("cannot write to ", path_, ": ", std::strerror(why),
                    cut ? "" : "; its last record is torn and TensorBoard will read no further"),
                "is the disk full?");
  }
  whole_ += pending_.size();
  pending_.clear();
}

}  // namespace kiln
