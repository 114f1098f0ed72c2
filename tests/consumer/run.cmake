# cmake -D BUILD=... -D SOURCE=... -D WORK=... -D GENERATOR=... -D COMPILER=... -D VERSION=... -D README=... -D FARAD=...
#   -P run.cmake
function(run what)
  execute_process(COMMAND ${ARGN} TIMEOUT 240 RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "${what} failed (${failed}):\n${output}")
  endif()
  message(STATUS "${what}: fine")
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK}/prefix ${WORK}/moved ${WORK}/build)
run("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component library)
# A package that works only where it was first put is not installed but borrowed.
file(RENAME ${WORK}/prefix ${WORK}/moved)
# The program that the README shows is what people begin with.
file(READ ${README} program)
string(FIND "${program}" "#include <farad/farad.h>" begin)
string(SUBSTRING "${program}" ${begin} -1 program)
string(FIND "${program}" "```" end)
string(SUBSTRING "${program}" 0 ${end} program)
file(WRITE ${WORK}/readme.cpp "${program}")
# No path to libtorch: finding it is the package's business.
run("configure" ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
  -D CMAKE_PREFIX_PATH=${WORK}/moved -D PROGRAM=${WORK}/readme.cpp)
run("build" ${CMAKE_COMMAND} --build ${WORK}/build)
run("run" ${WORK}/build/consumer)
if(NOT output STREQUAL "farad ${VERSION}: 42\n")
  message(FATAL_ERROR "the program printed: ${output}")
endif()
run("run as a group of two" ${FARAD} run -n 2 --timeout 60 -- ${WORK}/build/program)
if(NOT output MATCHES "CPUFloatType{3,3}")
  message(FATAL_ERROR "the program of the README printed: ${output}")
endif()
