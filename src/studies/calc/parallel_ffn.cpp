#include "studies/calc/parallel_ffn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace kiln {
namespace {

Derivation givens(const FfnRequest& q) {
  Derivation d;
  d.given("B", q.tokens, "tokens of a step, all devices");
  d.given("D", q.d_model, "model width");
  d.given("F", q.d_ff, "feed-forward width");
  d.given("N", q.devices, "devices");
  d.given("C", q.flops, "matmul rate of a device", "FLOP/s");
  d.given("W", q.bandwidth, "bandwidth of a device to the others", "B/s");
  return d;
}

std::string title_of(const char* what, const FfnRequest& q) {
  return fmt::format("{} of a SwiGLU block on {}", what,
                     q.hardware.empty() ? "devices as given" : q.hardware);
}

// Communication beside compute: hidden, or so much of it exposed.
std::string overlap_answer(const char* pass, double compute, double comm) {
  if (comm <= compute)
    return fmt::format("{}: compute takes {}, communication {}: it can be hidden.", pass,
                       with_unit(compute, "s"), with_unit(comm, "s"));
  return fmt::format(
      "{}: communication takes {}, compute {}: at least {} of it is exposed ({:.0f} % of the pass).", pass,
      with_unit(comm, "s"), with_unit(compute, "s"), with_unit(comm - compute, "s"),
      100 * (comm - compute) / comm);
}

std::string bound_answer(const char* pass, double most, double devices) {
  return fmt::format("{}: compute-bound up to {} devices; {} {}.", pass, formula_number(std::floor(most)),
                     formula_number(devices), devices <= most ? "are within" : "are more than that");
}

void pass_lines(Derivation& d, const char* section, const char* flops, const char* bytes,
                const char* comm_quantity, const char* most) {
  const std::string tag = std::string(section) == "forward" ? "f" : "b";
  d.section(section);
  d.line("flops_" + tag, flops, "FLOPs of a device", "FLOP");
  d.line("t_" + tag, "flops_" + tag + " / C", "time of compute", "s");
  d.line("sent_" + tag, bytes, comm_quantity, "B");
  d.line("comm_" + tag, "sent_" + tag + " / W", "time of communication", "s");
  d.line("most_" + tag, most, "most devices for compute to take as long");
}

void pass_answers(Calculation& c, const char* section) {
  const std::string tag = std::string(section) == "forward" ? "f" : "b";
  const Derivation& d = c.derivation;
  c.answers.push_back(overlap_answer(section, d["t_" + tag], d["comm_" + tag]));
  c.answers.push_back(bound_answer(section, d["most_" + tag], d["N"]));
}

}  // namespace

Calculation calc_dp(const FfnRequest& q) {
  Calculation c{title_of("data parallelism", q), givens(q)};
  c.derivation.section("forward");
  c.derivation.line("flops_f", "6 B D F / N", "FLOPs of a device", "FLOP");
  c.derivation.line("t_f", "flops_f / C", "time of compute, with nothing to send", "s");
  // Gradients are 3 D F numbers of two bytes; a ring all-reduce sends 2 (N-1)/N of them.
  pass_lines(c.derivation, "backward", "12 B D F / N", "12 D F (N - 1) / N",
             "sent by a device: all-reduce of the gradients", "1 + B W / C");
  pass_answers(c, "backward");
  return c;
}

Calculation calc_fsdp(const FfnRequest& q) {
  Calculation c{title_of("FSDP", q), givens(q)};
  pass_lines(c.derivation, "forward", "6 B D F / N", "6 D F (N - 1) / N",
             "received by a device: all-gather of the weights", "1 + B W / C");
  pass_lines(c.derivation, "backward", "12 B D F / N", "12 D F (N - 1) / N",
             "all-gather of the weights, reduce-scatter of the gradients", "1 + B W / C");
  pass_answers(c, "forward");
  pass_answers(c, "backward");
  return c;
}

Calculation calc_tp(const FfnRequest& q) {
  if (std::fmod(q.d_ff, q.devices) != 0)
    throw Error(
        fmt::format("--d-ff is {}, which {} devices cannot share evenly", formula_number(q.d_ff), q.devices),
        "choose --devices that divide it", ErrorKind::usage);
  Calculation c{title_of("tensor parallelism", q), givens(q)};
  pass_lines(c.derivation, "forward", "6 B D F / N", "4 B D (N - 1) / N",
             "sent by a device: all-reduce of the block's output", "1 + 3 F W / (2 C)");
  pass_lines(c.derivation, "backward", "12 B D F / N", "4 B D (N - 1) / N",
             "sent by a device: all-reduce of the input's gradient", "1 + 3 F W / C");
  pass_answers(c, "forward");
  pass_answers(c, "backward");
  return c;
}

