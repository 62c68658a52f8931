#include "kiln/bench_allreduce.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/child_process.h"
#include "base/error.h"
#include "device/cpu/host_limits.h"
#include "dist/launch/launch.h"
#include "studies/format.h"
#include "studies/place.h"
#include "perf/comm/all_reduce_timing.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

// The rows of one group: everything but size and dtype is the same.
struct Group {
  std::string transport, algorithm;
  int ranks = 1;
};

std::string size_name(Bytes b) {
  const auto n = static_cast<double>(b.value);
  if (n >= 1e9 && b.value % 1000000 == 0) return fmt::format("{:g} GB", n / 1e9);
  if (n >= 1e6 && b.value % 1000 == 0) return fmt::format("{:g} MB", n / 1e6);
  return n >= 1e3 ? fmt::format("{:g} KB", n / 1e3) : fmt::format("{:g} B", n);
}

RankSums sums_of(const BenchAllReduceRequest& r, const Group& g) {
  const bool engine = r.sums == "engine" || (r.sums == "auto" && g.transport == "nccl");
  return engine && g.transport != "threads" ? RankSums::engine : RankSums::ranked;
}

ordered_json blank_row(const BenchAllReduceRequest& r, const Group& g, Bytes size, DType dtype) {
  return {{"transport", g.transport},
          {"algorithm", g.algorithm},
          {"device", r.device.str()},
          {"dtype", name_of(dtype)},
          {"ranks", g.ranks},
          {"link", "local"},
          {"size", size_name(size)},
          {"bytes", size.value},
          {"sums", sums_of(r, g) == RankSums::engine ? "engine" : "ranked"}};
}

// What all ranks' tensors, the pieces on their way and MPI's own buffers take, at most.
std::string why_no_room(const BenchAllReduceRequest& r, const Group& g, Bytes size) {
  if (r.device.type != DeviceType::cpu) return {};
  const double needed = 1.5 * static_cast<double>(size.value) * g.ranks * (g.algorithm == "direct" ? 1 : 2);
  const double free = 0.8 * static_cast<double>(read_host_limits().memory_available);
  if (needed <= free) return {};
  return fmt::format("{} ranks need about {}, {} are free", g.ranks,
                     human(Bytes{static_cast<std::size_t>(needed)}),
                     human(Bytes{static_cast<std::size_t>(free)}));
}

ordered_json timed_row(ordered_json row, const AllReduceTiming& t, const Group& g) {
  const double bytes = row["bytes"].get<double>(), algorithm = bytes / t.timing.p50;
  row["gate"] = t.right ? "passed" : "failed";
  if (!t.right) {
    row["reason"] = "a rank got wrong sums";
    return row;
  }
  row.update(timing_json(t.timing));
  row["rank_min_ms"] = ms(t.fastest_rank);
  row["rank_max_ms"] = ms(t.slowest_rank);
  row["algorithm_gb_per_s"] = algorithm / 1e9;
  row["bus_gb_per_s"] = algorithm * 2 * (g.ranks - 1) / g.ranks / 1e9;
  ordered_json samples = ordered_json::array();
  for (double s : t.timing.samples) samples.push_back(ms(s));
  row["raw_samples"] = samples;
  return row;
}

