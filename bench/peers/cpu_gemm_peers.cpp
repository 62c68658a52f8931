// kiln's GEMMs compared with oneDNN's and OpenBLAS's, in one run on one machine.
//
//   make bench-peers                              two threads, squares and the model's shapes, fp32 and bf16
//   build/bench_cpu_gemm_peers --quick --threads 1
//
// The libraries alternate within each round: a few calls each, after a pause in which the others' threads
// stop spinning. Medians over all rounds. oneDNN's bf16 is tried in a child process first, because some
// versions crash with an illegal instruction where a virtual machine hides the tile palette; that is a row,
// not a crash. All multiply the same matrices, and their results are compared first: a row in which one is
// wrong says so, has no figures, and makes the program end with status 1.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "agreement.h"
#include "autograd/tape.h"
#include "device/cpu/isa.h"
#include "ops/cases/bench_case.h"
#include "ops/cases/run_case.h"
#include "peers.h"
#include "perf/timing/ceilings.h"
#include "perf/timing/timing.h"

namespace kiln {
namespace {

struct Options {
  int threads = 2;
  bool quick = false;
  bool markdown = false;
};

struct Size {
  int64_t rows, in, out;
  std::string str() const { return fmt::format("{}x{}x{}", rows, in, out); }
  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  }
};

std::vector<Size> sizes(bool quick) {
  std::vector<Size> list = {{512, 512, 512}, {1024, 1024, 1024}};
  if (quick) return list;
  list.insert(list.end(), {{2048, 2048, 2048},
                           {4096, 4096, 4096},
                           // size small, 2048 tokens: qkv, out, gate and up, down, head
                           {2048, 768, 2304},
                           {2048, 768, 768},
                           {2048, 768, 6144},
                           {2048, 3072, 768},
                           {2048, 768, 10000}});
  return list;
}

// One library on one form: how to run it, and the seconds it took.
struct Entrant {
  std::string name;
  std::function<void()> call, prepare = {};
  std::string absent = {};  // why it does not take part
  std::vector<double> seconds = {};
};

double timed(const Entrant& e) {
  using Clock = std::chrono::steady_clock;
  if (e.prepare) e.prepare();
  const auto begin = Clock::now();
  e.call();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void race(std::vector<Entrant>& entrants, double flops) {
  const int rounds = flops > 5e10 ? 3 : 7, calls = flops > 5e9 ? 1 : 4;
  for (int round = 0; round < rounds; ++round) {
    for (Entrant& e : entrants) {
      if (!e.absent.empty()) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(40));  // the others' workers go to sleep
      (void)timed(e);                                              // ours wake up
      for (int i = 0; i < calls; ++i) e.seconds.push_back(timed(e));
    }
  }
}

// The three GEMMs of a linear layer as a library sees them.
PeerProblem problem_of(const Size& s, const BenchForm& form, DType dtype, const void* x, const void* w,
                       const void* dy, void* out) {
  const DType narrow = dtype;
  if (form.pass == Pass::forward) return {s.rows, s.out, s.in, false, true, dtype, narrow, x, w, out};
  if (std::strcmp(form.name, "dgrad") == 0)
    return {s.rows, s.in, s.out, false, false, dtype, narrow, dy, w, out};
  return {s.out, s.in, s.rows, true, false, dtype, DType::f32, dy, x, out};
}

// kiln's own: through the op, so the tape and the allocator are in the time as they are in a run.
class KilnLinear {
 public:
  KilnLinear(RankContext& ctx, const OpCase& c, const CaseData& data, const BenchForm& form, DType dtype)
      : ctx_(ctx), case_(c), setup_(ctx, c, data, dtype, form.wants), backward_(form.pass == Pass::backward) {
    begin();
    forward();
    const OpCase unit{c.op, "dy", {{"dy", CaseInput::Kind::activation, {y_.numel()}}}, {}};
    dy_ = setup_.upload_gradients(y_, draw_repeating(unit, dtype, 2).inputs[0])[0];
  }
  ~KilnLinear() { begin(); }
  KilnLinear(const KilnLinear&) = delete;
  KilnLinear& operator=(const KilnLinear&) = delete;