namespace {

// The split of N with the least time of communication, each a divisor of N, and F even over the
// tensor-parallel part.
int best_fsdp(const FfnRequest& q) {
  int best = 0;
  double least = INFINITY;
  for (int fsdp = 1; fsdp <= q.devices; ++fsdp) {
    const int tp = q.devices / fsdp;
    if (fsdp * tp != q.devices || std::fmod(q.d_ff, tp) != 0) continue;
    const double gather = 6 * q.d_model * q.d_ff / tp * (fsdp - 1) / fsdp;
    const double reduce = 4 * q.tokens / fsdp * q.d_model * (tp - 1) / tp;
    if (gather + reduce >= least) continue;
    least = gather + reduce;
    best = fsdp;
  }
  return best;
}

void check_split(const FfnRequest& q) {
  if ((q.fsdp == 0) != (q.tp == 0))
    throw Error(
        fmt::format("--{} is given without --{}", q.fsdp > 0 ? "fsdp" : "tp", q.fsdp > 0 ? "tp" : "fsdp"),
        "give both, or neither: then the best split of --devices is taken", ErrorKind::usage);
  if (q.tp > 0 && std::fmod(q.d_ff, q.tp) != 0)
    throw Error(fmt::format("--d-ff is {}, which --tp {} cannot share evenly", formula_number(q.d_ff), q.tp),
                "choose --tp that divides it", ErrorKind::usage);
}

void split_bounds(Derivation& d) {
  d.section("largest number of devices");
  d.line("x_overlap", "1 + B W / C", "overlapped: N_f up to");
  d.line("y_overlap", "1 + 3 F W / (2 C)", "overlapped: N_t up to");
  d.line("n_overlap", "3 B F W^2 / (2 C^2)", "overlapped: N up to about their product");
  d.line("x_apart", "B W / (2 C)", "one after the other: best N_f");
  d.line("y_apart", "3 F W / (4 C)", "one after the other: best N_t");
  d.line("n_apart", "3 B F W^2 / (8 C^2)", "one after the other: N up to about");
}

}  // namespace

Calculation calc_2d(const FfnRequest& asked) {
  check_split(asked);
  FfnRequest q = asked;
  if (q.fsdp == 0) {
    q.fsdp = best_fsdp(q);
    q.tp = q.devices / q.fsdp;
  }
  q.devices = q.fsdp * q.tp;
  Calculation c{title_of("FSDP and tensor parallelism", q), givens(q)};
  Derivation& d = c.derivation;
  d.given("N_f", q.fsdp, asked.fsdp == 0 ? "of them by FSDP: the best split" : "of them by FSDP");
  d.given("N_t", q.tp, "of them tensor-parallel");
  d.section("forward");
  d.line("flops", "6 B D F / (N_f N_t)", "FLOPs of a device", "FLOP");
  d.line("t", "flops / C", "time of compute", "s");
  d.line("gather", "6 D F / N_t * (N_f - 1) / N_f", "all-gather of the weights, of a device", "B");
  d.line("reduce", "4 B D / N_f * (N_t - 1) / N_t", "all-reduce of the output, of a device", "B");
  d.line("comm_overlap", "max(gather, reduce) / W", "communication, if the two overlap", "s");
  d.line("comm_apart", "(gather + reduce) / W", "communication, one after the other", "s");
  split_bounds(d);
  c.answers.push_back(
      overlap_answer("forward, with the two collectives overlapped", d["t"], d["comm_overlap"]));
  c.answers.push_back(overlap_answer("forward, with one after the other", d["t"], d["comm_apart"]));
  c.answers.push_back(bound_answer("overlapped", d["n_overlap"], q.devices));
  c.answers.push_back(bound_answer("one after the other", d["n_apart"], q.devices));
  return c;
}

const std::vector<std::string>& tp_forward_equations() {
  static const std::vector<std::string> kEquations = {
      "G_n = X W1_n",
      "U_n = X W2_n",
      "H_n = silu(G_n) o U_n",
      "Y = sum_n H_n W3_n",
  };
  return kEquations;
}

const std::vector<std::string>& tp_backward_equations() {
  static const std::vector<std::string> kEquations = {
      "dW3_n = H_n^T dY",
      "dH_n = dY W3_n^T",
      "dU_n = dH_n o silu(G_n)",
      "dG_n = dH_n o U_n o dsilu(G_n)",
      "dW1_n = X^T dG_n",
      "dW2_n = X^T dU_n",
      "dX = sum_n (dG_n W1_n^T + dU_n W2_n^T)",
  };
  return kEquations;
}

}  // namespace kiln
