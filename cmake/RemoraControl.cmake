# The gRPC control plane needs libraries that are optional: nghttp2 for HTTP/2, protobuf-c for the
# messages, zlib for compression, and both compilers of messages. Without them the build works, says
# what it leaves out, and kv-server --listen-addr says it too.

option(REMORA_WITH_CONTROL "Build the gRPC control plane when nghttp2 and protobuf-c are installed"
  ON)

set(REMORA_HAVE_CONTROL OFF)
set(REMORA_CONTROL_ADVICE "REMORA_WITH_CONTROL is off")
if(REMORA_WITH_CONTROL)
  set(REMORA_CONTROL_ADVICE
    "install libnghttp2-dev libprotobuf-c-dev zlib1g-dev protobuf-c-compiler protobuf-compiler")
  pkg_check_modules(CONTROL QUIET IMPORTED_TARGET libnghttp2 libprotobuf-c libssl zlib)
  find_program(PROTOC protoc)
  find_program(PROTOC_C protoc-c)
  if(CONTROL_FOUND AND PROTOC AND PROTOC_C)
    set(REMORA_HAVE_CONTROL ON)
  endif()
endif()

function(remora_report_control)
  if(REMORA_HAVE_CONTROL)
    message(STATUS "control plane (gRPC): yes")
  else()
    message(STATUS "control plane (gRPC): no (${REMORA_CONTROL_ADVICE})")
  endif()
endfunction()
