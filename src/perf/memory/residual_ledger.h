// What a forward pass keeps for backward, tensor by tensor: read from the tape, where every op has declared
// by name what it saves. Parameters are handles there and no part of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autograd/op_observer.h"
#include "base/shape.h"

namespace kiln {

struct KeptTensor {
  std::string op, variant, scope;  // whose backward reads it
  std::string name;                // as that op calls it
  Shape shape;
  DType dtype = DType::f32;
  std::size_t bytes = 0;
  std::size_t new_bytes = 0;  // of them, those that no earlier entry keeps already
  std::string producer;       // "rope q": who wrote it, and as what
  bool input = false;         // it was there before the first op ran
};

// What the backward of one op reads.
struct BackwardLoads {
  std::string op, variant, scope;
  std::size_t saved = 0, gradients = 0, params = 0;
  std::size_t total() const { return saved + gradients + params; }
};

struct ResidualLedger {
  std::vector<KeptTensor> saved;     // in the order forward saved them
  std::vector<BackwardLoads> loads;  // in the order backward runs

  std::size_t bytes() const;        // kept, each byte once
  std::size_t input_bytes() const;  // of them, those of inputs
  std::size_t loaded() const;
};

// Bytes kept for one op, the largest first.
struct ResidualShare {
  std::string op;
  std::size_t bytes = 0;
  double share = 0;
};
std::vector<ResidualShare> largest_shares(const ResidualLedger& ledger, std::size_t count);

// Watches forward passes, to know afterwards who wrote what the tape keeps.
class ResidualWatch final : public OpObserver {
 public:
  explicit ResidualWatch(RankContext& ctx);  // watches while it lives
  ~ResidualWatch() override;
  ResidualWatch(const ResidualWatch&) = delete;
  ResidualWatch& operator=(const ResidualWatch&) = delete;

  void name_input(const std::string& name, const Tensor& t);
  void on_op_end(RankContext& ctx, const OpEvent& event) override;

  // Of the nodes now on the tape, those under `scope` ("layers.1"; empty: all). What an op outside it keeps
  // too counts as its, if it came first.
  ResidualLedger take(std::string_view scope = {}) const;

 private:
  struct Writer {
    std::string name;
    bool input;
  };
  struct Call {
    std::string op;
    std::size_t output_bytes;
  };
  void wrote(const Tensor& t, Writer writer);
  Writer writer_of(const Tensor& t, const std::string& own) const;

  RankContext& ctx_;
  std::map<const std::byte*, Writer> writers_;  // by first byte
  std::map<const std::byte*, Writer>
      whole_;                // by first byte of the buffer, of the op that wrote it from there
  std::vector<Call> calls_;  // forward, in order
};

}  // namespace kiln
