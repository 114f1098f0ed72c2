# farad_use_torch(target): everything that compiling and linking against the libtorch that find_package(Torch) found
# takes. Installed with the package, because users of farad need exactly what farad itself needs.
function(farad_use_torch target)
  # First the C++ library: the wheels for CUDA bring parts of an older one (std::filesystem::remove_all and more) in
  # libtorch.so, which crash where they are found before the real ones.
  target_link_libraries(${target} INTERFACE stdc++ ${TORCH_LIBRARIES})
  target_include_directories(${target} SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  separate_arguments(flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(${target} INTERFACE ${flags})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang AND Torch_VERSION VERSION_LESS 2.0)
    # The headers of 1.13 rely on an include order that only GCC forgives in C++20.
    target_compile_options(${target} INTERFACE "SHELL:-include ATen/core/ivalue.h")
  endif()
endfunction()
