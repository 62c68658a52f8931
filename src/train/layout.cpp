#include "train/layout.h"

#include "base/error.h"

namespace kiln {

std::string Layout::name() const {
  if (devices() == 1) return "one device";
  std::string text;
  if (stages > 1) text = cat("pp ", stages);
  if (data > 1) text += cat(text.empty() ? "" : " x ", strategy, " ", data);
  if (tensor > 1) text += cat(text.empty() ? "" : " x ", "tp ", tensor);
  return text;
}

std::string Layout::strategy_name() const { return strategy == "ddp" ? cat("ddp:", form) : strategy; }

std::string_view Layout::zero_stage() const {
  if (strategy == "zero1") return "1";
  if (strategy == "zero2") return "2";
  return strategy == "fsdp" ? "3" : "0";
}

}  // namespace kiln
