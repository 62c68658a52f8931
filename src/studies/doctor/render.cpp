#include "studies/doctor/render.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <optional>

#include "base/build_info.h"
#include "base/plain_number.h"
#include "studies/format.h"

namespace kiln {
namespace {

template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json rate_json(const Ceiling& c) { return {{"one_thread", c.one / 1e9}, {"all_threads", c.all / 1e9}}; }

// GB/s and GFLOP/s.
Json ceilings_json(const DoctorFacts& facts) {
  const CpuCeilings& c = *facts.ceilings;
  Json page = {{"threads", c.threads}, {"copy_gb_per_s", rate_json(c.copy)}};
  Json& rates = page["gflop_per_s"];
  for (const CpuCeilings::Fma& f : c.fma) rates[fmt::format("fma_{}", name_of(f.isa))] = rate_json(f.flops);
  if (c.bf16_dot) rates["bf16_dot"] = rate_json(*c.bf16_dot);
  if (c.amx) rates["amx_bf16"] = rate_json(*c.amx);
  for (const MeasuredGemm& g : facts.gemms) {
    if (!g.wrong.empty()) continue;
    page["gemm_gflop_per_s"][std::string(name_of(g.dtype))] = {
        {"variant", g.variant},
        {"size", 512},
        {"rate", g.flops_per_second / 1e9},
        {"of_ceiling", g.flops_per_second / c.flops_for(g.dtype, facts.isa).all}};
  }
  page["seconds"] = c.seconds;
  return page;
}

const DeviceCeilings* ceilings_of(const DoctorFacts& facts, const GpuInfo& gpu) {
  for (const DoctorFacts::MeasuredGpu& m : facts.gpu_ceilings) {
    if (m.index == gpu.index && m.failed.empty()) return &m.ceilings;
  }
  return nullptr;
}

Json gpu_ceilings_json(const DeviceCeilings* c) {
  if (c == nullptr) return nullptr;
  Json products = Json::object();
  for (const ProductCeiling& p : c->products) {
    products[std::string(name_of(p.dtype))] = {
        {"variant", p.variant}, {"size", p.size}, {"rate", p.flops_per_second / 1e9}};
  }
  return {{"copy_gb_per_s", c->copy / 1e9}, {"gemm_gflop_per_s", products}, {"seconds", c->seconds}};
}

}  // namespace

Json facts_json(const DoctorFacts& facts) {
  const BuildInfo& build = build_info();
  const HostLimits& limits = facts.limits;
  Json features;
  for (const auto& [name, present] : named_features(facts.features)) features[std::string(name)] = present;
  Json gpus = Json::array();
  for (const GpuInfo& gpu : facts.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"name", gpu.name},
                    {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                    {"sm_count", gpu.sm_count},
                    {"l2_bytes", gpu.l2_bytes},
                    {"total_bytes", gpu.total_bytes},
                    {"free_bytes", gpu.free_bytes},
                    {"driver_version", gpu.driver_version},
                    {"runtime_version", gpu.runtime_version},
                    {"ceilings", gpu_ceilings_json(ceilings_of(facts, gpu))}});
  }
  Json parts = Json::array();
  for (const Part& part : facts.parts) {
    parts.push_back({{"name", part.name},
                     {"built_in", part.built_in},
                     {"detail", part.built_in ? part.detail : ""},
                     {"without_it", part.without}});
  }
  Json problems = Json::array();
  for (const Problem& problem : facts.problems) {
    problems.push_back({{"problem", problem.what}, {"remedy", problem.remedy}});
  }
  Json measured = nullptr;
  if (facts.ceilings) measured = ceilings_json(facts);
  return {{"command", "doctor"},
          {"kiln",
           {{"version", build.version},
            {"build_id", build.build_id},
            {"build_type", build.build_type},
            {"compiler", build.compiler},
            {"sanitizers", build.sanitizers}}},
          {"cpu",
           {{"model", facts.cpu_model},
            {"features", features},
            {"isa", name_of(facts.isa)},
            {"isa_forced", facts.isa_forced.empty() ? Json(nullptr) : Json(facts.isa_forced)},
            {"cpus_online", limits.cpus_online},
            {"cpus_allowed", limits.cpus_allowed},
            {"cgroup_cpus", value_or_null(limits.cgroup_cpus)},
            {"cpus_usable", limits.cpus_usable}}},
          {"load", load_json(facts.load)},
          {"memory",
           {{"total_bytes", limits.memory_total},
            {"available_bytes", limits.memory_available},
            {"cgroup_limit_bytes", value_or_null(limits.cgroup_memory)}}},
          {"ceilings", measured},
          {"gpus", gpus},
          {"why_no_gpu", facts.gpus.empty() ? Json(facts.why_no_gpu) : Json(nullptr)},
          {"libraries", parts},
          {"transports", facts.transports},
          {"problems", problems}};
}

