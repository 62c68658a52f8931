# The front door. Each target installs what it needs (tools/install.sh), configures, builds and runs.
#   make WERROR=1 ...      warnings are errors, in this build tree from now on; WERROR=0: no longer
#   make cuda CUDA_ARCHS=86   GPU code for other architectures than the default, 90a and 80
#   make check FUZZ_RUNS=50000000
#   make install PREFIX=~/.local   DESTDIR=... for packages
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
RESULTS ?= runs/h200
PREFIX ?= /usr/local
FUZZ_RUNS ?= 1000000
CUDA_ARCHS ?= 90a-real;80

INSTALL := tools/install.sh
# Only the chatter goes to stdout. One tree for every day, for the tests and for the checks: a second one with other
# flags would be built twice.
CONFIGURE = cmake $(if $(WERROR),-DKILN_WERROR=$(if $(filter 0 OFF,$(WERROR)),OFF,ON)) >/dev/null --preset
# Semicolons: of a && b && c bash -e forgives all but the last.
CONFIGURE_CUDA = $(INSTALL) build mpi test cuda; $(CONFIGURE) cuda -DKILN_CUDA_ARCHS="$(CUDA_ARCHS)"
BUILD_CUDA = $(CONFIGURE_CUDA); cmake --build --preset cuda -j$(JOBS)
CTEST = ctest --output-on-failure --no-tests=error -j$(JOBS)
# What was not tested must be seen, whether the rest has passed or not.
SKIPPED = status=$$?; $(CURDIR)/tools/skipped_tests.py .; exit $$status

