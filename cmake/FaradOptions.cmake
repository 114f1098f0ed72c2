option(FARAD_BUILD_ACER "Build farad acer" ${PROJECT_IS_TOP_LEVEL})
option(FARAD_BUILD_DEMO "Build the demo" ${PROJECT_IS_TOP_LEVEL})
option(FARAD_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FARAD_BUILD_EXAMPLES "Build the examples, and run them with the tests" ${FARAD_BUILD_TESTS})
option(FARAD_BUILD_BENCH "Build the benchmarks" OFF)
option(FARAD_BUILD_FUZZ "Build the fuzz targets, and everything of ours for libFuzzer (clang only)" OFF)
option(FARAD_WERROR "Treat warnings as errors" OFF)
option(FARAD_BUNDLE "Compile the files of a layer or a test together: faster from scratch, blind to missing includes" OFF)
set(FARAD_BOX2D AUTO CACHE STRING "LunarLander for farad acer, over Box2D: ON, OFF, AUTO if it is found")
set(FARAD_SANITIZE "" CACHE STRING "Sanitizers for everything of ours: address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(THREADS_PREFER_PTHREAD_FLAG ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the sloppiness ccache does not cache what uses a precompiled header: it cannot tell whether a macro that
  # expands to a date is in there. We have none.
  # Paths count from the source tree, so that what one checkout compiled another need not.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
endif()
# The lld of clang's own version reads its bitcode and debug sections; the plain one may be older.
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  string(REGEX MATCH "^[0-9]+" farad_clang_major ${CMAKE_CXX_COMPILER_VERSION})
endif()
find_program(LLD_PROGRAM NAMES ld.lld-${farad_clang_major} ld.lld)
if(LLD_PROGRAM AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_link_options(--ld-path=${LLD_PROGRAM})
elseif(LLD_PROGRAM)
  add_link_options(-fuse-ld=lld)  # all that GCC understands
endif()

add_library(farad_flags INTERFACE)
target_compile_options(farad_flags INTERFACE -Wall -Wextra -Wno-unused-parameter)
if(FARAD_WERROR)
  target_compile_options(farad_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # What GCC 12 warns of after inlining is wrong about std::string and std::optional (its bugs 105651, 80635 and kin).
  # The sanitizers look for the same faults, and find only real ones.
  target_compile_options(farad_flags INTERFACE
    -Wno-restrict -Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Some algorithms of libstdc++ 12 use a function that it has itself deprecated, and clang blames their caller.
  target_compile_options(farad_flags INTERFACE -Wthread-safety -Wno-deprecated-declarations)
  # A time stamp in a precompiled header would make each one new to ccache.
  target_compile_options(farad_flags INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
endif()

if(FARAD_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "FARAD_BUILD_FUZZ needs clang, which has libFuzzer; this is ${CMAKE_CXX_COMPILER_ID}. Use `./dev fuzz`.")
  endif()
  target_compile_options(farad_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(FARAD_SANITIZE)
  target_compile_options(farad_flags INTERFACE -fsanitize=${FARAD_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${FARAD_SANITIZE})
  if(FARAD_SANITIZE MATCHES undefined)
    # libtorch keeps some of its type information to itself, so vptr would report classes that are sound.
    target_compile_options(farad_flags INTERFACE -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  endif()
endif()
