// The work of `kiln all`: the ops checked, the build's tests where it stands in a build tree, both studies,
// the ablation, the report, and a bundle of it all. Each is a command line of its own and runs in its own
// process; what is done is noted in FOLDER/all.json, with the build and the words it was done by, and is not
// done again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/stop.h"

namespace kiln {

struct EverythingRequest {
  std::string out = "runs";
  std::string device = "auto", seed = "0";
  bool quick = false;  // minutes: tiny scale, no tests
  bool fresh = false;  // do again what is done
  double timeout = 0;  // seconds, of a step; 0: none
  StopAsked stop = nullptr;
};

enum class StepOutcome { done, reused, failed, missed, stopped };  // missed: this machine lacks something
std::string_view name_of(StepOutcome outcome);

struct EverythingStep {
  std::string name;                // "check"
  std::string what;                // for a person
  std::vector<std::string> words;  // the command line
  std::string id;                  // of all that decides what it does
  StepOutcome outcome = StepOutcome::stopped;
  double seconds = 0;
  std::string reason, page;  // why it failed; the file with what it printed
};

// What would be done, in order; nothing is run.
std::vector<EverythingStep> plan_everything(const EverythingRequest& request);

// `say` gets a line before and after each step. A step that fails does not end the others.
std::vector<EverythingStep> do_everything(const EverythingRequest& request,
                                          const std::function<void(const std::string&)>& say);

Json everything_json(const EverythingRequest& request, const std::vector<EverythingStep>& steps);
std::string plan_text(const std::vector<EverythingStep>& steps);  // a command line each
std::string everything_text(const EverythingRequest& request, const std::vector<EverythingStep>& steps);
std::string bundle_of(const EverythingRequest& request);  // the file, beside the folder

}  // namespace kiln
