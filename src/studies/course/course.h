// Runs a study: its parts one after another, each in its own process, into one folder. A part that
// fails, runs out of memory or takes too long is named, and the next one runs. After each part the folder has
// all results so far, so that a study that was stopped, or killed, resumes where it was.
//
//   FOLDER/study.json    the outcome of each part: a later run resumes from it
//   FOLDER/study.md      the same to read
//   FOLDER/PART.md       a part's command line and what it printed
//   FOLDER/PART/         what it stored: results.jsonl, charts, traces
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rows/row_status.h"
#include "studies/course/parts.h"

namespace kiln {

struct StudyRequest {
  std::string study;  // "2025"
  StudyScale scale = StudyScale::full;
  std::vector<StudyPart> parts;   // all of the study's, whether requested or not
  std::vector<std::string> only;  // names of those to run; empty: all
  std::string device, seed = "0";
  std::string device_name;     // what it is: figures of another one do not count
  bool on_meta = false;        // no kernel runs there
  std::string out = "runs";    // rows of all parts go to its results.jsonl too
  double timeout = 600;        // seconds, of a part
  bool fresh = false;          // run again what is done
  std::string folder() const;  // OUT/study-2025, OUT/study-2025-tiny
  std::string place() const;   // device and build
};

// What became of one run of a command line.
struct PartRun {
  int status = 0, signal = 0;
  bool timed_out = false, stopped = false;
  double seconds = 0;
  std::string reason;  // its last word
  std::string page;    // what it printed
};

struct PartReport {
  // ok: its program ended with 0. skipped: not requested. interrupted: the study was stopped before its end.
  // The others have a reason.
  StudyPart part;
  std::vector<std::string> args;  // its whole command line, without the program
  std::string id;                 // of all that decides its figures
  bool asked = true;              // by --only
  RowStatus status = RowStatus::interrupted;
  bool reused = false;  // an earlier run did it
  double seconds = 0;
  std::string reason, time;
  std::size_t rows = 0, no_memory = 0;  // stored by it; and how many of them found no memory
  std::vector<std::string> charts;      // from the study's folder
  std::vector<std::string> answers;     // what its rows say, a sentence each
};

std::string_view name_of(StudyScale s);

struct StudyReport {
  StudyRequest request;
  std::vector<PartReport> parts;
  std::vector<std::string> notes;

  bool stopped() const;    // before the last of those requested
  double seconds() const;  // of all parts, earlier runs' too
  std::size_t count(RowStatus status) const;
};

struct StudyTools {
  // Runs `words`; what it stores goes to the folder in them, what it prints becomes the page.
  std::function<PartRun(const std::vector<std::string>& args, const std::string& folder)> run;
  std::function<void(const std::string&)> progress;
  std::function<bool()> stop;
};

// What to run, where and how, from what was typed: the device is looked for in a copy of this process, since
// one that has started CUDA holds memory its parts may want. Throws Error(usage) for parts there are not.
enum class ScaleChoice { automatic, full, tiny };  // automatic: tiny on the CPU
struct StudyChoice {
  std::string study;
  ScaleChoice scale = ScaleChoice::automatic;
  std::vector<std::string> only;  // parts by name
  std::string command;            // those of one command
};
void choose_parts(const StudyChoice& choice, StudyRequest& request);
void choose_place(const StudyChoice& choice, const std::string& device, StudyRequest& request);

// A part in its own process, for StudyTools::run.
PartRun run_part(const std::vector<std::string>& args, const std::string& folder, double timeout,
                 const std::function<bool()>& stop);

// Every part with its command line, nothing run yet.
std::vector<PartReport> plan_study(const StudyRequest& request);

// "kiln bench step --size small ...", as a shell takes it.
std::string shell_line(const std::vector<std::string>& args);

StudyReport run_study(const StudyRequest& request, const StudyTools& tools);

}  // namespace kiln
