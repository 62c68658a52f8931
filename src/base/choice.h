// Names and lists of names on the command line: finds the known one, or says what was expected.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/options.h"

namespace kiln {

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
TextForm<std::vector<DType>> dtypes_form();
std::vector<std::string_view> dtype_words();  // that it takes

// "128,512" or "128..65536": from the first to the last, doubling; each once.
std::vector<int64_t> read_doubling(std::string_view option, const std::string& text, int64_t most);
TextForm<std::vector<int64_t>> doubling_form(const char* option, int64_t most);

int parse_threads(const std::string& text);

}  // namespace kiln
