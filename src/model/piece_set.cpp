#include "model/piece_set.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest_name.h"

namespace kiln {
namespace {

constexpr PieceSet kNorms{Piece::attention_norm, Piece::mlp_norm};

}  // namespace

std::string name_of(PieceSet pieces) {
  if (pieces.empty()) return "none";
  if (pieces == PieceSet::all()) return "all";
  std::string text;
  const auto add = [&text](std::string_view name) { text += cat(text.empty() ? "" : "+", name); };
  const bool both = pieces.has(Piece::attention_norm) && pieces.has(Piece::mlp_norm);
  if (both) add("norms");
  for (int i = 0; i < kPieces; ++i) {
    const auto p = static_cast<Piece>(i);
    const bool named = both && (p == Piece::attention_norm || p == Piece::mlp_norm);
    if (pieces.has(p) && !named) add(kPieceNames[static_cast<std::size_t>(i)]);
  }
  return text;
}

PieceSet parse_pieces(std::string_view what, std::string_view text) {
  if (text == "none") return {};
  PieceSet pieces;
  for (std::string_view rest = text;;) {
    const std::size_t plus = std::min(rest.find('+'), rest.size());
    const std::string_view name = rest.substr(0, plus);
    const auto* const known = std::find(kPieceNames.begin(), kPieceNames.end(), name);
    if (name == "norms") {
      pieces.add(kNorms);
    } else if (name == "all") {
      pieces.add(PieceSet::all());
    } else if (known != kPieceNames.end()) {
      pieces.add(static_cast<Piece>(known - kPieceNames.begin()));
    } else {
      std::array<std::string_view, kPieces + 3> names = {"none", "all", "norms"};
      std::copy(kPieceNames.begin(), kPieceNames.end(), names.begin() + 3);
      std::string list;
      for (const std::string_view n : names) list += cat(list.empty() ? "" : ", ", n);
      const std::string near = nearest_name(name, names);
      throw Error(cat(what, " names the piece '", name, "'; expected ", list),
                  near.empty() ? "" : cat("did you mean '", near, "'?"), ErrorKind::usage);
    }
    if (plus == rest.size()) return pieces;
    rest.remove_prefix(plus + 1);
  }
}

}  // namespace kiln
