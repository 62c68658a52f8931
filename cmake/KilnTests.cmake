# One ctest entry per test source file, named after it (ops/rms_norm_test) and labelled by its folder (ops). Finer
# entries would start the program thousands of times; coarser ones would not tell what failed.
#
# Suites whose full name begins with Cuda get an entry of their own, ops/rms_norm_test.gpu, labelled gpu as well;
# they skip themselves where there is no GPU.

set(KILN_SUITE_MACROS "TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P")

# A gtest filter for every form the suites' full names can take: plain, typed, parametrised, both. Typed ones end in the
# type's number, of one digit or two; Suite/* would also take Suite/OtherSuite, which INSTANTIATE_TEST_SUITE_P(Suite,
# OtherSuite, ...) makes in another file.
function(kiln_suite_filter result prefix)
  set(patterns "")
  foreach(suite IN LISTS ARGN)
    if(prefix STREQUAL "")
      list(APPEND patterns "${suite}.*" "${suite}/?.*" "${suite}/??.*")
    endif()
    list(APPEND patterns "${prefix}*/${suite}.*" "${prefix}*/${suite}/?.*" "${prefix}*/${suite}/??.*")
  endforeach()
  list(JOIN patterns ":" joined)
  set(${result} "${joined}" PARENT_SCOPE)
endfunction()

# The one long entry, every case of every op, is cut into parts that run side by side, and first: last, it would keep
# one core busy for minutes while the others are idle.
set(KILN_LONG_ENTRY ops/op_cases_test)
set(KILN_LONG_ENTRY_PARTS 4)

function(kiln_add_test_entry name label filter)
  set(parts 1)
  if(name STREQUAL KILN_LONG_ENTRY)
    set(parts ${KILN_LONG_ENTRY_PARTS})
  endif()
  foreach(part RANGE 1 ${parts})
    set(entry ${name})
    if(parts GREATER 1)
      string(APPEND entry ".${part}")
    endif()
    add_test(NAME ${entry} COMMAND kiln_tests --gtest_brief=1 "--gtest_filter=${filter}")
    set_tests_properties(${entry} PROPERTIES LABELS "${label}" TIMEOUT 1800)  # under TSan on two busy cores
    if(parts GREATER 1)
      math(EXPR index "${part} - 1")
      set_tests_properties(${entry} PROPERTIES COST 1000 ENVIRONMENT
        "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${index}")
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY KILN_TEST_FILTERS "${filter}")
endfunction()

function(kiln_add_test_file source)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(RELATIVE_PATH path ${CMAKE_CURRENT_SOURCE_DIR} ${source})
  string(REGEX REPLACE "\\.cpp$" "" name ${path})
  string(REGEX REPLACE "/.*" "" label ${path})

  file(STRINGS ${source} lines REGEX "^(${KILN_SUITE_MACROS})\\(")
  set(cpu_suites "")
  set(gpu_suites "")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[A-Z_]+\\( *([A-Za-z0-9_]+).*" "\\1" suite "${line}")
    if(suite MATCHES "^Cuda")
      list(APPEND gpu_suites ${suite})
    else()
      list(APPEND cpu_suites ${suite})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES cpu_suites)
  list(REMOVE_DUPLICATES gpu_suites)

  if(cpu_suites)
    kiln_suite_filter(filter "" ${cpu_suites})
    kiln_add_test_entry(${name} ${label} "${filter}:-Cuda*")
  endif()

  # INSTANTIATE_TEST_SUITE_P(Cuda, Suite, ...) makes "Cuda/Suite", which begins with Cuda too.
  file(STRINGS ${source} instantiated REGEX "^INSTANTIATE_[A-Z_]+\\( *Cuda")
  kiln_suite_filter(filter "" ${gpu_suites})
  if(instantiated)
    kiln_suite_filter(more "Cuda" ${cpu_suites})
    string(JOIN ":" filter ${filter} ${more})
  endif()
  if(filter)
    kiln_add_test_entry(${name}.gpu "${label};gpu" "${filter}")
    # Every test skipped itself: say so instead of "passed".
    set_tests_properties(${name}.gpu PROPERTIES
      SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests" RUN_SERIAL ON)
  endif()
endfunction()

# An entry that says that tests are left out, and why: they are counted with those that skip themselves.
function(kiln_add_left_out_tests name reason)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${name}: ${reason}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
endfunction()

# A suite the parsing above does not see (made by a macro, say) would never run and nobody would know.
function(kiln_check_all_suites_run)
  get_property(filters GLOBAL PROPERTY KILN_TEST_FILTERS)
  list(JOIN filters "\n" text)
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/test_filters.txt CONTENT "${text}\n")
  add_test(NAME every_suite_has_an_entry COMMAND
    ${CMAKE_SOURCE_DIR}/tests/every_suite_has_an_entry.sh
    $<TARGET_FILE:kiln_tests> ${CMAKE_CURRENT_BINARY_DIR}/test_filters.txt)
endfunction()
