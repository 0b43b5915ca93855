# The functions by which directories add their programs, tests and fuzzers.

# remora_subdirectory(DIR): adds DIR when it has a CMakeLists.txt. One that appears later is noticed
# by the next build.
function(remora_subdirectory directory)
  file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${directory}/CMakeLists.txt)
  if(found)
    add_subdirectory(${directory})
  endif()
endfunction()

# remora_program(NAME SOURCES file...): an installed program, build/bin/NAME. It may use private
# headers: it is linked with the archive.
function(remora_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE remora-core)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tools)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# remora_example(NAME SOURCES file...): build/bin/examples/NAME, built as a user would build it:
# public headers and the shared library only.
function(remora_example name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE remora)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/examples)
endfunction()

# remora_test(NAME SOURCES file... [SLOW] [ONE_THREAD]): the test program build/tests/NAME, linked
# with the archive and the harness, known to ctest. SLOW: the whole program is left out of fast
# runs; to leave out single tests, mark them TEST_SLOW in the program's table. ONE_THREAD: it has
# no threads, and neither has what it tests, so the thread sanitizer has nothing to look at.
function(remora_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SLOW;ONE_THREAD" "" "SOURCES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE remora-core remora-harness)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(arg_ONE_THREAD AND REMORA_SANITIZE STREQUAL "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(arg_SLOW)
    set_tests_properties(${name} PROPERTIES LABELS "harness;slow")
  else()
    set_tests_properties(${name} PROPERTIES LABELS harness)
  endif()
endfunction()

# remora_script_test(NAME COMMAND program argument...): a test that is no C program. It has to end
# its output with the same closing line; it runs with the release build only.
function(remora_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "COMMAND")
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS release-only)
endfunction()

# remora_fuzzer(NAME SOURCES file...): the libFuzzer program build/fuzz/fuzzers/NAME. Its corpus
# is committed in tests/fuzz/corpus/NAME/.
function(remora_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE remora-core)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
endfunction()