namespace {

std::string gib(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
}

std::string load_text(const HostLoad& load) {
  if (std::string why = load.why_unreliable(); !why.empty()) {
    constexpr std::string_view kLoad = "load ";  // the line begins with it
    return why.starts_with(kLoad) ? why.substr(kLoad.size()) : why;
  }
  std::string text =
      fmt::format("{:.1f} on {} core{}", load.load_before, load.cpus, load.cpus == 1 ? "" : "s");
  if (load.seconds >= kLeastWatched) text += fmt::format(", {:.1f} of them used by others", load.others);
  return text;
}

std::string cpu_lines(const DoctorFacts& facts) {
  const HostLimits& limits = facts.limits;
  std::string isa;
  for (const auto& [name, present] : named_features(facts.features)) {
    if (present) isa += fmt::format(" {}", name);
  }
  std::string text = fmt::format("cpu      {}\n", facts.cpu_model);
  text += fmt::format("isa     {}\n", isa.empty() ? " none that kiln uses" : isa);
  text += fmt::format("kernels  {}{}\n", name_of(facts.isa),
                      facts.isa_forced.empty() ? "" : fmt::format(" (KILN_CPU_ISA={})", facts.isa_forced));
  text += fmt::format("cores    {} usable ({} online, {} allowed by affinity", limits.cpus_usable,
                      limits.cpus_online, limits.cpus_allowed);
  text += limits.cgroup_cpus ? fmt::format(", {} by cgroup)\n", plain(*limits.cgroup_cpus, 6))
                             : ", no cgroup limit)\n";
  text += fmt::format("load     {}\n", load_text(facts.load));
  text += fmt::format("memory   {}, {} available", gib(limits.memory_total), gib(limits.memory_available));
  text += limits.cgroup_memory ? fmt::format(", cgroup limit {}\n", gib(*limits.cgroup_memory)) : "\n";
  return text;
}

std::string rate(double per_second) {
  const double g = per_second / 1e9;
  return g >= 100 ? fmt::format("{:.0f}", g) : fmt::format("{:.1f}", g);
}

std::string ceiling_lines(const DoctorFacts& facts) {
  const CpuCeilings& c = *facts.ceilings;
  auto line = [&](std::string_view name, const Ceiling& r, std::string_view unit) {
    return fmt::format("{:<9}{} {} with one thread, {} with {}\n", name, rate(r.one), unit, rate(r.all),
                       c.threads);
  };
  std::string text = line("copy", c.copy, "GB/s (read + write)");
  for (const CpuCeilings::Fma& f : c.fma)
    text += line("fma", f.flops, fmt::format("GFLOP/s fp32 {}", name_of(f.isa)));
  if (c.bf16_dot) text += line("dot", *c.bf16_dot, "GFLOP/s bf16");
  if (c.amx) text += line("amx", *c.amx, "GFLOP/s bf16");
  for (const MeasuredGemm& g : facts.gemms) {
    if (!g.wrong.empty()) continue;
    text += fmt::format("gemm     {} GFLOP/s {}, 512 x 512 x 512 by `{}`: {:.0f} % of the above\n",
                        rate(g.flops_per_second), name_of(g.dtype), g.variant,
                        100 * g.flops_per_second / c.flops_for(g.dtype, facts.isa).all);
  }
  return text;
}

std::string gpu_ceiling_lines(const DeviceCeilings& c) {
  std::string text = fmt::format("  copy   {} GB/s (read + write)\n", rate(c.copy));
  for (const ProductCeiling& p : c.products)
    text += fmt::format("  gemm   {:.1f} TFLOP/s {}, {} x {} x {} by `{}`\n", p.flops_per_second / 1e12,
                        name_of(p.dtype), p.size, p.size, p.size, p.variant);
  return text;
}

}  // namespace

std::string facts_text(const DoctorFacts& facts) {
  const BuildInfo& build = build_info();
  std::string text = fmt::format("kiln     {} ({}, {}, {})\n", build.version, build.build_id,
                                 build.build_type, build.compiler);
  text += cpu_lines(facts);
  if (facts.ceilings) text += ceiling_lines(facts);
  for (const GpuInfo& gpu : facts.gpus) {
    text += fmt::format("cuda:{}   {}, sm_{}{}, {} SMs, {} of {} free\n", gpu.index, gpu.name, gpu.major,
                        gpu.minor, gpu.sm_count, gib(gpu.free_bytes), gib(gpu.total_bytes));
    if (const DeviceCeilings* c = ceilings_of(facts, gpu)) text += gpu_ceiling_lines(*c);
  }
  if (facts.gpus.empty()) text += fmt::format("gpu      none: {}\n", facts.why_no_gpu);
  for (const Part& part : facts.parts) {
    text += part.built_in ? fmt::format("{:<9}built in ({})\n", part.name, part.detail)
                          : fmt::format("{:<9}left out: {}\n", part.name, part.without);
  }
  text += fmt::format("ranks    {}: transports of `kiln run` here\n", fmt::join(facts.transports, ", "));
  for (const Problem& problem : facts.problems) {
    text += fmt::format("\nproblem  {}\nremedy   {}\n", problem.what, problem.remedy);
  }
  if (facts.problems.empty()) text += "\nno problems found\n";
  return text;
}

}  // namespace kiln
