#include "kiln/rank_options.h"

#include <array>

#include "base/error.h"
#include "dist/launch/transports.h"
#include "kiln/bench_options.h"

namespace kiln::cli {
namespace {

std::string written_bytes(const Bytes& b) {
  constexpr std::array<std::pair<const char*, std::size_t>, 3> kUnits = {
      {{"GB", 1'000'000'000}, {"MB", 1'000'000}, {"KB", 1'000}}};
  for (const auto& [unit, value] : kUnits)
    if (b.value > 0 && b.value % value == 0) return cat(b.value / value, unit);
  return cat(b.value);
}

}  // namespace

TextForm<std::optional<LinkModel>> link_form(const char* option) {
  return {[option](const std::string& text) {
            return text.empty() ? std::nullopt : std::optional(LinkModel::parse(text, option));
          },
          [](const std::optional<LinkModel>& link) { return link ? link->str() : std::string(); }};
}

TextForm<Bytes> bytes_form(const char* option) {
  return {[option](const std::string& text) {
            const Bytes b = parse_bytes(text, option);
            if (b.value == 0)
              throw Error(cat(option, " is ", text, "; expected at least a byte"), "such as 512MB",
                          ErrorKind::usage);
            return b;
          },
          written_bytes};
}

TextForm<std::string> one_of_form(const char* option, std::vector<std::string_view> known) {
  return {[option, known = std::move(known)](const std::string& text) {
            return std::string(known[which_name(option, text, known)]);
          },
          [](const std::string& word) { return word; }};
}

TextForm<bool> on_off_form(const char* option) {
  return {[option](const std::string& text) {
            constexpr std::string_view kWords[] = {"on", "off", "true", "false"};
            return which_name(option, text, kWords) % 2 == 0;
          },
          [](const bool& on) { return std::string(on ? "on" : "off"); }};
}

TextForm<double> bucket_form(double least, double automatic) {
  return {[=](const std::string& text) {
            return text == "auto" ? automatic : read_number_option("--bucket-mb", text, least, 1e9);
          },
          [=](const double& mb) { return mb == automatic ? std::string("auto") : number_text(mb); }};
}

bool was_given(const Command& command, std::string_view option) {
  const Option* found = command.options.find(option);
  return found != nullptr && !found->given().empty();
}

void add_ranks_options(Command& c, RanksStudy& r, RanksAsked& asked, int least_warmups) {
  add_model_options(c.options, asked.model, /*several=*/false);
  c.opt("--transport", r.transport, transport_names(/*with_auto=*/true),
        "transport: threads, or the one `kiln run` has started the ranks with");
  c.opt("--oversubscribe", r.oversubscribe, "more than 4 ranks to a core").not_in_config();
  c.opt("--link", r.link, link_form(), "simulated link that paces collectives: latency=50us,bandwidth=1GB/s")
      .value("MODEL");
  c.opt("--ctx,--context", r.context, between(1, 1 << 24), "sequence length");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step");
  c.opt("--precision,--dtype", r.precision, precision_form(), "{}").offers(precision_names());
  c.opt("--warmup", r.warmups, between(least_warmups, 1 << 20), "warm-up steps");
  c.opt("--steps", r.steps, between(1, 1 << 20), "timed steps");
  c.opt("--threads", r.threads, thread_range(), "CPU threads of each rank")
      .unset("the machine's, split among ranks");
}

void add_batch_options(Command& c, RanksStudy& r) {
  c.opt("--batch", r.total_batch, between(1, 1 << 30), "global micro-batch size, divided among the ranks")
      .unset("that of --batch-per-rank on each");
  c.opt("--batch-per-rank", r.batch, between(1, 1 << 20),
        "micro-batch size of each rank, however many there are");
}

void check_batch_options(const Command& command) {
  if (was_given(command, "--batch") && was_given(command, "--batch-per-rank"))
    throw Error("--batch and --batch-per-rank are both given; expected one of them",
                "--batch is of all ranks together", ErrorKind::usage);
}

void add_ranks_page_options(Command& c, RanksAsked& asked, const char* drawn) {
  c.opt("--export", asked.charts, one_of({"svg", "none"}), drawn).not_in_config();
  add_page_options(c, asked.format);
  add_sweep_options(c, asked.sweep);
}

void finish_ranks_study(const Command& command, const CommonOptions& common, const RanksAsked& asked,
                        RanksStudy& study) {
  study.size = model_of(asked.model);
  study.transport = study_transport(was_given(command, "--transport") ? study.transport : "auto");
  study.seed = common.seed;
  study.folder = common.out;
}

}  // namespace kiln::cli
