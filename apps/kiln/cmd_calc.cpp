// kiln calc: theory of rings, buckets and sharding, compared with stored measurements.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "dist/launch/transports.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/rank_options.h"
#include "rows/result_log.h"
#include "studies/calc/calc.h"
#include "train/memory_prediction.h"

namespace kiln::cli {

void add_calc_theory(Command& calc, const CommonOptions& common);  // the subjects that need no stored rows

namespace {

constexpr const char* kBucketExample = "kiln calc bucket --s 512MB --w 10GB/s --o 20us";

struct Asked {
  RingRequest ring;
  BucketRequest bucket;
  SavingsRequest savings;
  ModelOptions bucket_model = {}, savings_model = {.sizes = {"xl26"}};
  std::optional<Bytes> gradients;
  std::optional<double> w, o;  // bytes a second, seconds
  Precision precision = Precision::fp32;
  PageFormat format = PageFormat::text;
};

// One number of a link, in its unit: 10GB/s, 20us.
TextForm<std::optional<double>> link_number_form(const char* option, const char* expected,
                                                 const char* in_a_link, double LinkModel::* field) {
  return {[=](const std::string& text) -> std::optional<double> {
            try {
              return LinkModel::parse(fmt::format(fmt::runtime(in_a_link), text), option).*field;
            } catch (const Error&) {
              throw Error(fmt::format("{} is '{}'; expected {}", option, text, expected), kBucketExample,
                          ErrorKind::usage);
            }
          },
          [](const std::optional<double>& value) { return value ? number_text(*value) : std::string(); }};
}

TextForm<std::optional<Bytes>> some_bytes_form(const char* option) {
  const TextForm<Bytes> one = bytes_form(option);
  return {[=](const std::string& text) { return std::optional(one.read(text)); },
          [=](const std::optional<Bytes>& b) { return b ? one.write(*b) : std::string(); }};
}

Command& add_subject(Command& calc, const char* name, const char* summary, const char* example) {
  Command& c = calc.sub(name, summary, example);
  c.note = "Nothing is measured: achieved figures are rows stored in --out by a bench.";
  return c;
}

void add_place(Command& c, CalcPlace& place, PageFormat& format) {
  c.opt("--transport", place.transport, transport_names(),
        "transport of the stored rows: " + transport_list());
  add_page_options(c, format);
}

void finish_place(CalcPlace& place, const CommonOptions& common) {
  place.folder = common.out;
  if (common.device != "auto") place.device = common.device == "cuda" ? "cuda:0" : common.device;
}

// A span of it is passed on within one expression.
std::vector<Json> stored_in(const std::string& folder) {
  StoredResults results = read_results(folder);
  for (const std::string& line : results.notes) fmt::print(stderr, "{}\n", line);
  return std::move(results.rows);
}

void show(const StudyPage& page, PageFormat format) { std::fputs(written(page, format).c_str(), stdout); }

void add_ring(Command& calc, const CommonOptions& common, const std::shared_ptr<Asked>& asked) {
  RingRequest& r = asked->ring;
  Command& c = add_subject(calc, "ring", "cost of ring collectives, also of the alternative algorithm",
                           "kiln calc ring --bytes 100MB --ranks 2,4,8 --link latency=5us,bandwidth=50GB/s");
  c.opt("--bytes", r.sizes, list_form(bytes_form("--bytes")), "tensor sizes")
      .was("--size")
      .value("BYTES,...");
  c.opt("--ranks", r.ranks, between(2, 1 << 20), "numbers of ranks");
  c.opt("--link", r.link, link_form(), "link between neighbouring ranks: latency=5us,bandwidth=50GB/s")
      .value("MODEL")
      .unset("fitted to stored rows");
  add_place(c, r.place, asked->format);
  c.run = [asked, &c, &common] {
    const PageFormat format = page_format(c, asked->format, common);
    finish_place(asked->ring.place, common);
    show(ring_page(calc_ring(asked->ring, stored_in(common.out)), common.wide), format);
  };
}

void finish_bucket(Asked& asked) {
  BucketRequest& r = asked.bucket;
  const bool model = !asked.bucket_model.sizes.empty() || !asked.bucket_model.model.empty();
  if (asked.gradients.has_value() == model)
    throw Error(model ? "--s and a model are both given; expected one of them"
                      : "kiln calc bucket needs --s BYTES, --size NAME or --model PATH",
                kBucketExample, ErrorKind::usage);
  if (asked.w.has_value() != asked.o.has_value())
    throw Error(fmt::format("--{} is given without --{}", asked.w ? "w" : "o", asked.w ? "o" : "w"),
                kBucketExample, ErrorKind::usage);
  if (asked.w && r.link)
    throw Error("--link and --w are both given; expected one of them",
                "--w and --o are of a sum, --link of a ring's links", ErrorKind::usage);
  if (asked.gradients) {
    r.bytes = static_cast<double>(asked.gradients->value);
  } else {
    const int64_t parameters = count_params(config_of(model_of(asked.bucket_model))).total();
    r.bytes = static_cast<double>(parameters) * static_cast<double>(size_of(policy_of(asked.precision).grad));
  }
  if (asked.w) r.cost = SumCost{*asked.w, *asked.o};
  std::erase(r.bucket_mb, 0);  // auto: the best one is there anyway
}

void add_bucket(Command& calc, const CommonOptions& common, const std::shared_ptr<Asked>& asked) {
  BucketRequest& r = asked->bucket;
  Command& c =
      add_subject(calc, "bucket", "best size of a gradient bucket, and the cost of others", kBucketExample);
  c.opt("--s", asked->gradients, some_bytes_form("--s"), "bytes of all gradients, instead of a model")
      .value("BYTES");
  add_model_options(c.options, asked->bucket_model, /*several=*/false);
  c.opt("--precision,--dtype", asked->precision, precision_form(), "precision of the model: {}")
      .offers(precision_names());
  c.opt("--w", asked->w,
        link_number_form("--w", "a rate with its unit, such as 10GB/s", "latency=0us,bandwidth={}",
                         &LinkModel::bandwidth),
        "bandwidth of a sum, such as 10GB/s; with --o")
      .value("RATE");
  c.opt("--o", asked->o,
        link_number_form("--o", "a time with its unit, such as 20us", "latency={},bandwidth=1GB/s",
                         &LinkModel::latency),
        "overhead of a call, such as 20us; with --w")
      .value("TIME");
  c.opt("--link", r.link, link_form(),
        "link of a ring, instead of --w and --o: latency=10us,bandwidth=20GB/s")
      .value("MODEL");
  c.opt("--ranks", r.ranks, between(2, 1 << 20), "number of ranks");
  c.opt("--bucket-mb", r.bucket_mb, list_form(bucket_form(1e-6, 0)),
        "bucket sizes to compare with the best, in 10^6 bytes; auto: only the best")
      .value("X,...");
  add_place(c, r.place, asked->format);
  c.run = [asked, &c, &common] {
    const PageFormat format = page_format(c, asked->format, common);
    finish_place(asked->bucket.place, common);
    finish_bucket(*asked);
    show(bucket_page(calc_bucket(asked->bucket, stored_in(common.out)), common.wide), format);
  };
}

void add_savings(Command& calc, const CommonOptions& common, const std::shared_ptr<Asked>& asked) {
  SavingsRequest& r = asked->savings;
  Command& c = add_subject(calc, "fsdp-savings", "memory saved by FSDP, against no sharding and ZeRO-1",
                           "kiln calc fsdp-savings --size xl26 --ranks 2,4,8 --precision fp32");
  add_model_options(c.options, asked->savings_model, /*several=*/false);
  c.opt("--precision,--dtype", r.study.precision, precision_form(), "{}").offers(precision_names());
  c.opt("--ranks", r.ranks, between(2, 1 << 20), "numbers of ranks");
  add_batch_options(c, r.study);
  c.opt("--ctx,--context", r.study.context, between(1, 1 << 24), "sequence length");
  add_place(c, r.place, asked->format);
  c.run = [asked, &c, &common] {
    const PageFormat format = page_format(c, asked->format, common);
    check_batch_options(c);
    SavingsRequest& q = asked->savings;
    finish_place(q.place, common);
    q.study.size = model_of(asked->savings_model);
    q.study.seed = common.seed;
    show(savings_page(calc_savings(q, stored_in(common.out)), common.wide), format);
  };
}

}  // namespace

void add_calc(Command& command, const CommonOptions& common) {
  const auto asked = std::make_shared<Asked>();
  command.needs = "the name of a subject";
  add_calc_theory(command, common);
  add_ring(command, common, asked);
  add_bucket(command, common, asked);
  add_savings(command, common, asked);
}

}  // namespace kiln::cli
