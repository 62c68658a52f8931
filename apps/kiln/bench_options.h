// What the studies of `kiln bench` read from their command lines alike.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "model/size_registry.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

// "a,b,c" to its items; "" is one empty item.
std::vector<std::string> split_at_commas(std::string_view text);

// One of `names`, or Error(usage) with the nearest.
std::size_t index_of(std::string_view option, std::string_view seen,
                     const std::vector<std::string_view>& names);

// Each item of a list once, in the order given.
template <class T, class Read>
std::vector<T> read_list(const std::string& text, Read read) {
  std::vector<T> items;
  for (const std::string& word : split_at_commas(text)) {
    const T item = read(word);
    if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(item);
  }
  return items;
}

// "fp32,bf16", each once; of --dtype.
std::vector<DType> parse_dtypes(std::string_view text);

// "128,512" or "128..65536": from the first to the last, doubling; each once.
std::vector<int64_t> read_doubling(std::string_view option, const std::string& text, int64_t most);

// Models by name, with another vocabulary where one is given.
std::vector<ModelSize> read_sizes(const std::string& names, const std::string& vocab);

int parse_threads(const std::string& text);

// Of --format table, md, csv, latex or json; --json is the last, and the two exclude each other.
PageFormat read_format(const std::string& format, bool json);
inline constexpr const char* kFormatHelp = "table, md, csv, latex or json (default table)";

// Before anything is measured: can rows be stored in `out`? A line that was cut off there is removed, and
// that is said on stderr.
void prepare_results(const std::string& out);

// One line of stderr that is written over, where there is a terminal to see it.
class BenchProgress {
 public:
  void operator()(const std::string& text) const;
  BenchProgress();
  ~BenchProgress();
  BenchProgress(const BenchProgress&) = delete;
  BenchProgress& operator=(const BenchProgress&) = delete;

 private:
  bool terminal_;
};

}  // namespace kiln::cli
