# How everything is compiled: language, warnings, sanitizers, and where programs land.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(REMORA_SANITIZE "" CACHE STRING "Sanitizers: empty, address, thread or fuzz")
set_property(CACHE REMORA_SANITIZE PROPERTY STRINGS "" address thread fuzz)
option(REMORA_WERROR "Treat warnings as errors" ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# Asserts stay in release builds: they guard against our own bugs, and are kept off hot loops.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")

add_compile_definitions(_GNU_SOURCE)
add_compile_options(
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wvla
  -Wpointer-arith -Wwrite-strings -Wundef -Wformat=2 -Wno-missing-field-initializers
  -fno-common -fno-semantic-interposition)
if(REMORA_WERROR)
  add_compile_options(-Werror)
endif()

set(sanitizer_flags "")
if(REMORA_SANITIZE STREQUAL "address")
  set(sanitizer_flags -fsanitize=address,undefined)
elseif(REMORA_SANITIZE STREQUAL "thread")
  set(sanitizer_flags -fsanitize=thread)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # gcc warns about every fence, because the sanitizer does not model fences.
    add_compile_options(-Wno-tsan)
  endif()
elseif(REMORA_SANITIZE STREQUAL "fuzz")
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "The fuzz build needs clang: use `cmake --preset fuzz`.")
  endif()
  set(sanitizer_flags -fsanitize=fuzzer-no-link,address,undefined)
elseif(NOT REMORA_SANITIZE STREQUAL "")
  message(FATAL_ERROR "REMORA_SANITIZE is '${REMORA_SANITIZE}'; use address, thread or fuzz.")
endif()

if(sanitizer_flags)
  # A third less to compile than -O2 -g, and the reports still name files and lines.
  set(CMAKE_C_FLAGS_RELEASE "-O1 -g1")
  add_compile_options(${sanitizer_flags} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(${sanitizer_flags})
else()
  add_link_options(-Wl,-z,defs)
  # Hardening: a bug in reading what a peer sent ends the process instead of giving it away.
  # tests/scripts/hardening_test.py looks whether the programs and libraries have it.
  include(CheckCCompilerFlag)
  include(CheckCSourceCompiles)
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES C)
  foreach(flag -fstack-protector-strong -fstack-clash-protection)
    string(MAKE_C_IDENTIFIER "has${flag}" has)
    check_c_compiler_flag(${flag} ${has})
    if(${has})
      add_compile_options(${flag})
    endif()
  endforeach()
  # Some compilers predefine a level; an older one or its C library knows 2 at most, and warns.
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_c_source_compiles("#include <string.h>\nint main(void) { return 0; }" has_fortify_3)
  unset(CMAKE_REQUIRED_FLAGS)
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$<IF:$<BOOL:${has_fortify_3}>,3,2>)
  add_link_options(-Wl,-z,relro -Wl,-z,now)
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED libxxhash)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