  void prepare() {
    begin();
    if (backward_) forward();
  }
  void call() { backward_ ? ctx_.tape().backward(y_, dy_) : forward(); }

  const Tensor& x() const { return setup_.arguments()[0].tensor; }
  const Tensor& weight() const { return setup_.arguments()[1].param->value; }
  const Tensor& dy() const { return dy_; }
  Tensor result() {  // of one call
    prepare();
    call();
    if (!backward_) return y_;
    const Param& w = *setup_.arguments()[1].param;
    return w.trainable ? w.grad : ctx_.tape().grad(x());
  }

 private:
  void begin() {
    y_ = {};
    setup_.begin_step();
  }
  void forward() { y_ = case_.call(ctx_, setup_.arguments()).tensors[0]; }

  RankContext& ctx_;
  const OpCase& case_;
  CaseSetup setup_;
  bool backward_;
  Tensor y_, dy_;
};

struct VariantName : OpObserver {
  std::string name;
  void on_op_begin(RankContext&, const OpEvent& e) override { name = e.variant; }
};

std::string rate(const Entrant& e, double flops) {
  if (!e.absent.empty()) return "-";
  return fmt::format("{:.0f}", flops / summarize(e.seconds).p50 / 1e9);
}

std::string against(const Entrant& ours, const Entrant& theirs) {
  if (!ours.absent.empty() || !theirs.absent.empty()) return "-";
  return fmt::format("{:.2f}", summarize(theirs.seconds).p50 / summarize(ours.seconds).p50);
}

// False when a library's result was wrong: that row has no figures.
bool run_dtype(RankContext& ctx, const Options& o, DType dtype, const std::string& onednn_died) {
  bool all_right = true;
  const OpBench bench = linear_bench();
  const char* line = o.markdown ? "| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n"
                                : "{:<16} {:<8} {:<5} {:>8} {:<9} {:>8} {:>9} {:>12} {:>14}\n";
  auto print = [&](auto&&... cells) {
    std::fputs(fmt::format(fmt::runtime(line), cells...).c_str(), stdout);
    std::fflush(stdout);
  };
  print("rows x in x out", "form", "dtype", "kiln", "variant", "oneDNN", "OpenBLAS", "kiln/oneDNN",
        "kiln/OpenBLAS");
  if (o.markdown) std::puts("|---|---|---|---:|---|---:|---:|---:|---:|");
  for (const Size& s : sizes(o.quick)) {
    const BenchShape shape{{"rows", s.rows}, {"in", s.in}, {"out", s.out}};
    const OpCase c = bench.make(shape);
    const CaseData data = draw_repeating(c, dtype, 1);
    for (const BenchForm& form : bench.forms) {
      KilnLinear kiln(ctx, c, data, form, dtype);
      const int64_t most = std::max({s.rows * s.in, s.rows * s.out, s.out * s.in});
      const Tensor dnnl_out = ctx.zeros({most}, DType::f32), blas_out = ctx.zeros({most}, DType::f32);
      auto problem = [&](void* out) {
        return problem_of(s, form, dtype, kiln.x().raw(), kiln.weight().raw(), kiln.dy().raw(), out);
      };
      const auto onednn = onednn_died.empty() ? onednn_gemm(problem(dnnl_out.raw())) : nullptr;
      const auto openblas = openblas_gemm(problem(blas_out.raw()));
      std::vector<Entrant> entrants(3);
      Entrant &ours = entrants[0], &dnnl = entrants[1], &blas = entrants[2];
      ours.call = [&] { kiln.call(); };
      ours.prepare = [&] { kiln.prepare(); };
      onednn ? void(dnnl.call = [&] { onednn->run(); }) : void(dnnl.absent = "absent");
      openblas ? void(blas.call = [&] { openblas->run(); }) : void(blas.absent = "absent");

      VariantName variant;
      std::string off;
      {
        ctx.add_observer(&variant);
        const Tensor result = kiln.result();
        ctx.remove_observer(&variant);
        std::vector<PeerResult> results = {{"kiln", result.raw()}};
        if (onednn) onednn->run(), results.push_back({"oneDNN", dnnl_out.raw()});
        if (openblas) openblas->run(), results.push_back({"OpenBLAS", blas_out.raw()});
        off = disagreement(problem(nullptr), results);
      }
      if (!off.empty()) {
        fmt::print("{} {} {}: WRONG, not timed: {}\n", s.str(), form.name, name_of(dtype), off);
        all_right = false;
        continue;
      }
      race(entrants, s.flops());
      print(s.str(), form.name, name_of(dtype), rate(ours, s.flops()), variant.name, rate(dnnl, s.flops()),
            rate(blas, s.flops()), against(ours, dnnl), against(ours, blas));
    }
  }
  return all_right;
}

// --- processes

// Runs this program again with `argument`; empty when it ends well, else how it died.
std::string try_in_child(const char* argument) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "bench_cpu_gemm_peers", argument, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) < 0) return "could not be started";
  if (WIFSIGNALED(status)) return fmt::format("died of {}", ::strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("ended with status {}", WEXITSTATUS(status));
}

