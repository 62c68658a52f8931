#include "model/size_list.h"

#include <algorithm>
#include <cctype>

#include "base/choice.h"
#include "base/parse_number.h"

namespace kiln {

std::vector<ModelSize> read_sizes(const std::string& names, const std::string& vocab) {
  const auto lower = [](std::string word) {
    std::transform(word.begin(), word.end(), word.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return word;
  };
  std::vector<ModelSize> sizes;
  for (const std::string& name : read_list<std::string>(names, lower)) {
    ModelSize size = find_model_size(name);
    read_number<int64_t>("--vocab", vocab, 1, 1 << 24, size.vocab);
    (void)config_of(size);  // throws for one that cannot be built
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace kiln
