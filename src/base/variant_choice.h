// Which variant each op should use in a run: what `--variant attention=naive,rms_norm=fused` means.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln {

class VariantChoice {
 public:
  void set(std::string_view op, std::string_view variant) {
    for (auto& [o, v] : wanted_) {
      if (o == op) {
        v = variant;
        return;
      }
    }
    wanted_.emplace_back(op, variant);
  }

  // Empty when the op's own order decides.
  std::string_view find(std::string_view op) const {
    for (const auto& [o, v] : wanted_) {
      if (o == op) return v;
    }
    return {};
  }

  const std::vector<std::pair<std::string, std::string>>& all() const { return wanted_; }

 private:
  std::vector<std::pair<std::string, std::string>> wanted_;  // a handful: a scan beats a hash
};

}  // namespace kiln
