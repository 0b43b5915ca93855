# Removes the files that the last `make install` of this build wrote down, and directories that are
# empty then. The configuration is the administrator's, and stays.

if(NOT EXISTS "${MANIFEST}")
  message(FATAL_ERROR "no ${MANIFEST}: nothing was installed from this build: make install first")
endif()
file(STRINGS "${MANIFEST}" files)
set(directories)
foreach(name IN LISTS files)
  if(name MATCHES "/etc/remora/")
    message(STATUS "Kept: $ENV{DESTDIR}${name}")
    continue()
  endif()
  file(REMOVE "$ENV{DESTDIR}${name}")
  get_filename_component(directory "$ENV{DESTDIR}${name}" DIRECTORY)
  if(directory MATCHES "/remora(/|$)") # others are not ours alone
    list(APPEND directories "${directory}")
  endif()
endforeach()
list(REMOVE_DUPLICATES directories)
list(SORT directories ORDER DESCENDING) # what lies deeper first
foreach(directory IN LISTS directories)
  file(GLOB left "${directory}/*")
  if(NOT left)
    file(REMOVE_RECURSE "${directory}")
  endif()
endforeach()
list(LENGTH files count)
message(STATUS "Removed ${count} files")
