#include "train/inject/injection.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/options.h"

namespace kiln {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;

constexpr NamedValue<FaultPoint> kPoints[] = {{"init", FaultPoint::init},
                                              {"forward", FaultPoint::forward},
                                              {"backward", FaultPoint::backward},
                                              {"reduce", FaultPoint::reduce},
                                              {"update", FaultPoint::update},
                                              {"save", FaultPoint::save},
                                              {"save.sync", FaultPoint::save_sync},
                                              {"save.manifest", FaultPoint::save_manifest},
                                              {"save.publish", FaultPoint::save_publish},
                                              {"save.retire", FaultPoint::save_retire},
                                              {"finalize", FaultPoint::finalize}};

constexpr NamedValue<NanSite> kSites[] = {{"activation", NanSite::activation},
                                          {"gradient", NanSite::gradient},
                                          {"bucket", NanSite::bucket},
                                          {"weight", NanSite::weight},
                                          {"loss", NanSite::loss}};

template <class E, std::size_t N>
E value_of(const std::string& name, const std::string& text, const NamedValue<E> (&known)[N]) {
  return known[which_value<E>(name, text, known)].value;
}

template <auto Field>
void read_count(Injection& i, const std::string& name, const std::string& text, int64_t least, int64_t most) {
  using T = std::remove_reference_t<decltype(i.*Field)>;
  i.*Field = static_cast<T>(read_integer_option(name, text, least, most));
}

constexpr FaultKeyRow kKeys[] = {
    {"rank", "N", "the rank, from 0 (default 0)",
     [](Injection& i, const std::string& name, const std::string& text) {
       read_count<&Injection::rank>(i, name, text, 0, 1 << 16);
     }},
    {"step", "N", "the step, from 1; of slow the first one (default 1)",
     [](Injection& i, const std::string& name, const std::string& text) {
       read_count<&Injection::step>(i, name, text, 1, kMany);
     }},
    {"until", "N", "the last step (default: the run's)",
     [](Injection& i, const std::string& name, const std::string& text) {
       read_count<&Injection::until>(i, name, text, 1, kMany);
     }},
    {"point", "NAME", "where in the step, in its save, or in the run (default forward)",
     [](Injection& i, const std::string& name, const std::string& text) {
       i.point = value_of(name, text, kPoints);
     }},
    {"site", "NAME",
     "activation, gradient, bucket (after its sum over ranks), weight or loss (default activation)",
     [](Injection& i, const std::string& name, const std::string& text) {
       i.site = value_of(name, text, kSites);
     }},
    {"value", "nan|inf", "what is written (default nan)",
     [](Injection& i, const std::string& name, const std::string& text) {
       constexpr std::string_view kWords[] = {"nan", "inf"};
       i.infinite = which_name(name, text, kWords) == 1;
     }},
    {"factor", "X", "times as long (default 3)",
     [](Injection& i, const std::string& name, const std::string& text) {
       i.factor = read_number_option(name, text, 1, 1000);
     }},
    {"seconds", "X", "how long (default: until SIGCONT)",
     [](Injection& i, const std::string& name, const std::string& text) {
       i.seconds = read_number_option(name, text, 0.001, 1e6);
     }},
    {"tensor", "TEXT", "a part of the weight's name (default: the first of a block)",
     [](Injection& i, const std::string& name, const std::string& text) {
       if (text.empty()) throw Error(cat(name, " is empty"), {}, ErrorKind::usage);
       i.tensor = text;
     }},
    {"element", "N", "of the rank's part of it (default 0)",
     [](Injection& i, const std::string& name, const std::string& text) {
       read_count<&Injection::element>(i, name, text, 0, kMany);
     }},
    {"bit", "N", "of the element, from the lowest (default 0)",
     [](Injection& i, const std::string& name, const std::string& text) {
       read_count<&Injection::bit>(i, name, text, 0, 63);
     }},
    {"call", "N", "which of the save's writes or fsyncs, or of the step's allocations (default 1)",
     [](Injection& i, const std::string& name, const std::string& text) {
       read_count<&Injection::call>(i, name, text, 1, 1 << 30);
     }}};

const FaultKindRow kKinds[] = {{"kill",
                                FaultKind::kill,
                                {"rank", "step", "point"},
                                "ends the rank's process by SIGKILL",
                                "kill:rank=1,step=7,point=reduce"},
                               {"stall",
                                FaultKind::stall,
                                {"rank", "step", "point", "seconds"},
                                "stops the rank's process (SIGSTOP), or with seconds its thread for so long",
                                "stall:rank=1,step=7,seconds=5"},
                               {"slow",
                                FaultKind::slow,
                                {"rank", "step", "until", "factor"},
                                "makes every op of the rank take as many times as long",
                                "slow:rank=1,factor=3"},
                               {"nan",
                                FaultKind::nan,
                                {"rank", "step", "site", "value", "tensor", "element"},
                                "writes NaN into one element",
                                "nan:rank=1,step=7,site=gradient"},
                               {"flip",
                                FaultKind::flip,
                                {"rank", "step", "tensor", "element", "bit"},
                                "flips one bit of one weight before the step",
                                "flip:rank=1,step=5"},
                               {"enospc",
                                FaultKind::enospc,
                                {"rank", "step", "call"},
                                "a write of the save after the step finds the disk full",
                                "enospc:step=10,call=2"},
                               {"eio",
                                FaultKind::eio,
                                {"rank", "step", "call"},
                                "an fsync of the save after the step fails",
                                "eio:step=10,call=2"},
                               {"oom",
                                FaultKind::oom,
                                {"rank", "step", "call"},
                                "an allocation of the step finds the device full",
                                "oom:rank=1,step=7,call=20"}};

[[noreturn]] void refuse(std::string_view text, const std::string& what, const std::string& hint = {}) {
  throw Error(cat("--inject ", text, ": ", what), hint, ErrorKind::usage);
}

std::string suggestion(std::string_view wanted, std::span<const std::string_view> names) {
  const std::string near = nearest_name(wanted, names);
  return near.empty() ? "" : cat("did you mean '", near, "'?");
}

std::string list(std::span<const std::string_view> names) {
  std::vector<std::string> words(names.begin(), names.end());
  return or_list(words);
}

const FaultKindRow& kind_named(std::string_view text, std::string_view name) {
  std::vector<std::string_view> names;
  for (const FaultKindRow& row : kKinds) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  refuse(text, cat("'", name, "' is no kind of fault; expected ", list(names)), suggestion(name, names));
}

void read_key(Injection& i, const FaultKindRow& kind, std::string_view item,
              std::vector<std::string_view>& seen) {
  const std::size_t equals = item.find('=');
  const std::string_view key = item.substr(0, equals);
  if (std::find(kind.keys.begin(), kind.keys.end(), key) == kind.keys.end())
    refuse(i.text, cat(kind.name, " has no key '", key, "'; it takes ", list(kind.keys)),
           suggestion(key, kind.keys));
  if (equals == std::string_view::npos || equals + 1 == item.size())
    refuse(i.text, cat("'", key, "' has no value"), cat("for example --inject ", kind.example));
  if (std::find(seen.begin(), seen.end(), key) != seen.end())
    refuse(i.text, cat("'", key, "' is there twice"));
  seen.push_back(key);
  const auto row =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const FaultKeyRow& r) { return r.name == key; });
  row->read(i, cat("--inject ", i.text, ": ", key), std::string(item.substr(equals + 1)));
}

