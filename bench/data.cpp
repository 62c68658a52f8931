// How fast text becomes batches: splitting into words, training a BPE of 10,000 tokens, encoding, loading.
// One thread each.
//
//   build/bench_data                 on 10 MB of synthetic text
//   build/bench_data --text FILE     on your own text (its first 10 MB)
//
// The synthetic text: a lexicon of 80,000 words of one to six syllables, drawn by Zipf's law (the word of
// rank r with weight 1 / (r + 2.7)), with capitals, punctuation, numbers and lines; no stretch repeats.
// Everything from Philox, so it is the same text everywhere.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/rng.h"
#include "data/batch_loader.h"
#include "data/bpe_tokenizer.h"
#include "data/bpe_trainer.h"

namespace kiln {
namespace {

constexpr std::size_t kTextBytes = 10'000'000;

std::string make_text() {
  const PhiloxKey key = philox_key(1, "bench.text");
  uint64_t index = 0;
  const auto draw = [&] { return philox(key, index++, 0).x; };
  static constexpr const char* kOnset[] = {"b", "c", "d", "f",  "g",  "h", "l", "m", "n", "p",
                                           "r", "s", "t", "st", "tr", "v", "w", "",  "",  "ch"};
  static constexpr const char* kVowel[] = {"a", "e", "i", "o", "u", "ea", "ou", "io", "e", "a"};
  static constexpr const char* kCoda[] = {"", "", "", "n", "r", "s", "t", "l", "nd", "ng", "m", "ck"};
  std::vector<std::string> lexicon(80'000);
  for (std::string& word : lexicon) {
    const uint32_t syllables = 1 + draw() % 3 + draw() % 3 + draw() % 2;
    for (uint32_t s = 0; s < syllables; ++s)
      word += cat(kOnset[draw() % std::size(kOnset)], kVowel[draw() % std::size(kVowel)],
                  kCoda[draw() % std::size(kCoda)]);
  }
  std::vector<double> up_to;  // cumulative weights
  up_to.reserve(lexicon.size());
  double sum = 0;
  for (std::size_t r = 0; r < lexicon.size(); ++r) up_to.push_back(sum += 1 / (static_cast<double>(r) + 2.7));
  std::string text;
  bool capital = true;
  while (text.size() < kTextBytes) {
    const double u = draw() * 0x1p-32 * sum;
    const auto rank =
        static_cast<std::size_t>(std::upper_bound(up_to.begin(), up_to.end(), u) - up_to.begin());
    std::string word =
        draw() % 40 == 0 ? std::to_string(draw() % 3000) : lexicon[std::min(rank, lexicon.size() - 1)];
    if (capital) word[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(word[0])));
    capital = draw() % 12 == 0;
    text += word;
    text += capital ? (draw() % 5 == 0 ? ".\n" : ". ") : draw() % 10 == 0 ? ", " : " ";
  }
  text.resize(kTextBytes);
  return text;
}

struct Bench {
  std::string text;
  std::shared_ptr<const BpeTokenizer> tokenizer;
  std::shared_ptr<const TokenSet> tokens;
};

BpeModel train(const std::string& text) {
  const auto splitter = make_splitter("gpt2");
  WordCounts counts(splitter, SpecialTokens(std::vector<SpecialToken>{{std::string(kEndOfText), 0}}));
  ThreadPool pool(1);
  counts.add(text, pool);
  return train_bpe(counts, splitter,
                   {.vocab_size = 10'000, .specials = {std::string(kEndOfText)}, .progress = {}});
}

void rate(benchmark::State& state, const Bench& b) {
  state.counters["MB/s"] = benchmark::Counter(static_cast<double>(b.text.size()) * 1e-6,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void split(benchmark::State& state, const Bench& b, const Splitter& splitter) {
  std::vector<std::string_view> words;
  while (state.KeepRunning()) {
    words.clear();
    splitter.split(b.text, words);
    benchmark::DoNotOptimize(words.data());
  }
  rate(state, b);
}

void train_bpe_10k(benchmark::State& state, const Bench& b) {
  while (state.KeepRunning()) benchmark::DoNotOptimize(train(b.text).merges.size());
}

// With nothing remembered from before, as a fresh start has it.
void encode(benchmark::State& state, const Bench& b) {
  std::vector<int32_t> ids;
  while (state.KeepRunning()) {
    ids.clear();
    const auto scratch = b.tokenizer->make_scratch();
    b.tokenizer->encode_plain(b.text, *scratch, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  rate(state, b);
  state.counters["bytes/token"] = static_cast<double>(b.text.size()) / static_cast<double>(ids.size());
}

// One step of 8 sequences of 1,024 tokens, made by the caller's own thread.
void load(benchmark::State& state, const Bench& b) {
  BatchLoader loader(b.tokens, {.batch = 8, .context = 1024, .prefetch = false});
  while (state.KeepRunning()) benchmark::DoNotOptimize(loader.next().data());
}

void run(const std::string& path) {
  Bench b;
  b.text = path.empty() ? make_text() : std::string(MappedFile(path).text().substr(0, kTextBytes));
  b.tokenizer = make_bpe_tokenizer(train(b.text));
  ThreadPool pool(1);
  std::vector<TokenShard> shards;
  shards.emplace_back(b.tokenizer->encode(b.text), "text");
  b.tokens = std::make_shared<TokenSet>(std::move(shards), b.tokenizer->vocab_size(), pool);

  using benchmark::RegisterBenchmark;
  const auto add = [](const char* name, auto f, const auto&... arguments) {
    RegisterBenchmark(name, [=, &arguments...](benchmark::State& s) {
      f(s, arguments...);
    })->Unit(benchmark::kMillisecond);
  };
  std::vector<std::pair<std::string, std::shared_ptr<const Splitter>>> splitters = {
      {"split/gpt2", make_gpt2_splitter()}};
  if (!pcre2_version().empty()) {
    splitters.emplace_back("split/gpt2 by PCRE2", make_pcre2_splitter(make_gpt2_splitter()->regex(), true));
    for (const char* name : {"cl100k", "o200k"})
      splitters.emplace_back(cat("split/", name), make_splitter(name));
  }
  for (const auto& [name, splitter] : splitters) add(name.c_str(), split, b, *splitter);
  add("train_bpe/10000", train_bpe_10k, b);
  add("encode", encode, b);
  add("load/8x1024", load, b);
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  std::string path;
  if (argc > 2 && std::strcmp(argv[1], "--text") == 0) {
    path = argv[2];
    argv += 2;
    argc -= 2;
  }
  benchmark::Initialize(&argc, argv);
  try {
    kiln::run(path);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_data: %s\n", error.what());
    return 1;
  }
}
