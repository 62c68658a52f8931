#include "studies/calc/memory_chapter.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace kiln {
namespace {

void state_lines(Derivation& d) {
  d.section("(a) state of all devices together");
  d.line("P", "2 D F L", "parameters");
  d.line("state", "s P", "weights, gradients and both moments", "B");
  d.line("N_state", "ceil(state / M_a)", "devices that hold it");
  d.line("act", "a (D + F) L", "activations saved for a token: the inputs of both linears", "B");
}

// Half of the activations are sharded as the state is (every second block, say), half stay whole on each
// device.
void sharding_lines(Derivation& d) {
  d.section("(b) sharded over N_f devices");
  d.line("N_bare", "ceil(state / M_b)", "least N_f, before activations");
  d.line("whole", "act T / 2", "activations that stay whole, of a device", "B");
  if (d["whole"] >= d["M_b"]) return;
  d.line("N_f", "ceil((state + act T / 2) / (M_b - whole))", "least N_f with them");
  d.line("of_device", "(state + act T / 2) / N_f + whole", "memory of a device then", "B");
}

void batch_lines(Derivation& d) {
  d.section("(c) smallest batch that is compute-bound, forward");
  d.line("B_overlap", "ceil(X C / (M_X W))", "tokens of all devices, where the two kinds of traffic overlap");
  d.line("b_overlap", "ceil(B_overlap / (X Y))", "of a device");
  d.line("F_y", "F / Y", "tensor parallelism is compute-bound while F / Y");
  d.line("F_least", "ceil(C / (M_Y W))", "is at least");
  d.line("slack", "F / C - Y / (M_Y W)",
         "what a token's compute leaves for FSDP, over 4 D, where the two add up", "s");
  if (d["slack"] <= 0) return;
  d.line("B_apart", "ceil(F X / (M_X W) / slack)", "tokens of all devices, where they add up");
  d.line("b_apart", "ceil(B_apart / (X Y))", "of a device");
}

// What lowers the batch while compute stays the bound, each with the batch it would give here.
void lower_batch_lines(Derivation& d) {
  d.section("(d) ways to a smaller batch");
  d.line("B_y2", "ceil(X / 2 C / (M_X W))", "twice the tensor parallelism, half the FSDP: tokens");
  d.line("F_y2", "F / (2 Y)", "F / Y then: compute-bound while at least F_least");
  d.line("B_fp8", "ceil(X C / (2 M_X W))", "weights gathered in one byte instead of two: tokens");
  d.line("B_pp", "ceil(X / 4 C / (M_X W))",
         "a pipeline of 4 stages in place of 4 of the FSDP devices: tokens");
}

std::vector<std::string> answers_of(const Derivation& d) {
  std::vector<std::string> a;
  a.push_back(fmt::format("(a) {} parameters take {}: {} devices of {}.", with_unit(d["P"], ""),
                          with_unit(d["state"], "B"), formula_number(d["N_state"]),
                          with_unit(d["M_a"], "B")));
  if (d["whole"] >= d["M_b"]) {
    a.push_back(fmt::format(
        "(b) with {} tokens on each device half of the activations alone take {}, more than a device's "
        "{}: no N_f is enough.",
        formula_number(d["T"]), with_unit(d["whole"], "B"), with_unit(d["M_b"], "B")));
  } else {
    a.push_back(fmt::format("(b) {} devices before activations, {} with {} tokens on each.",
                            formula_number(d["N_bare"]), formula_number(d["N_f"]), formula_number(d["T"])));
  }
  const bool tp_holds = d["F_y"] >= d["F_least"];
  std::string c = fmt::format(
      "(c) at least {} tokens ({} a device) where FSDP's and tensor parallelism's traffic overlap",
      formula_number(d["B_overlap"]), formula_number(d["b_overlap"]));
  c += d["slack"] > 0 ? fmt::format(", {} where they add up", formula_number(d["B_apart"]))
                      : ", and no batch is enough where they add up";
  c += fmt::format("; tensor parallelism is {}: F / Y = {} against {}.",
                   tp_holds ? "compute-bound" : "bound by its all-reduce", formula_number(d["F_y"]),
                   formula_number(d["F_least"]));
  a.push_back(c);
  a.push_back(fmt::format(
      "(d) half the FSDP for twice the tensor parallelism: {} tokens{}; one byte a gathered weight: {}; a "
      "pipeline of 4 "
      "stages: {}, less its bubble. Gradient accumulation lowers the batch of a step but gathers for each "
      "micro-step: it "
      "needs as many tokens in each.",
      formula_number(d["B_y2"]), d["F_y2"] >= d["F_least"] ? "" : ", but then its all-reduce is the bound",
      formula_number(d["B_fp8"]), formula_number(d["B_pp"])));
  return a;
}

}  // namespace

Calculation calc_residual_stream(const StreamRequest& q) {
  Calculation c{fmt::format("residual stream of {}", q.size), {}};
  Derivation& d = c.derivation;
  d.given("B", q.batch, "sequences");
  d.given("T", q.context, "tokens of a sequence");
  d.given("D", q.d_model, "model width");
  d.given("b", q.bytes, "bytes of a number");
  d.section("one tensor");
  d.line("n", "B T D", "numbers");
  const double bytes = d.line("bytes", "b n", "memory", "B");
  c.answers.push_back(fmt::format("One tensor of the residual stream takes {:.2f} MiB.", bytes / 0x1p20));
  return c;
}

Calculation calc_xxl(const XxlRequest& q) {
  Calculation c{"two linears a block, far larger than a device", {}};
  Derivation& d = c.derivation;
  d.given("D", q.d_model, "model width");
  d.given("F", q.d_ff, "feed-forward width");
  d.given("L", q.layers, "blocks");
  d.given("s", q.state_bytes, "state of a parameter", "B");
  d.given("a", q.activation_bytes, "a saved number", "B");
  d.given("M_a", q.device_bytes, "memory of a device in (a)", "B");
  d.given("M_b", q.sharded_bytes, "memory of a device in (b)", "B");
  d.given("T", q.tokens, "tokens of a device in (b)");
  d.given("C", q.flops, "matmul rate of a device in (c)", "FLOP/s");
  d.given("W", q.bandwidth, "bandwidth of one axis of the torus", "B/s");
  d.given("M_X", q.axes_fsdp, "axes for FSDP");
  d.given("M_Y", q.axes_tp, "axes for tensor parallelism");
  d.given("X", q.fsdp, "devices by FSDP in (c)");
  d.given("Y", q.tp, "devices tensor-parallel in (c)");
  state_lines(d);
  sharding_lines(d);
  batch_lines(d);
  lower_batch_lines(d);
  c.answers = answers_of(d);
  return c;
}

}  // namespace kiln