bool outside_steps(const Injection& i) {
  return (i.kind == FaultKind::kill || i.kind == FaultKind::stall) &&
         (i.point == FaultPoint::init || i.point == FaultPoint::finalize);
}

bool in_a_save(const Injection& i) {
  const bool timed = i.kind == FaultKind::kill || i.kind == FaultKind::stall;
  return i.kind == FaultKind::enospc || i.kind == FaultKind::eio || (timed && is_of_save(i.point));
}

// A step must be named where there are many, and not where there are none.
void check_step(Injection& i, const FaultKindRow& kind) {
  if (outside_steps(i)) {
    if (i.step != 0)
      refuse(i.text, cat("point=", name_of(i.point), " is outside of all steps"), "leave step out");
    return;
  }
  if (i.kind == FaultKind::slow) i.step = std::max<int64_t>(i.step, 1);
  if (i.step == 0)
    refuse(i.text, cat(kind.name, " needs a step"), cat("for example --inject ", kind.example));
  if (i.until != 0 && i.until < i.step) refuse(i.text, cat("until is ", i.until, ", before step ", i.step));
}

}  // namespace

std::span<const FaultKindRow> fault_kinds() { return kKinds; }
std::span<const FaultKeyRow> fault_keys() { return kKeys; }

std::vector<std::string_view> fault_point_names() {
  std::vector<std::string_view> names;
  for (const auto& p : kPoints) names.push_back(p.name);
  return names;
}

std::string_view name_of(FaultPoint point) {
  return name_of_value(point, std::span<const NamedValue<FaultPoint>>(kPoints));
}

bool is_of_save(FaultPoint point) { return point >= FaultPoint::save && point <= FaultPoint::save_retire; }

Injection parse_injection(std::string_view text) {
  Injection i;
  i.text = text;
  const std::size_t colon = text.find(':');
  const FaultKindRow& kind = kind_named(text, text.substr(0, colon));
  i.kind = kind.kind;
  std::vector<std::string_view> seen;
  const std::string_view items = colon == std::string_view::npos ? std::string_view() : i.text;
  for (std::size_t at = colon + 1; at < items.size();) {
    const std::size_t end = std::min(items.find(',', at), items.size());
    read_key(i, kind, items.substr(at, end - at), seen);
    at = end + 1;
  }
  check_step(i, kind);
  return i;
}

std::vector<Injection> parse_injections(std::span<const std::string> texts) {
  std::vector<Injection> all;
  for (const std::string& text : texts) all.push_back(parse_injection(text));
  return all;
}

void check_injections(std::span<const Injection> injections, const InjectedRun& run) {
  for (const Injection& i : injections) {
    if (i.rank >= run.ranks) refuse(i.text, cat("there is no rank ", i.rank, "; --ranks is ", run.ranks));
    if (i.step > run.steps) refuse(i.text, cat("step is ", i.step, " and --steps is ", run.steps));
    const bool reduces = i.kind == FaultKind::nan ? i.site == NanSite::bucket : i.point == FaultPoint::reduce;
    if (reduces && !run.sums_gradients)
      refuse(i.text, "nothing is summed over ranks with --strategy none",
             "name a strategy, ddp:bucketed say");
    if (!in_a_save(i)) continue;
    if (i.step != run.steps && (run.save_every == 0 || i.step % run.save_every != 0))
      refuse(i.text, cat("no checkpoint is saved after step ", i.step, "; --save-every is ", run.save_every));
    if (i.rank > 0 && i.point > FaultPoint::save_sync && i.kind != FaultKind::enospc &&
        i.kind != FaultKind::eio)
      refuse(i.text, cat("only rank 0 comes to ", name_of(i.point)), "leave rank out");
  }
}

}  // namespace kiln