// Between ranks that are threads, or of which this process is one. On rank 0 the rows.
std::vector<ordered_json> measure(const BenchAllReduceRequest& r, const Group& g, const RanksRequest& ranks,
                                  const std::function<void(const std::string&)>& progress) {
  RankOptions options;
  options.device = r.device;
  options.seed = r.seed;
  options.threads = 1;  // sums run on the communicator's thread
  options.matmuls = false;
  std::vector<ordered_json> rows;
  run_ranks(ranks, options, [&](RankContext& ctx, Communicator& all) {
    for (const DType dtype : r.dtypes) {
      for (const Bytes size : r.sizes) {
        ordered_json row = blank_row(r, g, size, dtype);
        const auto element = size_of(dtype);
        if (all.rank() == 0)
          progress(fmt::format("{} {} {} ranks {}", g.transport, g.algorithm, g.ranks, size_name(size)));
        AllReduceWork work;
        work.count = static_cast<int64_t>(std::max<std::size_t>(1, size.value / element));
        work.dtype = dtype;
        work.warmups = std::max(1, r.warmups);
        work.most_samples = r.samples;
        work.least_samples = std::min(5, r.samples);
        const AllReduceTiming t = time_all_reduce(ctx, all, work);
        if (all.rank() == 0) rows.push_back(timed_row(std::move(row), t, g));
      }
    }
  });
  return rows;
}

template <class List, class Name>
std::string joined(const List& list, Name name) {
  std::string text;
  for (const auto& item : list) text += fmt::format("{}{}", text.empty() ? "" : ",", name(item));
  return text;
}

// As processes: this command again, started on so many ranks, which leaves its rows in a folder of its own.
std::vector<ordered_json> measure_in_processes(const BenchAllReduceRequest& r, const Group& g) {
  std::string folder = (std::filesystem::temp_directory_path() / "kiln-allreduce-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw Error(cat("cannot make a folder ", folder));
  struct Remove {
    std::string path;
    ~Remove() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } const remove{folder};
  LaunchRequest launch;
  launch.ranks = g.ranks;
  launch.transport = g.transport;
  launch.timeout = r.timeout;
  launch.stop = r.stop;
  launch.output = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  launch.command = {std::filesystem::read_symlink(kOwnProgram).string(),
                    "bench",
                    "allreduce",
                    "--size=" + joined(r.sizes, [](Bytes b) { return std::to_string(b.value); }),
                    "--dtype=" + joined(r.dtypes, [](DType t) { return name_of(t); }),
                    "--algorithm=" + g.algorithm,
                    fmt::format("--ranks={}", g.ranks),
                    "--transport=" + g.transport,
                    fmt::format("--warmup={}", r.warmups),
                    fmt::format("--samples={}", r.samples),
                    "--sums=" + r.sums,
                    "--device=" + r.device.str(),
                    fmt::format("--seed={}", r.seed),
                    "--json",
                    "--out=" + folder};
  try {
    launch_ranks(launch);
  } catch (...) {
    ::close(launch.output);
    throw;
  }
  ::close(launch.output);
  std::vector<ordered_json> rows;
  for (const auto& row : read_results(folder).rows) rows.push_back(ordered_json::parse(row.dump()));
  return rows;
}

void add_skipped(const BenchAllReduceRequest& r, const Group& g, Bytes size, const std::string& why,
                 std::vector<ordered_json>& rows) {
  for (const DType dtype : r.dtypes) {
    ordered_json row = blank_row(r, g, size, dtype);
    row["gate"] = "skipped";
    row["reason"] = why;
    rows.push_back(std::move(row));
  }
}

}  // namespace

bool BenchAllReduceReport::any_timed() const {
  return std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.value("gate", "") == "passed"; });
}

std::vector<AllReduceFit> fit_rows(std::vector<ordered_json>& rows) {
  std::map<std::string, std::vector<ordered_json*>> groups;
  for (ordered_json& r : rows) {
    if (r.value("gate", "") == "passed")
      groups[fmt::format("{} {} {} {}", r.value("transport", ""), r.value("algorithm", ""),
                         r.value("dtype", ""), r.value("ranks", 1))]
          .push_back(&r);
  }
  std::vector<AllReduceFit> fits;
  for (auto& [name, members] : groups) {
    std::vector<Point> points;
    for (const ordered_json* r : members)
      points.push_back({(*r)["bytes"].get<double>(), 1e-3 * (*r)["p50_ms"].get<double>()});
    const std::optional<LinkFit> fit = fit_link(points);
    if (!fit) continue;
    for (ordered_json* r : members) {
      const double bytes = (*r)["bytes"].get<double>();
      (*r)["predicted_ms"] = ms(fit->seconds(bytes));
      (*r)["bound"] = fit->latency_bound(bytes) ? "latency" : "bandwidth";
    }
    const ordered_json& first = *members.front();
    fits.push_back({first.value("transport", ""), first.value("algorithm", ""), first.value("dtype", ""),
                    first.value("ranks", 1), *fit});
  }
  return fits;
}

