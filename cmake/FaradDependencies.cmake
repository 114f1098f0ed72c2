include(FaradTorch)

find_package(Threads REQUIRED)
if(Torch_DIR)
  # Torch's package looks for its other half, Caffe2, wherever packages are: it must not take that of another libtorch.
  list(PREPEND CMAKE_PREFIX_PATH ${Torch_DIR}/..)
endif()
find_package(Torch REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_path(ASIO_INCLUDE_DIR asio.hpp REQUIRED)
find_path(MSGPACK_INCLUDE_DIR msgpack.hpp REQUIRED)
find_path(NLOHMANN_JSON_INCLUDE_DIR nlohmann/json.hpp REQUIRED)
message(STATUS "farad: libtorch ${Torch_VERSION} from ${TORCH_INSTALL_PREFIX}")

add_library(farad_dependencies INTERFACE)
farad_use_torch(farad_dependencies)
target_link_libraries(farad_dependencies INTERFACE Threads::Threads OpenSSL::Crypto ${CMAKE_DL_LIBS})
target_include_directories(farad_dependencies SYSTEM INTERFACE ${ASIO_INCLUDE_DIR} ${MSGPACK_INCLUDE_DIR} ${NLOHMANN_JSON_INCLUDE_DIR})
target_compile_definitions(farad_dependencies INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED MSGPACK_NO_BOOST)

if(FARAD_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
