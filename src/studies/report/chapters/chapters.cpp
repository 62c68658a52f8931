#include "studies/report/chapters/chapter.h"

namespace kiln {

std::vector<Chapter> all_chapters() {
  return {optimizations_chapter(), theory_chapter(),        benchmarking_chapter(), profiling_chapter(),
          precision_chapter(),     memory_chapter(),        attention_chapter(),    compile_chapter(),
          collectives_chapter(),   data_parallel_chapter(), sharding_chapter(),     fsdp_chapter(),
          parallelism_chapter(),   training_chapter()};
}

}  // namespace kiln
