#include "studies/course/parts.h"

#include <fmt/format.h>

#include <map>

#include "base/choice.h"
#include "base/error.h"

namespace kiln {
namespace {

// Full scale is meant for one GPU with 80 GB or more. The courses time with 5 warm-ups and 10 steps; a
// profile needs fewer, since it counts and shares more than it times. Attention's 100 calls stop after a
// second: the naive rows of long sequences would take minutes, and say nothing more.
// clang-format off
// Section 2. Ranks are threads that share the one device: what they exchange is real, how fast is not an
// interconnect's.
// The same in both.
constexpr StudyPart kAllReduce = {"allreduce", "all-reduce by size and ranks: time, bandwidth, latency or bandwidth bound", "bench allreduce",
     "--bytes 1MB,10MB,100MB,1GB --ranks 2,4,6 --export svg", "--bytes 64KB,1MB,4MB --ranks 2,4 --samples 10 --export svg", false, true};
constexpr StudyPart kDdp = {"ddp", "four forms of data parallelism and every bucket size: time, communication, how much of it is hidden", "bench ddp",
     "--size large --ranks 2 --batch 4 --ctx 128 --form naive,flat,overlap,bucketed --bucket-mb 1,10,100,1000 --export svg",
     "--size nano --ranks 2 --batch 2 --ctx 32 --form naive,flat,overlap,bucketed --bucket-mb 0.1,1,10 --steps 6 --warmup 2 --export svg", false, true};
constexpr StudyPart kZero = {"zero", "memory and time with optimizer state, gradients and weights sharded, against the paper", "bench zero",
     "--size large --ranks 1,2 --batch-per-rank 2 --ctx 128 --stage 0,1,2,3 --export svg",
     "--size nano --ranks 1,2 --batch-per-rank 1 --ctx 32 --stage 0,1,2,3 --steps 3 --export svg", false, true};
constexpr StudyPart kFsdp = {"fsdp", "were the gathered weights there in time, layer by layer", "bench fsdp",
     "--size large --ranks 2 --batch 4 --ctx 128 --prefetch 0,1,2 --export svg",
     "--size nano --ranks 2 --batch 2 --ctx 32 --prefetch 0,1,2 --steps 4 --warmup 2 --export svg", false, true};
constexpr StudyPart kBestBucket = {"calc-bucket", "the best bucket by equation, for given bandwidth and overhead", "calc bucket",
     "--size large --w 10GB/s --o 20us --ranks 2", "--size large --w 10GB/s --o 20us --ranks 2", true, true};

constexpr StudyPart kStudy2025[] = {
    {"step", "forward, backward and optimizer of every size; fp32 against bf16; growth with the parameters",
     "bench step",
     "--size small,medium,large,xl25,2.7b --ctx 512 --batch 4 --vocab 10000 --dtype fp32,bf16 --preset baseline --mode full --warmup 5 --steps 10 --export svg",
     "--size nano,micro,tiny --ctx 64 --batch 4 --vocab 1000 --dtype fp32,bf16 --preset baseline --mode full --warmup 5 --steps 10 --export svg",
     false, true},
    {"step-ctx", "forward, and forward with backward, over the length of a sequence", "bench step",
     "--size small,medium --ctx 128,256,512 --batch 4 --vocab 10000 --dtype fp32 --preset baseline --mode forward,forward-backward --warmup 5 --steps 10 --export svg",
     "--size nano,micro --ctx 64,128,256 --batch 4 --vocab 1000 --dtype fp32 --preset baseline --mode forward,forward-backward --warmup 2 --steps 6 --export svg",
     false, true},
    {"step-fused", "the whole model unfused, and fused and captured as a graph", "bench step",
     "--size small,medium,large,xl25,2.7b --ctx 512 --batch 4 --vocab 10000 --dtype bf16 --preset both --mode forward,full --warmup 5 --steps 10 --export svg",
     "--size nano,micro,tiny --ctx 64 --batch 4 --vocab 1000 --dtype bf16 --preset both --mode forward,full --warmup 2 --steps 6 --export svg",
     false, true},
    {"warmup", "cost of first steps, and its causes", "bench warmup",
     "--size small --ctx 512 --batch 4 --dtype fp32 --preset baseline --warmup 0,1,2,5 --steps 10",
     "--size nano --ctx 64 --batch 4 --dtype fp32 --preset baseline --warmup 0,1,2,5 --steps 10",
     false, true},
    {"profile", "kernels of forward, backward and optimizer, for every size and context", "profile",
     "--size small,medium,large,xl25,2.7b --ctx 128,256,512,1024 --batch 4 --dtype bf16 --preset baseline --phase forward,backward,optimizer --warmup 1 --steps 2",
     "--size nano,micro --ctx 32,64,128,256 --batch 4 --dtype bf16 --preset baseline --phase forward,backward,optimizer --warmup 1 --steps 1",
     false, true},
    {"precision-accumulate", "one number added a thousand times, in each pair of formats", "precision accumulate",
     "--count 1000 --value 0.01", "--count 1000 --value 0.01", true, false},
    {"precision-toymodel", "the format of every tensor under autocast", "precision toymodel", "", "", true, false},
    {"precision-layernorm", "the part of a norm that fails in 16 bits", "precision layernorm", "", "", true, false},
    {"precision-accumulation", "gradients over micro-batches, in each format", "precision accumulation", "", "", false, false},
    {"memory", "peaks of forward and of a full step, for every size, fp32 and bf16", "memory",
     "--size small,medium,large,xl25,2.7b --ctx 512 --batch 4 --dtype fp32,bf16 --preset baseline --phase forward,full --export none",
     "--size nano,micro,tiny --ctx 64 --batch 4 --dtype fp32,bf16 --preset baseline --phase forward,full --export none",
     true, false},
    {"memory-ctx", "timelines and peaks over the length of a sequence; the largest allocations", "memory",
     "--size 2.7b --ctx 128,256,512 --batch 4 --dtype fp32,bf16 --preset baseline --phase forward,full --detail 10 --export svg,html,pickle",
     "--size micro --ctx 64,128,256 --batch 4 --dtype fp32,bf16 --preset baseline --phase forward,full --detail 10 --export svg,html,pickle",
     true, false},
    {"memory-scaling", "exponent of activation growth with the context, naive and flash", "memory scaling",
     "--size small --ctx 128..4096 --batch 4 --dtype bf16 --attention naive,flash --export svg",
     "--size nano --ctx 64..512 --batch 4 --dtype bf16 --attention naive,flash --export svg",
     true, false},
    {"attention", "attention alone, unfused against fused: time, memory before backward, what does not fit",
     "bench attention",
     "--batch 8 --heads none --d 16,32,64,128 --seq 256,1024,4096,8192,16384 --dtype fp32 --iters 100 --seconds 1 --variant composed,auto",
     "--batch 8 --heads none --d 16,32,64,128 --seq 16,32,64,128,256 --dtype fp32 --iters 5 --seconds 1 --variant composed,auto",
     true, true},
    {"attention-naive", "the same with plain loops, where they finish in time", "bench attention",
     "--batch 8 --heads none --d 16,32,64,128 --seq 256,1024,4096 --dtype fp32 --iters 100 --seconds 1 --variant naive,auto",
     "--batch 8 --heads none --d 16,32,64,128 --seq 16,32,64 --dtype fp32 --iters 5 --seconds 1 --variant naive,auto",
     true, true},
    {"flash", "attention's kernels with a cold cache, unfused against fused, from 128 to 65,536 tokens", "bench flash",
     "--batch 1 --causal --seq 128..65536 --d 16..128 --dtype bf16,fp32 --seconds 0.2 --variant composed,auto",
     "--batch 1 --causal --seq 32..128 --d 16..32 --dtype bf16,fp32 --iters 5 --seconds 0.2 --variant composed,auto",
     true, true},
    {"flash-naive", "the same with plain loops, where they finish in time", "bench flash",
     "--batch 1 --causal --seq 128..8192 --d 16..128 --dtype bf16,fp32 --seconds 0.1 --variant naive,auto",
     "--batch 1 --causal --seq 32..64 --d 16..32 --dtype bf16,fp32 --iters 5 --seconds 0.1 --variant naive,auto",
     true, true},
    {"leaderboard-flash", "the shape published elsewhere, forward and backward", "bench leaderboard flash",
     "--heads 16 --seq 16384 --d 64 --dtype bf16 --warmup 1 --seconds 10",
     "--heads 2 --seq 256 --d 64 --dtype bf16 --warmup 0.1 --seconds 0.3",
     true, true},
    kAllReduce,
    kDdp,
    kZero,
    kFsdp,
    kBestBucket,
    {"calc-xxl", "a model far too large for a device: memory, sharding, batch per device", "calc xxl", "", "", true, true},
};

constexpr StudyPart kStudy2026[] = {
    {"step", "forward, backward and optimizer of every size; fp32 against bf16; growth with the parameters",
     "bench step",
     "--size small,medium,large,xl26,10b --ctx 512 --batch 4 --vocab 10000 --dtype fp32,bf16 --preset baseline --mode full --warmup 5 --steps 10 --export svg",
     "--size nano,micro,tiny --ctx 64 --batch 4 --vocab 1000 --dtype fp32,bf16 --preset baseline --mode full --warmup 5 --steps 10 --export svg",
     false, true},
    {"step-10b", "the size that one GPU cannot train: forward only", "bench step",
     "--size 10b --ctx 512 --batch 4 --vocab 10000 --dtype fp32,bf16 --preset baseline --mode forward --warmup 5 --steps 10",
     "--size tiny --ctx 64 --batch 4 --vocab 1000 --dtype fp32,bf16 --preset baseline --mode forward --warmup 5 --steps 10",
     false, true},
    {"warmup", "cost of first steps, and its causes", "bench warmup",
     "--size small --ctx 512 --batch 4 --dtype fp32 --preset baseline --warmup 0,1,2,5 --steps 10",
     "--size nano --ctx 64 --batch 4 --dtype fp32 --preset baseline --warmup 0,1,2,5 --steps 10",
     false, true},
    {"profile", "two sizes, three contexts, the last the largest that fits", "profile",
     "--size small,xl26 --ctx 256,1024,max --batch 4 --dtype bf16 --preset baseline --phase forward,backward,optimizer --warmup 1 --steps 2",
     "--size nano,micro --ctx 64,128,256 --batch 4 --dtype bf16 --preset baseline --phase forward,backward,optimizer --warmup 1 --steps 1",
     false, true},
    {"precision-accumulate", "one number added a thousand times, in each pair of formats", "precision accumulate",
     "--count 1000 --value 0.01", "--count 1000 --value 0.01", true, false},
    {"precision-toymodel", "the format of every tensor under autocast", "precision toymodel", "", "", true, false},
    {"precision-layernorm", "the part of a norm that fails in 16 bits", "precision layernorm", "", "", true, false},
    {"memory", "timelines and peaks at a short and a long context; the largest allocations", "memory",
     "--size xl26 --ctx 128,2048 --batch 4 --dtype fp32,bf16 --preset baseline --phase forward,full --detail 10 --export svg,html,pickle",
     "--size micro --ctx 32,256 --batch 4 --dtype fp32,bf16 --preset baseline --phase forward,full --detail 10 --export svg,html,pickle",
     true, false},
    {"memory-fused", "the same peaks with fused ops and flash attention", "memory",
     "--size xl26 --ctx 128,2048 --batch 4 --dtype fp32,bf16 --preset optimized --phase forward,full --export none",
     "--size micro --ctx 32,256 --batch 4 --dtype fp32,bf16 --preset optimized --phase forward,full --export none",
     true, false},
    {"residuals-block", "what one block saves for backward, and its five largest ops", "residuals",
     "--block --size xl26 --batch 4 --ctx 2048 --dtype fp32 --preset baseline,optimized",
     "--block --size micro --batch 4 --ctx 256 --dtype fp32 --preset baseline,optimized",
     true, false},
    {"residuals-block-16-heads", "the same with half as many heads, and four blocks recomputed two by two", "residuals",
     "--block --size xl26 --batch 4 --ctx 2048 --heads 16 --layers 4 --dtype fp32 --preset baseline,optimized",
     "--block --size micro --batch 4 --ctx 256 --heads 2 --layers 4 --dtype fp32 --preset baseline,optimized",
     true, false},
    {"residuals-rms-norm", "what a norm saves, unfused and fused", "residuals",
     "--op rms_norm --shape 4,512,2560 --dtype fp32", "--op rms_norm --shape 4,512,2560 --dtype fp32", true, false},
    {"recompute", "blocks recomputed as one span: memory, and its cost in time", "memory recompute-sweep",
     "--size xl26 --batch 4 --ctx 2048 --dtype fp32 --blocks 1,2,4,8,16,32 --steps 1",
     "--size micro --batch 4 --ctx 256 --dtype fp32 --blocks 1,2,4 --steps 1",
     true, false},
    {"attention", "attention alone, unfused against fused: time, memory before backward, what does not fit",
     "bench attention",
     "--batch 8 --heads none --d 16,32,64,128 --seq 256,1024,4096,8192,16384 --dtype fp32 --iters 100 --seconds 1 --variant composed,auto",
     "--batch 8 --heads none --d 16,32,64,128 --seq 16,32,64,128,256 --dtype fp32 --iters 5 --seconds 1 --variant composed,auto",
     true, true},
    {"attention-naive", "the same with plain loops, where they finish in time", "bench attention",
     "--batch 8 --heads none --d 16,32,64,128 --seq 256,1024,4096 --dtype fp32 --iters 100 --seconds 1 --variant naive,auto",
     "--batch 8 --heads none --d 16,32,64,128 --seq 16,32,64 --dtype fp32 --iters 5 --seconds 1 --variant naive,auto",
     true, true},
    {"weighted-sum", "a first kernel: forward and backward against naive", "bench op weighted_sum",
     "--shape rows=8192,cols=2048 --dtype fp32", "--shape rows=256,cols=96 --dtype fp32", false, true},
    kAllReduce,
    kDdp,
    kZero,
    kFsdp,
    kBestBucket,
    {"calc-ring", "ring collectives and the alternative all-reduce, by formula", "calc ring",
     "--bytes 1MB,100MB,1GB --ranks 2,4,8 --link latency=5us,bandwidth=50GB/s",
     "--bytes 1MB,100MB,1GB --ranks 2,4,8 --link latency=5us,bandwidth=50GB/s", true, true},
    {"calc-fsdp-savings", "what sharding everything saves, against nothing and ZeRO-1", "calc fsdp-savings",
     "--size large --ranks 2,4,8", "--size nano --ranks 2,4,8", true, true},
    {"calc-dp", "data parallelism of a feed-forward block: operations, communication, most devices", "calc dp", "", "", true, true},
    {"calc-fsdp", "the same with weights gathered", "calc fsdp", "", "", true, true},
    {"calc-tp", "the same with each matrix shared out", "calc tp", "", "", true, true},
    {"calc-2d", "the best split between both", "calc 2d", "", "", true, true},
};
// clang-format on

constexpr Study kStudies[] = {{"2025", kStudy2025}, {"2026", kStudy2026}};

std::vector<std::string> split_at_spaces(std::string_view text) {
  std::vector<std::string> args;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) args.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return args;
}

// Option and value; a flag has none.
std::vector<std::pair<std::string, std::string>> options_of(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> options;
  for (std::string& arg : split_at_spaces(text)) {
    if (arg.starts_with("--"))
      options.emplace_back(std::move(arg), "");
    else
      options.back().second = std::move(arg);
  }
  return options;
}

}  // namespace