BenchAllReduceReport bench_allreduce(const BenchAllReduceRequest& request,
                                     const std::function<void(const std::string&)>& progress) {
  BenchAllReduceReport report;
  report.device = request.device.str();
  RanksRequest launched = launched_request();
  const bool is_rank = launched.transport != "threads" || launched.world > 1;
  BenchAllReduceRequest r = request;
  if (is_rank) {
    r.transports = {launched.transport};
    r.ranks = {launched.world};
  }
  if (is_rank && r.algorithms.size() > 1)
    throw Error("ranks that were started meet once, so they measure one --algorithm",
                "name one, or leave `kiln run` out: bench allreduce starts ranks itself", ErrorKind::usage);
  for (const std::string& transport : r.transports) {
    for (const int ranks : r.ranks) {
      for (const std::string& algorithm : r.algorithms) {
        if (r.stop && r.stop()) {
          report.stopped = true;
          continue;
        }
        const Group g{transport, algorithm, ranks};
        BenchAllReduceRequest fitting = r;
        fitting.sizes.clear();
        for (const Bytes size : r.sizes) {
          const std::string why = why_no_room(r, g, size);
          if (why.empty()) {
            fitting.sizes.push_back(size);
          } else {
            add_skipped(r, g, size, why, report.rows);
          }
        }
        if (fitting.sizes.empty()) continue;
        RanksRequest own = is_rank ? launched : RanksRequest{};
        own.world = ranks;
        own.transport = transport;
        own.comm.timeout = std::chrono::milliseconds(static_cast<int64_t>(1e3 * r.timeout));
        own.comm.algorithm = parse_comm_algorithm(algorithm, "--algorithm");
        own.sums = sums_of(r, g);
        own.config = fmt::format("bench allreduce {} {} {} {}", algorithm,
                                 joined(r.sizes, [](Bytes b) { return b.value; }),
                                 joined(r.dtypes, [](DType t) { return name_of(t); }), r.sums);
        try {
          progress(fmt::format("{} {} {} ranks", transport, algorithm, ranks));
          const std::vector<ordered_json> rows = is_rank || transport == "threads"
                                                     ? measure(fitting, g, own, progress)
                                                     : measure_in_processes(fitting, g);
          report.rows.insert(report.rows.end(), rows.begin(), rows.end());
        } catch (const Error& e) {
          if (is_rank || e.kind() == ErrorKind::usage) throw;
          for (const Bytes size : fitting.sizes) add_skipped(r, g, size, e.what(), report.rows);
          report.hint = e.hint();
          report.kind = e.kind();
        }
      }
    }
  }
  if (is_rank && read_rank_env().rank != 0) {  // rank 0 has the rows
    report.rows.clear();
    return report;
  }
  // Last: it would keep the cores from the ranks. Every rank reads and writes the whole tensor at least once.
  const MeasuredPlace place = measure_place(request.device, 0, {});
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  report.copy = place.ceilings.copy;
  report.fits = fit_rows(report.rows);
  for (ordered_json& row : report.rows) {
    if (row.value("gate", "") != "passed") continue;
    const double floor = 2 * row["bytes"].get<double>() * row["ranks"].get<int>() / report.copy;
    row["floor_ms"] = ms(floor);
    row["of_floor"] = ms(floor) / row["p50_ms"].get<double>();
  }
  return report;
}

}  // namespace kiln::cli
