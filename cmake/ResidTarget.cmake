# One place for flags, so that every part is compiled alike.

add_library(resid_flags INTERFACE)
target_compile_options(resid_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wimplicit-fallthrough -Werror
  -fno-omit-frame-pointer)
target_compile_definitions(resid_flags INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64 FMT_HEADER_ONLY)
target_include_directories(resid_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 reports false positives of these inside libstdc++ and fmt at -O2.
  target_compile_options(resid_flags INTERFACE -Wno-restrict -Wno-stringop-overflow -Wno-maybe-uninitialized)
endif()
if(RESID_SANITIZE)
  target_compile_options(resid_flags INTERFACE -fsanitize=${RESID_SANITIZE} -fno-sanitize-recover=all -g)
  target_link_options(resid_flags INTERFACE -fsanitize=${RESID_SANITIZE})
endif()

# resid_part(NAME [SOURCES ...] [DEPS ...]): one folder of src/ as a static library `resid_NAME`.
# Without SOURCES every .cpp of the folder belongs to it.
function(resid_part name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  if(NOT A_SOURCES)
    file(GLOB A_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  endif()
  if(NOT A_SOURCES)
    add_library(resid_${name} INTERFACE)
    target_link_libraries(resid_${name} INTERFACE ${A_DEPS})
    return()
  endif()
  add_library(resid_${name} STATIC ${A_SOURCES})
  target_link_libraries(resid_${name} PRIVATE $<BUILD_INTERFACE:resid_flags> PUBLIC ${A_DEPS})
endfunction()

# resid_test(NAME FILE [LABEL quick|storm] [DEPS ...] [TIMEOUT s]): one small test program, run by
# ctest as NAME. Exit 77 means skipped; the reason is on its output.
function(resid_test name file)
  cmake_parse_arguments(A "" "LABEL;TIMEOUT" "DEPS" ${ARGN})
  if(NOT A_LABEL)
    set(A_LABEL quick)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  add_executable(${name} ${file})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE resid_flags ${A_DEPS} GTest::gtest GTest::gmock GTest::gtest_main
                        Threads::Threads)
  target_compile_definitions(${name} PRIVATE RESID_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             RESID_BIN_DIR="${CMAKE_BINARY_DIR}/bin" RESID_LIB_DIR="${CMAKE_BINARY_DIR}/lib")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABEL}" TIMEOUT ${A_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()
