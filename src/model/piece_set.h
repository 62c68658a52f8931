// The pieces of a block whose results backward can make again instead of keeping them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

// In the order a block runs them. What no backward reads needs no piece: the unturned q and k (rope writes in
// their place) and the sum that ends the block.
enum class Piece : uint8_t {
  attention_norm,  // the first norm's output
  qkv,             // q, k and v, turned
  attention,       // attention's output and whatever its variant saves for backward
  out,             // the sum after attention: the output projection runs again
  mlp_norm,        // the second norm's output
  gate_up,         // gate and up
  swiglu,          // the product of the two, and what a composed one saves
};
inline constexpr int kPieces = 7;
inline constexpr std::array<std::string_view, kPieces> kPieceNames = {
    "attention_norm", "qkv", "attention", "out", "mlp_norm", "gate_up", "swiglu"};

class PieceSet {
 public:
  constexpr PieceSet() = default;
  constexpr PieceSet(std::initializer_list<Piece> pieces) {
    for (const Piece p : pieces) add(p);
  }
  static constexpr PieceSet from_bits(unsigned bits) {
    PieceSet s;
    s.bits_ = static_cast<uint8_t>(bits);
    return s;
  }
  static constexpr PieceSet all() { return from_bits((1U << kPieces) - 1); }

  constexpr bool has(Piece p) const { return (bits_ >> static_cast<int>(p) & 1U) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr unsigned bits() const { return bits_; }
  constexpr void add(Piece p) { bits_ = static_cast<uint8_t>(bits_ | 1U << static_cast<int>(p)); }
  constexpr void add(PieceSet s) { bits_ = static_cast<uint8_t>(bits_ | s.bits_); }
  friend constexpr bool operator==(const PieceSet&, const PieceSet&) = default;

 private:
  uint8_t bits_ = 0;
};

// "none", "all", "norms+swiglu": both norms are `norms`.
std::string name_of(PieceSet pieces);
// The same, pieces in any order. Throws Error(usage) that begins with `what`, with the nearest name.
PieceSet parse_pieces(std::string_view what, std::string_view text);

}  // namespace kiln
