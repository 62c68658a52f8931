#include "ops/embedding/embedding.h"

#include "op_cases/op_case.h"

namespace kiln {

std::vector<OpCase> embedding_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& tokens, int64_t vocab, int64_t cols) {
    CaseInput ids{"tokens", K::ids, tokens};
    ids.ids_below = vocab;
    cases.push_back({"embedding",
                     std::move(name),
                     {ids, {"weight", K::param, {vocab, cols}}},
                     [](RankContext& ctx, std::span<const CaseArgument> in) {
                       return embedding(ctx, in[0].tensor, *in[1].param);
                     }});
  };
  one("1_of_1", {1}, 1, 1);
  one("many_repeats", {2, 40}, 5, 33);
  one("some_rows_unused", {3, 7}, 101, 65);
  one("no_tokens", {0}, 3, 4);
  return cases;
}

}  // namespace kiln
