#include "rows/tensorboard.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

// --- its own reader: another CRC, another way through the bytes

uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78U : crc >> 1;
  }
  return ~crc;
}

uint32_t masked(std::string_view bytes) {
  const uint32_t crc = slow_crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

template <class T>
T number_at(std::string_view bytes, std::size_t at) {
  T value{};
  EXPECT_LE(at + sizeof(T), bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct Field {
  uint64_t number;
  uint64_t value;  // varint, or the bits of a fixed one
  std::string_view text;
};

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> fields;
  std::size_t at = 0;
  auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7fU) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    Field f{key >> 3, 0, {}};
    switch (key & 7) {
      case 0:
        f.value = varint();
        break;
      case 1:
        f.value = number_at<uint64_t>(message, at), at += 8;
        break;
      case 5:
        f.value = number_at<uint32_t>(message, at), at += 4;
        break;
      case 2: {
        const auto size = static_cast<std::size_t>(varint());
        f.text = message.substr(at, size);
        EXPECT_EQ(f.text.size(), size);
        at += size;
        break;
      }
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return fields;
    }
    fields.push_back(f);
  }
  return fields;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version, tag;
  std::optional<float> value;
};

Event event_of(std::string_view payload) {
  Event e;
  for (const Field& f : fields_of(payload)) {
    if (f.number == 1) e.wall_time = std::bit_cast<double>(f.value);
    if (f.number == 2) e.step = static_cast<int64_t>(f.value);
    if (f.number == 3) e.version = f.text;
    if (f.number != 5) continue;
    const auto summary = fields_of(f.text);
    EXPECT_EQ(summary.size(), 1u);
    for (const Field& v : fields_of(summary.at(0).text)) {
      if (v.number == 1) e.tag = v.text;
      if (v.number == 2) e.value = std::bit_cast<float>(static_cast<uint32_t>(v.value));
    }
  }
  return e;
}

// Every record up to the end; `rest` is what does not make a whole one.
std::vector<Event> read_events(std::string_view file, std::size_t* rest = nullptr) {
  std::vector<Event> events;
  std::size_t at = 0;
  while (at + 12 <= file.size()) {
    const auto size = static_cast<std::size_t>(number_at<uint64_t>(file, at));
    EXPECT_EQ(number_at<uint32_t>(file, at + 8), masked(file.substr(at, 8)));
    if (at + 16 + size > file.size()) break;
    const std::string_view payload = file.substr(at + 12, size);
    EXPECT_EQ(number_at<uint32_t>(file, at + 12 + size), masked(payload));
    events.push_back(event_of(payload));
    at += 16 + size;
  }
  if (rest != nullptr) {
    *rest = file.size() - at;
  } else {
    EXPECT_EQ(at, file.size());
  }
  return events;
}

std::string name_in(const TempFolder& folder, const EventFile& file) {
  return std::filesystem::path(file.path()).lexically_relative(folder.path()).string();
}

TEST(EventFile, HoldsTheseVeryBytes) {
  // wall time 1.5, step 300, tag "a", value -2: worked out by hand from the format.
  const std::string payload(
      "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"  // 1: 1.5
      "\x10\xac\x02"                          // 2: 300
      "\x2a\x0a"                              // 5: summary
      "\x0a\x08"                              // 1: value
      "\x0a\x01"                              // 1: tag
      "a"
      "\x15\x00\x00\x00\xc0",  // 2: -2.0f
      24);
  EXPECT_EQ(scalar_event(1.5, 300, "a", -2.0f), payload);
  EXPECT_EQ(version_event(1.5), payload.substr(0, 9) + "\x1a\x0d" + "brain.Event:2");

  const std::string record = event_record(payload);
  ASSERT_EQ(record.size(), 8 + 4 + 24 + 4u);
  EXPECT_EQ(record.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 24), payload);
  EXPECT_EQ(number_at<uint32_t>(record, 8), masked(record.substr(0, 8)));
  EXPECT_EQ(number_at<uint32_t>(record, 36), masked(payload));
  // The check value of CRC-32C, so that the reader above is held to something too.
  EXPECT_EQ(slow_crc32c("123456789"), 0xe3069283U);
}

