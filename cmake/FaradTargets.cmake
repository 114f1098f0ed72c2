# farad_bundle(target): compiles sixteen files as one if FARAD_BUNDLE says so. Most of what a compiler does here is to read
# libtorch's headers: all layers take 4 minutes of one core this way, several times that the other.
function(farad_bundle target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${FARAD_BUNDLE} UNITY_BUILD_BATCH_SIZE 16)
endfunction()

# farad_layer(name SOURCES...): one layer of src/, an object library that the farad library is made of.
function(farad_layer name)
  add_library(farad_${name} OBJECT ${ARGN})
  farad_bundle(farad_${name})
  target_link_libraries(farad_${name} PRIVATE farad_flags farad_dependencies)
  target_include_directories(farad_${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
  # Parsed once for all layers instead of once per file, which takes a third off each.
  get_property(layers GLOBAL PROPERTY FARAD_LAYERS)
  if(layers)
    list(GET layers 0 first)
    target_precompile_headers(farad_${name} REUSE_FROM ${first})
  else()
    target_precompile_headers(farad_${name} PRIVATE <ATen/core/ivalue.h>)
  endif()
  set_property(GLOBAL APPEND PROPERTY FARAD_LAYERS farad_${name})
endfunction()

# farad_test(name SOURCES... [LABELS ...] [TIMEOUT seconds] [SERIAL] [APART SOURCES...]): a test program that may look
# inside: it sees src/ and tests/. One ctest test per program and not per case, because loading libtorch takes half a
# second each time. The target tests-LABEL builds all programs with that label. SERIAL: nothing else runs meanwhile.
# APART: these sources of a unit test have things by the same names as others, and are never compiled together with them.
function(farad_test name)
  cmake_parse_arguments(arg "SERIAL" "TIMEOUT" "LABELS;APART" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  if("unit" IN_LIST arg_LABELS)  # Files of the others name too many things alike, and share some.
    farad_bundle(${name})
    set_source_files_properties(${arg_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  else()
    target_link_libraries(${name} PRIVATE farad_test_support)
  endif()
  target_link_libraries(${name} PRIVATE farad farad_flags farad_dependencies farad_test_main GTest::gtest GTest::gmock)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_precompile_headers(${name} REUSE_FROM farad_test_main)
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)  # so that the stacks of a hung test have names

  add_test(NAME ${name} COMMAND ${name})
  # The program gives up a little before ctest would kill it, to show where each thread stands.
  math(EXPR deadline "${arg_TIMEOUT} - 15")
  # Those that may take long begin first, so that none is still at work when all others are done.
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT}
    RUN_SERIAL ${arg_SERIAL}
    ENVIRONMENT "FARAD_TEST_DEADLINE=${deadline};${FARAD_TEST_ENVIRONMENT}")
  foreach(label IN LISTS arg_LABELS)
    if(NOT TARGET tests-${label})
      add_custom_target(tests-${label})
    endif()
    add_dependencies(tests-${label} ${name})
  endforeach()
endfunction()

# farad_fuzz(name SOURCES...): a libFuzzer program. The target fuzz-targets builds all of them; `./dev fuzz` reads their
# names from fuzz-targets.txt. The inputs of fuzz_x to begin with lie in tests/fuzz/corpus/x/.
function(farad_fuzz name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${name} PRIVATE farad farad_flags farad_dependencies)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz-targets ${name})
  file(APPEND ${PROJECT_BINARY_DIR}/fuzz-targets.txt ${name}\n)
endfunction()
