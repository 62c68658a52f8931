// Python's pickle format, protocol 2, as far as dictionaries, lists, strings and whole numbers go. Repeated
// strings are written once; lists in batches of 1000, because the viewer of snapshots puts one batch on its
// stack.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kiln {

class PickleWriter {
 public:
  explicit PickleWriter(std::function<void(std::string_view)> sink);

  void begin_dict();
  void end_dict();
  void key(std::string_view name) { text(name); }
  void begin_list();
  void end_list();
  void text(std::string_view value);
  void number(int64_t value);
  void flag(bool value);
  void pair(int64_t a, int64_t b);  // a tuple
  // Gives what was written last (a list, say) a number, under which it can be had again.
  uint32_t remember();
  void again(uint32_t number);
  void finish();  // after the one value

 private:
  void item();  // one more in the innermost list or dictionary
  void put(std::string_view bytes);
  void put_u32(char code, uint32_t value);

  struct Level {
    bool list;
    int items;
  };
  std::function<void(std::string_view)> sink_;
  std::string buffer_;
  std::vector<Level> levels_;
  std::unordered_map<std::string, uint32_t> texts_;
  uint32_t next_memo_ = 0;
};

}  // namespace kiln
