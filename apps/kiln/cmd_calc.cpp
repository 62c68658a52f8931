// kiln calc: theory of rings, buckets and sharding, with stored measurements beside it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "base/error.h"
#include "kiln/bench_options.h"
#include "studies/calc/calc.h"
#include "kiln/cmd.h"
#include "kiln/cmd_bench_ranks.h"
#include "base/parse_number.h"
#include "rows/result_log.h"
#include "train/memory_prediction.h"

namespace kiln::cli {
namespace {

using Subject = std::function<bool()>;  // answers if it was asked, and says whether it was

CLI::App* add_subject(CLI::App& app, const char* name, const char* summary, const char* example) {
  CLI::App* subject = app.add_subcommand(name, summary);
  subject->fallthrough();  // --json and its like belong to every command
  subject->footer(
      fmt::format("Nothing is measured: achieved figures are rows that a bench has stored in --out. It also "
                  "takes --json, --seed,\n"
                  "--device and --out, as every command does.\n\nExample:\n  {}",
                  example));
  return subject;
}

void add_place(CLI::App& subject, std::string& transport, std::string& format) {
  subject.add_option("--transport", transport, "Of the stored rows: threads (default), mpi or nccl")
      ->type_name("NAME");
  subject.add_option("--format", format, kFormatHelp)->type_name("NAME");
}

CalcPlace read_place(const std::string& transport, const CommonOptions& common) {
  index_of("--transport", transport, {"threads", "mpi", "nccl"});
  CalcPlace place{common.out, transport, {}};
  if (common.device != "auto") place.device = common.device == "cuda" ? "cuda:0" : common.device;
  return place;
}

// A span of it is handed on within one expression.
std::vector<nlohmann::json> stored_in(const std::string& folder) {
  StoredResults results = read_results(folder);
  for (const std::string& line : results.remarks) fmt::print(stderr, "{}\n", line);
  return std::move(results.rows);
}

Bytes some_bytes(const std::string& text, const char* option) {
  const Bytes b = parse_bytes(text, option);
  if (b.value == 0)
    throw Error(fmt::format("{} is {}; expected at least a byte", option, text), "such as 512MB",
                ErrorKind::usage);
  return b;
}

void one_size(const std::string& text) {
  if (text.find(',') != std::string::npos)
    throw Error(fmt::format("--size is '{}'; expected one", text), "kiln sizes lists them", ErrorKind::usage);
}

// In the units of a link, which has the same two numbers.
SumCost read_cost(const std::string& w, const std::string& o) {
  try {
    const LinkModel both = LinkModel::parse(fmt::format("latency={},bandwidth={}", o, w), "--link");
    return {both.bandwidth, both.latency};
  } catch (const Error&) {
    throw Error(fmt::format("--w is '{}' and --o is '{}'; expected a rate and a time with their units", w, o),
                "kiln calc bucket --s 512MB --w 10GB/s --o 20us", ErrorKind::usage);
  }
}

std::vector<int> read_ranks(const std::string& text) {
  return read_list<int>(text,
                        [](const std::string& w) { return parse_number<int>("--ranks", w, 2, 1 << 20); });
}

Subject add_ring(CLI::App& app, const CommonOptions& common) {
  struct Texts {
    std::string sizes = "1MB,10MB,100MB,1GB", ranks = "2,4,6", link, transport = "threads", format;
  };
  auto t = std::make_shared<Texts>();
  CLI::App* subject =
      add_subject(app, "ring", "What each way round a ring of ranks costs, the alternate one too",
                  "kiln calc ring --size 100MB --ranks 2,4,8 --link latency=5us,bandwidth=50GB/s");
  subject->add_option("--size", t->sizes, "Of the tensor (default 1MB,10MB,100MB,1GB)")
      ->type_name("BYTES,...");
  subject->add_option("--ranks", t->ranks, "How many (default 2,4,6)")->type_name("N,...");
  subject->add_option("--link", t->link, "latency=5us,bandwidth=50GB/s (default: fitted to stored rows)")
      ->type_name("MODEL");
  add_place(*subject, t->transport, t->format);
  return [=, &common] {
    if (!subject->parsed()) return false;
    const PageFormat format = read_format(t->format, common.json);
    RingRequest r;
    r.place = read_place(t->transport, common);
    r.sizes = read_list<Bytes>(t->sizes, [](const std::string& w) { return some_bytes(w, "--size"); });
    r.ranks = read_ranks(t->ranks);
    if (!t->link.empty()) r.link = LinkModel::parse(t->link, "--link");
    std::fputs(ring_page(calc_ring(r, stored_in(common.out)), format).c_str(), stdout);
    return true;
  };
}

Subject add_bucket(CLI::App& app, const CommonOptions& common) {
  struct Texts {
    std::string s, w, o, size, vocab, dtype = "fp32", ranks = "2", link, buckets = "1,10,100,1000",
                                      transport = "threads", format;
  };
  auto t = std::make_shared<Texts>();
  CLI::App* subject =
      add_subject(app, "bucket", "How large a bucket of gradients should be, and what others cost",
                  "kiln calc bucket --s 512MB --w 10GB/s --o 20us");
  subject->add_option("--s", t->s, "Bytes of all gradients; or:")->type_name("BYTES");
  subject->add_option("--size", t->size, "A model by a name of kiln sizes")->type_name("NAME");
  subject->add_option("--vocab", t->vocab, "Its vocabulary (default as the size has it)")->type_name("N");
  subject
      ->add_option("--dtype,--precision", t->dtype,
                   "Its precision: fp32 (default), bf16, autocast, pure-bf16, fp16")
      ->type_name("NAME");
  subject->add_option("--w", t->w, "How fast a sum goes, 10GB/s; with --o")->type_name("RATE");
  subject->add_option("--o", t->o, "What a call costs besides, 20us; with --w")->type_name("TIME");
  subject->add_option("--link", t->link, "Instead of both: latency=10us,bandwidth=20GB/s of a ring's links")
      ->type_name("MODEL");
  subject->add_option("--ranks", t->ranks, "How many (default 2)")->type_name("N");
  subject
      ->add_option("--bucket-mb", t->buckets,
                   "To compare with the best, which is auto (default 1,10,100,1000)")
      ->type_name("X,...");
  add_place(*subject, t->transport, t->format);
  return [=, &common] {
    if (!subject->parsed()) return false;
    const PageFormat format = read_format(t->format, common.json);
    if (t->s.empty() == t->size.empty())
      throw Error(t->s.empty() ? "kiln calc bucket needs --s BYTES or --size NAME"
                               : "--s and --size are both given; expected one of them",
                  "kiln calc bucket --s 512MB --w 10GB/s --o 20us", ErrorKind::usage);
    if (t->w.empty() != t->o.empty())
      throw Error(
          fmt::format("--{} is given without --{}", t->w.empty() ? "o" : "w", t->w.empty() ? "w" : "o"),
          "kiln calc bucket --s 512MB --w 10GB/s --o 20us", ErrorKind::usage);
    if (!t->w.empty() && !t->link.empty())
      throw Error("--link and --w are both given; expected one of them",
                  "--w and --o are of a sum, --link of a ring's links", ErrorKind::usage);
    BucketRequest r;
    r.place = read_place(t->transport, common);
    r.ranks = parse_number<int>("--ranks", t->ranks, 2, 1 << 20);
    if (!t->s.empty()) {
      r.bytes = static_cast<double>(some_bytes(t->s, "--s").value);
    } else {
      one_size(t->size);
      const std::vector<ModelSize> sizes = read_sizes(t->size, t->vocab);
      const PrecisionPolicy policy = policy_of(parse_precision("--dtype", t->dtype));
      r.bytes = static_cast<double>(count_params(config_of(sizes.front())).total()) *
                static_cast<double>(size_of(policy.grad));
    }
    if (!t->w.empty()) r.cost = read_cost(t->w, t->o);
    if (!t->link.empty()) r.link = LinkModel::parse(t->link, "--link");
    r.bucket_mb = read_list<double>(t->buckets, [](const std::string& w) {
      return w == "auto" ? 0 : parse_number<double>("--bucket-mb", w, 1e-6, 1e9);
    });
    std::erase(r.bucket_mb, 0);  // the best one is there anyway
    std::fputs(bucket_page(calc_bucket(r, stored_in(common.out)), format).c_str(), stdout);
    return true;
  };
}

Subject add_savings(CLI::App& app, const CommonOptions& common) {
  struct Texts {
    std::string size = "xl26", vocab, dtype = "fp32", ranks = "2,4,8", batch, context, transport = "threads",
                format;
  };
  auto t = std::make_shared<Texts>();
  CLI::App* subject =
      add_subject(app, "fsdp-savings", "What sharding all of it saves, over nothing sharded and over ZeRO-1",
                  "kiln calc fsdp-savings --size xl26 --ranks 2,4,8 --dtype fp32");
  subject->add_option("--size", t->size, "A model by a name of kiln sizes (default xl26)")->type_name("NAME");
  subject->add_option("--vocab", t->vocab, "Its vocabulary (default as the size has it)")->type_name("N");
  subject->add_option("--dtype,--precision", t->dtype, "fp32 (default), bf16, autocast, pure-bf16, fp16")
      ->type_name("NAME");
  subject->add_option("--ranks", t->ranks, "How many (default 2,4,8)")->type_name("N,...");
  subject->add_option("--batch", t->batch, "Sequences on each rank (default 1)")->type_name("N");
  subject->add_option("--ctx,--context", t->context, "Tokens of a sequence (default 128)")->type_name("N");
  add_place(*subject, t->transport, t->format);
  return [=, &common] {
    if (!subject->parsed()) return false;
    const PageFormat format = read_format(t->format, common.json);
    SavingsRequest r;
    r.place = read_place(t->transport, common);
    r.ranks = read_ranks(t->ranks);
    one_size(t->size);
    TypedRanks typed;
    typed.size = t->size;
    typed.vocab = t->vocab;
    typed.dtype = t->dtype;
    typed.batch = t->batch;
    typed.context = t->context;
    read_ranks_study(typed, common, 1, r.study);
    check_config(config_of(r.study.size));
    std::fputs(savings_page(calc_savings(r, stored_in(common.out)), format).c_str(), stdout);
    return true;
  };
}

}  // namespace

CommandBody add_calc(CLI::App& app, const CommonOptions& common) {
  app.require_subcommand(0, 1);
  const std::vector<Subject> subjects = {add_ring(app, common), add_bucket(app, common),
                                         add_savings(app, common)};
  return [subjects] {
    if (!std::any_of(subjects.begin(), subjects.end(), [](const auto& subject) { return subject(); }))
      throw Error("kiln calc needs the name of a subject: ring, bucket or fsdp-savings",
                  "see `kiln calc --help`", ErrorKind::usage);
  };
}

}  // namespace kiln::cli