# Sources as git sees them, new files included; without git, all there are.
SOURCES = $$( { git ls-files -co --exclude-standard '*.h' '*.c' '*.cpp' '*.cu' '*.cuh' 2>/dev/null || \
  find apps src include examples tests fuzz bench -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh'; } | \
  while read -r f; do [[ ! -e $$f ]] || echo "$$f"; done)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## the CPU program: build/kiln
	@$(INSTALL) build mpi
	@$(CONFIGURE) release
	@cmake --build --preset release -j$(JOBS) --target kiln

.PHONY: demo
demo: build ## train a small language model for a minute, let it write, see what each optimization gains, and read the report
	@tools/demo.sh build/kiln

.PHONY: cuda
cuda: ## the CUDA program, build-cuda/kiln, and the library, libkiln.so (needs nvcc, no GPU)
	@$(CONFIGURE_CUDA); cmake --build --preset cuda -j$(JOBS) --target kiln kiln_shared

.PHONY: cuda-test
cuda-test: ## the same with the tests, the examples and the benches
	@$(BUILD_CUDA)

.PHONY: release
release: ## the CUDA program and library for every architecture from Ampere on
	@$(MAKE) cuda CUDA_ARCHS="80-real;86-real;89-real;90a-real;100-real;120"

# A CUDA build that stands there is the one that is meant.
TREE = $(if $(wildcard build-cuda/kiln),build-cuda,build)
.PHONY: install
install: $(if $(wildcard build-cuda/kiln),,build) ## program, manual page, completions, below PREFIX (/usr/local); of build-cuda also library and C header
	@cmake --build $(TREE) -j$(JOBS) --target kiln kiln_reference $(if $(filter build-cuda,$(TREE)),kiln_shared)
	@DESTDIR="$(DESTDIR)" cmake --install $(TREE) --prefix "$(abspath $(PREFIX))"

# BUILD_CUDA and not a second make: make runs a recipe that names it even under -n, which only shows.
.PHONY: test
test: ## build and run all tests; the CUDA build's where a GPU and nvcc are present
	@if nvidia-smi -L >/dev/null 2>&1 && $(INSTALL) cuda 2>/dev/null; then \
	  $(BUILD_CUDA); echo "testing build-cuda (a GPU is present)"; cd build-cuda; \
	else \
	  $(INSTALL) build mpi test browser; $(CONFIGURE) release; cmake --build --preset release -j$(JOBS); cd build; \
	fi; set +e; $(CTEST); $(SKIPPED)

.PHONY: test-times
test-times: ## the twenty slowest entries of the last `make test`
	@costs=$$(ls -t build{,-cuda}/Testing/Temporary/CTestCostData.txt 2>/dev/null | head -1 || :); \
	[[ $$costs ]] || { echo "no test times yet: make test writes them" >&2; exit 1; }; echo "$$costs:"; \
	awk 'NF == 3 { printf "%8.1f s  %s\n", $$3, $$1 }' "$$costs" | sort -rn | head -20

.PHONY: bench-dispatch
bench-dispatch: ## what one op call costs the host, in ns
	@$(INSTALL) build bench
	@$(CONFIGURE) release
	@cmake --build --preset release -j$(JOBS) --target bench_dispatch
	@build/bench_dispatch

.PHONY: bench-data
bench-data: ## splitting, BPE training, encoding and loading on one thread
	@$(INSTALL) build bench
	@$(CONFIGURE) release
	@cmake --build --preset release -j$(JOBS) --target bench_data
	@build/bench_data

.PHONY: bench-mpi
bench-mpi: ## sums over ranks beside a bare MPI_Allreduce, in one run
	@$(INSTALL) build mpi
	@$(CONFIGURE) release
	@cmake --build --preset release -j$(JOBS) --target bench_mpi_allreduce
	@mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 build/bench_mpi_allreduce

.PHONY: bench-peers
bench-peers: ## matrix products beside oneDNN's and OpenBLAS's, in one run
	@$(INSTALL) build peers
	@$(CONFIGURE) release
	@cmake --build --preset release -j$(JOBS) --target bench_cpu_gemm_peers
	@build/bench_cpu_gemm_peers

.PHONY: results
results: cuda ## measure the tables of docs/results on this GPU, beside PyTorch, into RESULTS (runs/h200)
	@tools/measure_h200.sh $(RESULTS)

# In this order: what is quick to fail comes first.
.PHONY: check
check: check-format check-warnings check-chaos check-memory check-asan check-tsan check-fuzz check-tidy ## all of the below; before a change is called done
	@echo
	@echo "make check passed:"
	@echo "  format     clang-format-19 on every source file; types defined once (tools/one_definition.sh)"
	@echo "  warnings   g++ -Wall -Wextra -Werror, optimised, in the tree of every day (build)"
	@echo "  chaos      runs whose ranks were killed at random and at every point end in the bits of calm ones"
	@echo "  memory     every allocation of a small training run has failed, each in a run of its own"
	@echo "  asan       test suite under address and undefined-behaviour sanitizers, KILN_ALLOC=raw (build-asan)"
	@echo "  tsan       test suite under thread sanitizer (build-tsan)"
	@echo "  fuzz       $$(ls fuzz/fuzz_*.cpp | wc -l) targets, $(FUZZ_RUNS) executions each: $$(ls fuzz/fuzz_*.cpp | xargs -n1 basename -s .cpp | tr '\n' ' ')"
	@echo "  tidy       clang-tidy-19 on every .cpp of the CPU build"

.PHONY: check-format
check-format: ## clang-format finds nothing to change, and no two files define a type of one name
	@$(INSTALL) check
	@clang-format-19 --dry-run -Werror $(SOURCES)
	@tools/one_definition.sh src apps tests

.PHONY: check-warnings
check-warnings: ## g++ with warnings as errors
	@$(INSTALL) build mpi test
	@$(CONFIGURE) release -DKILN_WERROR=ON
	@cmake --build --preset release -j$(JOBS)

.PHONY: check-chaos
check-chaos: build ## ranks killed at random and at every point of a step and a save: the bits of a calm run
	@tools/chaos.py build/kiln --cycles 12
	@tests/faults/kill_points.py build/kiln mpi 2 || [ $$? = 77 ]
	@tests/faults/crash_states.py build/kiln --states 500 || [ $$? = 77 ]
	@tools/soak.py build/kiln --steps 1000

# In `make test` some hundred of them.
.PHONY: check-memory
check-memory: ## every allocation of start, step and save fails once (about 25 minutes on two cores)
	@$(INSTALL) build mpi test
	@$(CONFIGURE) release
	@cmake --build --preset release -j$(JOBS) --target kiln failing_malloc
	@tests/faults/out_of_memory.py build/kiln build/tests/failing_malloc.so --every

# KILN_ALLOC=raw: a caching pool would hide overruns. setarch -R: address randomisation of newer kernels collides
# with the shadow memory of these sanitizers.
.PHONY: check-asan
check-asan: ## tests under address and undefined-behaviour sanitizers
	@$(INSTALL) build mpi test check
	@$(CONFIGURE) asan
	@cmake --build --preset asan -j$(JOBS)
	@cd build-asan; set +e; KILN_ALLOC=raw UBSAN_OPTIONS=print_stacktrace=1 setarch -R $(CTEST) -LE gpu; $(SKIPPED)

.PHONY: check-tsan
check-tsan: ## tests under thread sanitizer
	@$(INSTALL) build mpi test check
	@$(CONFIGURE) tsan
	@cmake --build --preset tsan -j$(JOBS)
	@cd build-tsan; set +e; TSAN_OPTIONS=halt_on_error=1 setarch -R $(CTEST) -LE gpu; $(SKIPPED)

.PHONY: check-fuzz
check-fuzz: ## FUZZ_RUNS (a million) inputs for every parser, side by side; at most 20 minutes each
	@$(INSTALL) build check
	@$(CONFIGURE) fuzz
	@cmake --build --preset fuzz -j$(JOBS)
	@MOST_SECONDS=$(if $(filter 1000000,$(FUZZ_RUNS)),1200,36000) fuzz/run.sh build-fuzz $(FUZZ_RUNS)runs $(JOBS)

.PHONY: check-tidy
check-tidy: ## clang-tidy finds nothing
	@$(INSTALL) build mpi test check
	@$(CONFIGURE) tidy
	@cmake --build --preset tidy -j$(JOBS) --target kiln_build_id
	@tools/tidy.sh build-tidy $(JOBS)

.PHONY: coverage
coverage: ## which lines and branches the tests run, and which error lines of checkpoint and parser code they do not
	@$(INSTALL) build mpi test
	@$(CONFIGURE) coverage
	@cmake --build --preset coverage -j$(JOBS)
	@find build-coverage -name '*.gcda' -delete
	@cd build-coverage; $(CTEST) -LE 'gpu|docs|goldens' >build-coverage.log 2>&1 || tail -20 build-coverage.log
	@tools/coverage.py build-coverage --errors

.PHONY: check-valgrind
check-valgrind: ## valgrind memcheck over the tests of checkpoints, parsers, data and device memory
	@$(INSTALL) build mpi test soak
	@$(CONFIGURE) release
	@cmake --build --preset release -j$(JOBS) --target kiln_tests
	@tools/valgrind.sh build/kiln_tests

.PHONY: check-cppcheck
check-cppcheck: ## cppcheck finds nothing
	@$(INSTALL) soak
	@tools/cppcheck.sh $(JOBS)

.PHONY: soak
soak: ## every row of docs/reliability.md by its command, a line each into runs/soak.log (hours)
	@$(INSTALL) build mpi test check soak
	@$(CONFIGURE) release
	@cmake --build --preset release -j$(JOBS)
	@tools/reliability.py run --log runs/soak.log

# Not part of check: most machines have no GPU. Asked for first, so that nothing is built in vain.
.PHONY: check-gpu
check-gpu: ## compute-sanitizer over the CUDA ops, each tool tried on a planted bug first; ranks of NCCL that die (needs a GPU)
	@tests/gpu/sanitize.sh --present
	@$(BUILD_CUDA)
	@tests/gpu/sanitize.sh build-cuda/kiln_tests build-cuda/planted_bugs
	@tests/gpu/nccl_failures.sh build-cuda/kiln || [ $$? = 3 ]

.PHONY: format
format: ## let clang-format rewrite the sources
	@$(INSTALL) check
	@clang-format-19 -i $(SOURCES)

.PHONY: clean
clean: ## remove all build folders
	@rm -rf build build-*