TEST(EventFile, GivesBackWhatWasAdded) {
  const TempFolder folder;
  std::string name;
  {
    EventFile file(folder / "run");
    name = name_in(folder, file);
    file.add(1, "train/loss", 4.25);
    file.add(1, "train/lr", 1e-3);
    file.add(int64_t{1} << 40, "validation/loss", 0.5);
    file.add(-1, std::string(300, 'x'), 7);
  }
  EXPECT_EQ(name.find("run/events.out.tfevents."), 0u) << name;
  const std::string content = folder.read(name);
  const std::vector<Event> events = read_events(content);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_FALSE(events[0].value);
  EXPECT_EQ(events[1].tag, "train/loss");
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].value, 4.25f);
  EXPECT_GE(events[1].wall_time, events[0].wall_time);
  EXPECT_EQ(events[2].value, 1e-3f);
  EXPECT_EQ(events[3].step, int64_t{1} << 40);
  EXPECT_EQ(events[4].step, -1);
  EXPECT_EQ(events[4].tag.size(), 300u);
}

TEST(EventFile, KeepsValuesThatAreNotFinite) {
  const TempFolder folder;
  std::string name;
  {
    EventFile file(folder.path());
    name = name_in(folder, file);
    for (const double v : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300, -0.0}) file.add(3, "v", v);
  }
  const std::vector<Event> events = read_events(folder.read(name));
  ASSERT_EQ(events.size(), 6u);
  EXPECT_TRUE(std::isnan(*events[1].value));
  EXPECT_EQ(*events[2].value, HUGE_VALF);
  EXPECT_EQ(*events[3].value, -HUGE_VALF);
  EXPECT_EQ(*events[4].value, HUGE_VALF);
  EXPECT_TRUE(std::signbit(*events[5].value));
}

TEST(EventFile, WritesManyRecordsOnItsOwnAndTheRestWhenAsked) {
  const TempFolder folder;
  EventFile file(folder.path());
  const std::string name = name_in(folder, file);
  for (int i = 0; i < 5000; ++i) file.add(i, "train/grad_norm", i * 0.5);
  std::size_t rest = 1;
  const std::size_t before = read_events(folder.read(name), &rest).size();
  EXPECT_EQ(rest, 0u) << "what is on the disk ends with a whole record";
  EXPECT_GT(before, 1000u);
  EXPECT_LT(before, 5001u);
  file.flush();
  const std::vector<Event> events = read_events(folder.read(name));
  ASSERT_EQ(events.size(), 5001u);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(events[i + 1].step, i);
    ASSERT_EQ(*events[i + 1].value, static_cast<float>(i) * 0.5f);
  }
}

TEST(EventFile, ARunResumedWithinTheSecondHasAFileOfItsOwn) {
  const TempFolder folder;
  const EventFile a(folder.path()), b(folder.path()), c(folder.path());
  EXPECT_NE(a.path(), b.path());
  EXPECT_NE(b.path(), c.path());
}

TEST(EventFile, SaysWhereItCannotWrite) {
  const TempFolder folder;
  folder.write("taken", "a file");
  EXPECT_NE(KILN_ERROR_OF(EventFile(folder / "taken/run")).find("cannot create"), std::string::npos);
}

// A full disk, played by the limit on a file's size: the write that crosses it is cut short.
TEST(EventFile, ADiskThatIsFullLeavesWholeRecords) {
  const TempFolder folder;
  EventFile file(folder.path());
  const std::string name = name_in(folder, file);
  file.add(1, "v", 1);
  file.flush();
  const auto size = static_cast<rlim_t>(folder.read(name).size());

  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{size + 10, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  file.add(2, "v", 2);
  const std::string said = KILN_ERROR_OF(file.flush());
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);

  EXPECT_NE(said.find("cannot write to"), std::string::npos) << said;
  EXPECT_EQ(read_events(folder.read(name)).size(), 2u);
  file.add(3, "v", 3);
  file.flush();  // there is space again: nothing was lost
  const std::vector<Event> events = read_events(folder.read(name));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2].step, 2);
  EXPECT_EQ(events[3].step, 3);
}

}  // namespace
}  // namespace kiln