int probe_onednn_bf16() {
  std::vector<bf16> a(256 * 256), b(256 * 256);
  std::vector<float> c(256 * 256);
  const auto gemm =
      onednn_gemm({256, 256, 256, false, true, DType::bf16, DType::bf16, a.data(), b.data(), c.data()});
  if (!gemm) return 3;
  gemm->run();
  return 0;
}

// Libraries read these when they are loaded, so the program starts itself again with them set.
void restart_with_environment(char** argv, int threads) {
  if (std::getenv("KILN_PEERS_READY") != nullptr) return;
  const std::string n = std::to_string(threads);
  const CpuIsa isa = best_cpu_isa();
  // OpenBLAS 0.3.21 takes newer CPUs for a Prescott and runs at a fifth of its speed.
  if (isa >= CpuIsa::avx2) ::setenv("OPENBLAS_CORETYPE", isa >= CpuIsa::avx512 ? "SKYLAKEX" : "HASWELL", 0);
  ::setenv("OPENBLAS_NUM_THREADS", n.c_str(), 1);
  ::setenv("OMP_NUM_THREADS", n.c_str(), 1);
  ::setenv("KILN_PEERS_READY", "1", 1);
  ::execv("/proc/self/exe", argv);
  std::perror("bench_cpu_gemm_peers: cannot start itself again");
  std::exit(1);
}

int main_of(int argc, char** argv) {
  Options o;
  bool probe = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    if (a == "--quick") {
      o.quick = true;
    } else if (a == "--md") {
      o.markdown = true;
    } else if (a == "--probe-onednn-bf16") {
      probe = true;
    } else if (a == "--threads" && i + 1 < argc) {
      o.threads = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: bench_cpu_gemm_peers [--quick] [--threads N] [--md]\n");
      return 2;
    }
  }
  restart_with_environment(argv, o.threads);
  if (probe) return probe_onednn_bf16();

  RankOptions options;
  options.threads = o.threads;
  RankContext ctx(options);
  const CpuCeilings ceilings = measure_cpu_ceilings(ctx.pool(), ctx.traits().isa, {.one_thread = false});
  fmt::print("kiln ({}), {}, {}; {} thread(s) each; GFLOP/s, medians of interleaved rounds\n",
             name_of(ctx.traits().isa), onednn_name(), openblas_name(), o.threads);
  fmt::print("ceilings here: fp32 {:.0f}, bf16 {:.0f} GFLOP/s\n\n",
             ceilings.flops_for(DType::f32, ctx.traits().isa).all / 1e9,
             ceilings.flops_for(DType::bf16, ctx.traits().isa).all / 1e9);
  const bool f32_right = run_dtype(ctx, o, DType::f32, "");
  const std::string died = try_in_child("--probe-onednn-bf16");
  fmt::print("\n{}", died.empty() ? "" : fmt::format("oneDNN bf16, tried in its own process: {}\n", died));
  const bool bf16_right = run_dtype(ctx, o, DType::bf16, died);
  return f32_right && bf16_right ? 0 : 1;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  try {
    return kiln::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_cpu_gemm_peers: %s\n", error.what());
    return 1;
  }
}
