// The snapshot, read back: as JSON, and through the few pickle opcodes that the viewer knows.
#include "perf/memory/memory_snapshot.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "studies/memory/memory_study.h"
#include "support/memory_events.h"

namespace kiln {
namespace {

std::string pickle_of(const MemoryRecord& r) {
  std::string text;
  write_snapshot_pickle(r, [&](std::string_view part) { text += part; });
  return text;
}

Json json_of(const MemoryRecord& r) {
  std::string text;
  write_snapshot_json(r, [&](std::string_view part) { text += part; });
  return Json::parse(text);
}

// What is on the stack: a value, or the mark.
class Unpickler {
 public:
  explicit Unpickler(std::string_view bytes) : bytes_(bytes) {}
  std::size_t longest_batch = 0;

  Json run() {
    EXPECT_EQ(take(2), (std::string_view("\x80\x02", 2)));
    for (;;) {
      const char op = take(1)[0];
      if (op == '.') break;
      step(op);
    }
    EXPECT_EQ(at_, bytes_.size());
    EXPECT_EQ(stack_.size(), 1u);
    return stack_.back();
  }

 private:
  std::string_view take(std::size_t n) {
    if (at_ + n > bytes_.size()) throw std::runtime_error("the pickle ends too early");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  uint64_t little(std::size_t n) {
    uint64_t v = 0;
    const std::string_view b = take(n);
    for (std::size_t i = 0; i < n; ++i)
      v |= static_cast<uint64_t>(static_cast<unsigned char>(b[i])) << (8 * i);
    return v;
  }
  std::vector<Json> to_mark() {
    std::vector<Json> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    longest_batch = std::max(longest_batch, items.size());
    return items;
  }
  void step(char op) {
    switch (op) {
      case '}':
        stack_.push_back(Json::object());
        return;
      case ']':
        stack_.push_back(Json::array());
        return;
      case '(':
        marks_.push_back(stack_.size());
        return;
      case 'u': {
        const std::vector<Json> items = to_mark();
        for (std::size_t i = 0; i + 1 < items.size(); i += 2)
          stack_.back()[items[i].get<std::string>()] = items[i + 1];
        return;
      }
      case 'e':
        for (Json& item : to_mark()) stack_.back().push_back(std::move(item));
        return;
      case 'X':
        stack_.push_back(std::string(take(little(4))));
        return;
      case 'r':
        memo_[little(4)] = stack_.back();
        return;
      case 'j':
        stack_.push_back(memo_.at(little(4)));
        return;
      case 'K':
        stack_.push_back(little(1));
        return;
      case 'J':
        stack_.push_back(static_cast<int32_t>(little(4)));
        return;
      case '\x8a':
        EXPECT_EQ(little(1), 8u);
        stack_.push_back(static_cast<int64_t>(little(8)));
        return;
      case '\x88':
      case '\x89':
        stack_.push_back(op == '\x88');
        return;
      case '\x86': {
        const Json b = stack_.back();
        stack_.pop_back();
        stack_.back() = Json::array({stack_.back(), b});
        return;
      }
      default:
        throw std::runtime_error("an opcode the viewer does not know");
    }
  }
  std::string_view bytes_;
  std::size_t at_ = 0;
  std::vector<Json> stack_;
  std::vector<std::size_t> marks_;
  std::map<uint64_t, Json> memo_;
};

// What the viewer and torch.cuda._memory_viz rely on.
void check_schema(const Json& s) {
  ASSERT_EQ(s.at("device_traces").size(), 1u);
  std::map<int64_t, int64_t> live;  // address, size
  const Json* before = nullptr;
  for (const Json& e : s["device_traces"][0]) {
    const std::string action = e.at("action").text();
    const int64_t address = e.at("addr").get<int64_t>(), size = e.at("size").get<int64_t>();
    EXPECT_LT(address, int64_t{1} << 53);
    EXPECT_TRUE(e.at("frames").is_array());
    EXPECT_TRUE(e.contains("stream") && e.contains("time_us"));
    EXPECT_FALSE(e.contains("category"));
    if (action == "alloc") {
      EXPECT_TRUE(live.emplace(address, size).second);
    }
    if (action == "free_completed") {
      ASSERT_NE(before, nullptr);
      EXPECT_EQ(before->at("action"), "free_requested");
      EXPECT_EQ(before->at("addr"), address);
      EXPECT_EQ(live.erase(address), 1u);
    }
    before = &e;
  }
  for (const Json& segment : s.at("segments")) {
    EXPECT_EQ(segment.at("device"), 0);
    int64_t at = segment.at("address").get<int64_t>(), sum = 0, allocated = 0;
    for (const Json& b : segment.at("blocks")) {
      EXPECT_EQ(b.at("address"), at);
      const int64_t size = b.at("size").get<int64_t>();
      if (b.at("state") == "active_allocated") {
        allocated += size;
        EXPECT_EQ(live.erase(at), 1u);
      } else {
        EXPECT_EQ(b.at("state"), "inactive");
      }
      at += size;
      sum += size;
    }
    EXPECT_EQ(sum, segment.at("total_size"));
    EXPECT_EQ(allocated, segment.at("allocated_size"));
    for (const char* key : {"active_size", "requested_size", "segment_type", "segment_pool_id",
                            "is_expandable", "frames", "stream"})
      EXPECT_TRUE(segment.contains(key)) << key;
  }
  EXPECT_TRUE(live.empty()) << "live blocks must lie inside a segment";
}

TEST(MemorySnapshot, PickleAndJsonSayTheSame) {
  const MemoryRecord r = small_record();
  const Json s = json_of(r);
  EXPECT_EQ(Unpickler(pickle_of(r)).run(), s);
  check_schema(s);
  ASSERT_EQ(s["segments"].size(), 1u);
  ASSERT_EQ(s["segments"][0]["blocks"].size(), 6u);  // weight, gap, activation, gap, scratch, rest
  EXPECT_EQ(s["segments"][0]["allocated_size"], 4096 + 512 + 512);
  const Json& alloc = s["device_traces"][0][2];
  EXPECT_EQ(alloc["frames"][0]["filename"], "src/ops/one/one.cpp");
  EXPECT_EQ(alloc["frames"][0]["line"], 7);
  EXPECT_EQ(alloc["frames"][1]["name"], "first (plain)");
  EXPECT_EQ(alloc["frames"][1]["filename"], "layers.3.attention");
  EXPECT_EQ(alloc["user_metadata"], "forward layers.3.attention first [activation]");
}

TEST(MemorySnapshot, AChangedEventShows) {
  MemoryRecord r = small_record();
  r.events[3].bytes = 1024;
  r.events[3].tag = Tag::grad;
  const Json s = json_of(r);
  check_schema(s);
  EXPECT_EQ(s["device_traces"][0][3]["size"], 1024);
  EXPECT_EQ(s["device_traces"][0][3]["frames"][2]["name"], "tag grad");
}

TEST(MemorySnapshot, OfARealStep) {
  StepSpec spec;
  spec.model = {.vocab = 97, .d_model = 32, .d_ff = 96, .layers = 3, .heads = 2, .kv_heads = 2};
  spec.step.batch = 2;
  spec.step.context = 20;
  for (const std::size_t most : {MemoryTrace::kEvents, std::size_t{60}}) {
    const MemoryRecord r = trace_step(spec, {}, {.steps = 8, .most_events = most}).record;
    const std::string bytes = pickle_of(r);
    Unpickler reader(bytes);
    const Json s = reader.run();
    check_schema(s);
    EXPECT_EQ(s, json_of(r));
    EXPECT_LE(reader.longest_batch, 1000u);  // the viewer puts one batch on its stack
    if (most > 1000) {
      EXPECT_GT(s["device_traces"][0].size(), 1000u) << "no second batch was needed";
    }
  }
}

TEST(MemorySnapshot, AnEmptyRecord) {
  MemoryRecord r;
  r.scopes = {""};
  const Json s = json_of(r);
  check_schema(s);
  EXPECT_EQ(Unpickler(pickle_of(r)).run(), s);
}

}  // namespace
}  // namespace kiln
