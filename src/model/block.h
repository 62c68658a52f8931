// One pre-norm transformer block: x += attention(norm(x)); x += mlp(norm(x)). Each sum and the norm that
// follows it are one op, also across the border between blocks.
#pragma once

#include "autograd/param_store.h"
#include "autograd/remake.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/partition.h"

namespace kiln {

// What passes from block to block: sum + last. The addition is left to the norm that comes next, which reads
// both anyway and so saves a pass over each.
struct Residual {
  Tensor sum;
  Tensor last = {};  // undefined where nothing is left to add

  Tensor whole(RankContext& ctx) const;
};

struct NormedResidual {
  Tensor sum, normed;
  std::string_view variant = {};  // of the norm, where it is an op and not its parts
};
// Compiled, where the model asks for it: sum and norm are one region.
NormedResidual norm_of(RankContext& ctx, const Residual& x, Param& weight, const ModelConfig& config);
// Whether the ops between this model's matmuls run as compiled regions here.
bool compiles(RankContext& ctx, const ModelConfig& config);

class Block {
 public:
  // Adds its parameters, in the order they are used, under Hugging Face's names: of each, the part that is
  // here. `partition` must outlive the block.
  Block(ParamStore& params, const ModelConfig& config, int64_t index,
        const Partition& partition = whole_model());

  // x [B, T, C] -> [B, T, C]. With a cache the T tokens follow those it holds, and its layer gets their keys
  // and values.
  Residual forward(RankContext& ctx, const Residual& x, KvCache* cache = nullptr) const;

 private:
  // Which pieces backward makes again, while one forward runs.
  struct Again {
    Rematerializer tensors;
    PieceSet pieces;
    Later attended = {};  // what the output projection reads
    bool has(Piece p) const { return tensors.active() && pieces.has(p); }
    template <class Run>
    Tensors run(Piece p, std::initializer_list<Tensor> inputs, const Run& run) {
      const std::span<const Tensor> in(inputs.begin(), inputs.size());
      return has(p) ? tensors.piece(in, run) : run(in);
    }
  };

  // Each half without its norm and its residual connection: what stands between them in forward(). Where
  // weights are cast at use, so is the norm's output, and the result is cast back.
  Tensor attend(RankContext& ctx, const NormedResidual& x, Again& again, KvCache* cache = nullptr) const;
  Tensor mlp(RankContext& ctx, const NormedResidual& x, Again& again) const;
  Tensor enter(RankContext& ctx, const Tensor& normed, const Param& weight) const;
  Tensor leave(RankContext& ctx, const Tensor& x, Param& weight, DType stream) const;
  void again_norm(RankContext& ctx, const NormedResidual& x, const Tensor& entered, Param& norm,
                  const Param& weight, Again& again) const;
  void again_out(RankContext& ctx, const Tensor& before, const Tensor& sum, Again& again) const;
  Tensors make_qkv(RankContext& ctx, const Tensor& normed, int64_t offset) const;
  Tensors make_gate_up(RankContext& ctx, const Tensor& normed) const;
  Tensor activate(RankContext& ctx, const Tensor& gate, const Tensor& up) const;
  Tensor forward_in_halves(RankContext& ctx, const Tensor& x) const;

  ModelConfig config_;
  const Partition& partition_;
  int64_t index_;
  std::string scope_;                  // "layers.0"
  int64_t heads_, kv_heads_, hidden_;  // H, Hkv and F below: those that are here
  // Packed weights: q, k and v are row views of one buffer, so are gate and up.
  Param* attention_norm_;  // [C]
  Param* qkv_;             // [(H + 2 Hkv) D, C]
  Param* out_;             // [C, H D]
  Param* mlp_norm_;        // [C]
  Param* gate_up_;         // [2 F, C]
  Param* down_;            // [C, F]
};

}  // namespace kiln
