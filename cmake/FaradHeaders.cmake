# farad_check_headers(target directory): an object library, built only when asked for, with one source per header below
# `directory` that includes this header and nothing else. It builds if and only if every header stands on its own. That
# its own source file includes it before all else shows nothing: a precompiled header is read before, in most presets
# other source files as well.
function(farad_check_headers target directory)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${directory} ${directory}/*.h)
  set(sources)
  foreach(header IN LISTS headers)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}/${header}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"@header@\"  // IWYU pragma: keep\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(${target} PRIVATE farad farad_flags farad_dependencies)
  # Searched before any other directory, so that it is this file that is included.
  target_include_directories(${target} BEFORE PRIVATE ${directory} ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE -O0)  # only whether it compiles counts
endfunction()
