// The presets of `kiln study`: the sweeps that two editions of a course on training systems need, each an
// ordinary command line of kiln. There is one list for each edition; a part has its options twice, at full
// scale and at one that a laptop finishes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

enum class StudyScale { full, tiny };

struct StudyPart {
  std::string_view name;     // "memory-ctx": of its folder and page, too
  std::string_view answers;  // what its tables say
  std::string_view command;  // "bench step"
  std::string_view full, tiny;
  bool on_meta;   // it has something to say where no kernel runs
  bool markdown;  // takes --format md
};

struct Study {
  std::string_view name;  // "2025"
  std::span<const StudyPart> parts;
};

std::span<const Study> studies();

// Throws Error(usage) for one that does not exist.
const Study& find_study(std::string_view name);

// "bench", "step", "--size", "small", ...: the part's command line, without device, seed and folder.
std::vector<std::string> args_of(const StudyPart& part, StudyScale scale);

// What the tiny scale takes away, option by option: "--ctx 32,64 instead of 128,256"; empty where nothing.
std::string reduced(const StudyPart& part);

}  // namespace kiln
