// kiln sizes: the models known by name, and what each asks of a machine.
#include <cstdio>
#include <memory>

#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "studies/sizes/sizes.h"

namespace kiln::cli {

void add_sizes(Command& c, const CommonOptions& common) {
  struct Asked {
    std::vector<std::string> names;
    ModelOptions model;
    PageFormat format = PageFormat::text;
  };
  auto asked = std::make_shared<Asked>();
  c.opt("NAME", asked->names, "only these sizes, in this order").repeat().unset("all");
  add_model_options(c.options, asked->model, /*several=*/true);
  add_page_options(c, asked->format);
  c.run = [asked, &c, &common] {
    ModelOptions models = asked->model;
    std::vector<std::string> names;  // one by one, or as --size has them
    for (const std::string& word : asked->names)
      for (std::string& name : split_list(word)) names.push_back(std::move(name));
    models.sizes.insert(models.sizes.begin(), names.begin(), names.end());
    const PageFormat format = page_format(c, asked->format, common);
    print_page(sizes_page(models, common.wide), format, common.wide);
  };
}

}  // namespace kiln::cli
