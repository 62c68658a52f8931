#include "studies/ranks/allreduce.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/child_process.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/plain_number.h"
#include "device/cpu/host_limits.h"
#include "dist/launch/launch.h"
#include "dist/launch/transports.h"
#include "rows/result_log.h"
#include "rows/row_values.h"
#include "studies/place.h"

namespace kiln {
namespace {

using Progress = std::function<void(const std::string&)>;

std::string name_of_size(Bytes b) {
  const auto n = static_cast<double>(b.value);
  if (n >= 1e9 && b.value % 1000000 == 0) return fmt::format("{} GB", plain(n / 1e9, 6));
  if (n >= 1e6 && b.value % 1000 == 0) return fmt::format("{} MB", plain(n / 1e6, 6));
  return n >= 1e3 ? fmt::format("{} KB", plain(n / 1e3, 6)) : fmt::format("{} B", plain(n, 6));
}

ReductionOrder reduction_of(const BenchAllReduceRequest& r, const std::string& transport) {
  const TransportRow& row = find_transport(transport);
  if (r.reduction == "auto") return row.reduction;
  return r.reduction == "library" && row.processes ? ReductionOrder::library : ReductionOrder::deterministic;
}

// What all ranks' tensors, the pieces on their way and MPI's own buffers take, at most.
std::string why_no_room(const BenchAllReduceRequest& r, const AllReduceGroup& g, Bytes size) {
  if (r.device.type != DeviceType::cpu) return {};
  const double needed = 1.5 * static_cast<double>(size.value) * g.ranks * (g.algorithm == "direct" ? 1 : 2);
  const double free = 0.8 * static_cast<double>(read_host_limits().memory_available);
  if (needed <= free) return {};
  return fmt::format("{} ranks need about {}, {} are free", g.ranks,
                     human(Bytes{static_cast<std::size_t>(needed)}),
                     human(Bytes{static_cast<std::size_t>(free)}));
}

AllReduceRow row_of(const AllReduceGroup& g, Bytes size, DType dtype, AllReduceTiming timing) {
  AllReduceRow row;
  row.group = g;
  row.size = size;
  row.dtype = dtype;
  if (!timing.right) {
    row.fail_gate("a rank got wrong sums");
    return row;
  }
  row.gate = Gate::passed;
  row.run = std::move(timing);
  return row;
}

// Between ranks that are threads, or of which this process is one. On rank 0 the rows.
std::vector<AllReduceRow> measure(const BenchAllReduceRequest& r, const AllReduceGroup& g,
                                  const RanksRequest& ranks, const Progress& progress) {
  RankOptions options;
  options.device = r.device;
  options.seed = r.seed;
  options.threads = 1;  // sums run on the communicator's thread
  options.matmuls = false;
  std::vector<AllReduceRow> rows;
  run_ranks(ranks, options, [&](RankContext& ctx, Communicator& all) {
    for (const DType dtype : r.dtypes) {
      for (const Bytes size : r.sizes) {
        if (all.rank() == 0)
          progress(fmt::format("{} {} {} ranks {}", g.transport, g.algorithm, g.ranks, name_of_size(size)));
        AllReduceWork work;
        work.count = static_cast<int64_t>(std::max<std::size_t>(1, size.value / size_of(dtype)));
        work.dtype = dtype;
        work.warmups = std::max(1, r.warmups);
        work.most_samples = r.samples;
        work.least_samples = std::min(5, r.samples);
        AllReduceTiming t = time_all_reduce(ctx, all, work);
        if (all.rank() == 0) rows.push_back(row_of(g, size, dtype, std::move(t)));
      }
    }
  });
  return rows;
}

// A row that a process of ours has stored: the figures from which the others follow.
AllReduceRow read_row(const AllReduceGroup& g, const Json& row, std::span<const DType> dtypes) {
  AllReduceTiming t;
  t.right = gate_of(row) != Gate::failed;
  if (counts(row)) {
    std::vector<double> seconds = samples_of(row);
    for (double& s : seconds) s /= 1e3;
    t.timing = summarize(std::move(seconds));
    t.timing.warmups = row.at("warmups").get<int>();
    t.fastest_rank = row.at("rank_min_ms").get<double>() / 1e3;
    t.slowest_rank = row.at("rank_max_ms").get<double>() / 1e3;
  }
  const auto dtype = std::find_if(dtypes.begin(), dtypes.end(),
                                  [&](DType d) { return name_of(d) == row.value("dtype", ""); });
  AllReduceRow read = row_of(g, {row.at("bytes").get<std::size_t>()}, *dtype, std::move(t));
  if (status_of(row) == RowStatus::ok || read.gate_failed()) return read;
  read.gate = Gate::not_verified;
  read.set(status_of(row), text_at(row, "reason"));
  return read;
}

template <class List, class Name>
std::string joined(const List& list, Name name) {
  std::string text;
  for (const auto& item : list) text += fmt::format("{}{}", text.empty() ? "" : ",", name(item));
  return text;
}

// This command again, for one group, which leaves its rows in a folder.
std::vector<std::string> child_args(const BenchAllReduceRequest& r, const AllReduceGroup& g,
                                    const std::string& folder) {
  return {std::filesystem::read_symlink(kOwnProgram).string(),
          "bench",
          "allreduce",
          "--bytes=" + joined(r.sizes, [](Bytes b) { return std::to_string(b.value); }),
          "--dtype=" + joined(r.dtypes, [](DType t) { return name_of(t); }),
          "--algorithm=" + g.algorithm,
          fmt::format("--ranks={}", g.ranks),
          "--transport=" + g.transport,
          fmt::format("--warmup={}", r.warmups),
          fmt::format("--samples={}", r.samples),
          "--reduction=" + r.reduction,
          "--device=" + r.device.str(),
          fmt::format("--seed={}", r.seed),
          "--oversubscribe",
          "--json",
          "--out=" + folder};
}

// As processes: this command again, started on so many ranks, with a folder of its own for its rows.
std::vector<AllReduceRow> measure_in_processes(const BenchAllReduceRequest& r, const AllReduceGroup& g) {
  std::string folder = (std::filesystem::temp_directory_path() / "kiln-allreduce-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw Error(cat("cannot make a folder ", folder));
  struct Remove {
    std::string path;
    ~Remove() { remove_tree(path); }
  } const remove{folder};
  LaunchRequest launch;
  launch.ranks = g.ranks;
  launch.transport = g.transport;
  launch.timeout = r.timeout;
  launch.oversubscribe = true;  // checked before: the first refusal is the command's
  launch.stop = r.stop;
  launch.output = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  launch.command = child_args(r, g, folder);
  try {
    launch_ranks(launch);
  } catch (...) {
    ::close(launch.output);
    throw;
  }
  ::close(launch.output);
  std::vector<AllReduceRow> rows;
  for (const Json& row : read_results(folder).rows) rows.push_back(read_row(g, row, r.dtypes));
  return rows;
}

class Study {
 public:
  Study(const BenchAllReduceRequest& r, const Progress& progress)
      : r_(r), progress_(progress), launched_(launched_request()) {
    is_rank_ = find_transport(launched_.transport).processes || launched_.world > 1;
    if (is_rank_) r_.ranks = {launched_.world};
    if (std::find(r_.ranks.begin(), r_.ranks.end(), 1) != r_.ranks.end())
      throw Error("[all-reduce] 1 rank has nothing to add up, and nothing to time", "take 2 ranks or more",
                  ErrorKind::usage);
    if (!is_rank_) return;
    r_.transports = {launched_.transport};
    if (r_.algorithms.size() > 1)
      throw Error("ranks started by a launcher have one rendezvous, so they measure one --algorithm",
                  "choose one, or leave `kiln run` out: bench allreduce starts ranks itself",
                  ErrorKind::usage);
  }

  BenchAllReduceReport run() {
    const LoadWatch load(r_.device);
    report_.device = r_.device.str();
    for (const std::string& transport : r_.transports)
      for (const int ranks : r_.ranks)
        for (const std::string& algorithm : r_.algorithms)
          run_group({transport, algorithm, ranks, reduction_of(r_, transport)});
    if (is_rank_ && read_rank_env().rank != 0)
      report_.rows.clear();  // rank 0 has the rows
    else
      note_place_and_fits();
    report_.load = load.load();
    return std::move(report_);
  }

 private:
  void give_up(const AllReduceGroup& g, Bytes size, RowStatus status, const std::string& why) {
    for (const DType dtype : r_.dtypes) {
      AllReduceRow& row = report_.rows.emplace_back();
      row.group = g;
      row.size = size;
      row.dtype = dtype;
      row.set(status, why);
    }
  }

  void run_group(const AllReduceGroup& g) {
    report_.stopped = report_.stopped || (r_.stop && r_.stop());
    if (report_.stopped) return;
    BenchAllReduceRequest fitting = r_;
    std::erase_if(fitting.sizes, [&](Bytes size) { return !why_no_room(r_, g, size).empty(); });
    for (const Bytes size : r_.sizes)
      if (const std::string why = why_no_room(r_, g, size); !why.empty())
        give_up(g, size, RowStatus::oom, why);
    if (fitting.sizes.empty()) return;
    try {
      progress_(fmt::format("{} {} {} ranks", g.transport, g.algorithm, g.ranks));
      const std::vector<AllReduceRow> rows = is_rank_ || !find_transport(g.transport).processes
                                                 ? measure(fitting, g, meeting_of(g), progress_)
                                                 : measure_in_processes(fitting, g);
      report_.rows.insert(report_.rows.end(), rows.begin(), rows.end());
    } catch (const Error& e) {
      if (is_rank_ || e.kind() == ErrorKind::usage) throw;
      for (const Bytes size : fitting.sizes) give_up(g, size, status_of(e.kind()), e.what());
      report_.hint = e.hint();
      report_.kind = e.kind();
    }
  }

  RanksRequest meeting_of(const AllReduceGroup& g) const {
    RanksRequest own = is_rank_ ? launched_ : RanksRequest{};
    own.world = g.ranks;
    own.transport = g.transport;
    own.comm.timeout = std::chrono::milliseconds(static_cast<int64_t>(1e3 * r_.timeout));
    own.comm.algorithm = parse_comm_algorithm(g.algorithm, "--algorithm");
    own.reduction = g.reduction;
    own.config = fmt::format("bench allreduce {} {} {} {}", g.algorithm,
                             joined(r_.sizes, [](Bytes b) { return b.value; }),
                             joined(r_.dtypes, [](DType t) { return name_of(t); }), r_.reduction);
    return own;
  }

  // The ceiling last: it would keep the cores from the ranks.
  void note_place_and_fits() {
    const MeasuredPlace place = measure_place(r_.device, 0, {});
    report_.device_name = place.name;
    report_.isa = place.isa;
    report_.threads = place.threads;
    report_.copy = place.ceilings.copy;
    report_.fits = fit_rows(report_.rows);
    const double cache = cache_bytes(r_.device);
    for (AllReduceRow& row : report_.rows) {
      row.roofline = 2 * row.bytes() * row.group.ranks / report_.copy;
      row.in_cache = row.bytes() * row.group.ranks <= cache;
    }
  }

  BenchAllReduceRequest r_;
  const Progress& progress_;
  const RanksRequest launched_;
  bool is_rank_ = false;
  BenchAllReduceReport report_;
};

}  // namespace

std::string AllReduceRow::size_name() const { return name_of_size(size); }

std::string AllReduceRow::why_not() const {
  return fmt::format("{} {}, {} ranks, {}: {}", group.transport, group.algorithm, group.ranks, size_name(),
                     reason);
}

bool BenchAllReduceReport::any_timed() const {
  return std::any_of(rows.begin(), rows.end(), [](const AllReduceRow& r) { return r.passed(); });
}

std::vector<AllReduceFit> fit_rows(std::vector<AllReduceRow>& rows) {
  std::map<std::string, std::vector<AllReduceRow*>> groups;
  for (AllReduceRow& r : rows) {
    if (r.passed())
      groups[fmt::format("{} {} {} {}", r.group.transport, r.group.algorithm, name_of(r.dtype),
                         r.group.ranks)]
          .push_back(&r);
  }
  std::vector<AllReduceFit> fits;
  for (auto& [name, members] : groups) {
    std::vector<Point> points;
    for (const AllReduceRow* r : members) points.push_back({r->bytes(), r->run.timing.p50});
    const std::optional<LinkFit> fit = fit_link(points);
    if (!fit) continue;
    for (AllReduceRow* r : members) r->fit = fit;
    fits.push_back({members.front()->group, members.front()->dtype, *fit});
  }
  return fits;
}

BenchAllReduceReport bench_allreduce(const BenchAllReduceRequest& request, const Progress& progress) {
  return Study(request, progress).run();
}

}  // namespace kiln