std::span<const Study> studies() { return kStudies; }

const Study& find_study(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Study& s : kStudies) names.push_back(s.name);
  for (const Study& s : kStudies)
    if (s.name == name) return s;
  // All of them, also for a near miss: 2024 is no slip of the finger for 2025.
  throw Error(name.empty() ? std::string("kiln study needs the name of a study")
                           : fmt::format("there is no study '{}'", name),
              fmt::format("there are {}", fmt::join(names, " and ")), ErrorKind::usage);
}

std::vector<std::string> args_of(const StudyPart& part, StudyScale scale) {
  std::vector<std::string> args = split_at_spaces(part.command);
  for (std::string& arg : split_at_spaces(scale == StudyScale::full ? part.full : part.tiny))
    args.push_back(std::move(arg));
  return args;
}

std::string reduced(const StudyPart& part) {
  std::string text;
  std::map<std::string, std::string> whole;
  for (auto& [option, value] : options_of(part.full)) whole[option] = value;
  for (const auto& [option, value] : options_of(part.tiny)) {
    const auto found = whole.find(option);
    const std::string before = found == whole.end() ? "the default" : found->second;
    if (before != value)
      text += fmt::format("{}{} {} instead of {}", text.empty() ? "" : "; ", option, value, before);
  }
  return text;
}

}  // namespace kiln
