#!/usr/bin/env python3
"""A client made from the messages of the kv-rdma-poc cache (kv_rdma_poc.proto) calls the server, by
Debian's python3-grpcio. proto/kv_cache.proto has the same fields, and more.

usage: grpc_compat_test.py BIN_DIRECTORY SOURCE_DIRECTORY MADE_DIRECTORY [NAME...]
"""

import importlib
import os
import subprocess
import sys

from control_harness import (MADE, SOURCE, Skip, called_service, make_directory, need_program,
                             need_service, python_with_grpc, run_main)

HAS_GRPC = python_with_grpc()
if HAS_GRPC:
    import grpc
    from google.protobuf import descriptor_pb2

poc = None


def describe(proto):
    """{message: {number: (name, type, label, type name)}} and {method: ...} of a .proto file."""
    path = os.path.join(make_directory("compat-"), "set.pb")
    subprocess.run(["protoc", f"--descriptor_set_out={path}", f"-I{os.path.dirname(proto)}",
                    proto], check=True, timeout=60)
    files = descriptor_pb2.FileDescriptorSet()
    with open(path, "rb") as file:
        files.ParseFromString(file.read())
    file = files.file[0]
    messages = {message.name: {field.number: (field.name, field.type, field.label,
                                              field.type_name, field.HasField("oneof_index"))
                               for field in message.field} for message in file.message_type}
    methods = {method.name: (method.input_type, method.output_type, method.client_streaming,
                             method.server_streaming)
               for service in file.service for method in service.method}
    return file.package, [service.name for service in file.service], messages, methods


def test_same_fields():
    """Each field of kv-rdma-poc is here, with its number, name and type."""
    poc_set = describe(os.path.join(SOURCE, "tests/control/kv_rdma_poc.proto"))
    ours = describe(os.path.join(SOURCE, "proto/kv_cache.proto"))
    assert poc_set[:2] == ours[:2], (poc_set[:2], ours[:2])
    for name, fields in poc_set[2].items():
        for number, field in fields.items():
            assert ours[2][name].get(number) == field, (name, number, ours[2][name].get(number))
    for name, method in poc_set[3].items():
        assert ours[3][name] == method, (name, ours[3][name])


def inline_value(response):
    """GetResponse.value, field 5, which those messages do not know."""
    data, at = response.SerializeToString(), 0
    while at < len(data):
        tag, at = read_number(data, at)
        number, at = read_number(data, at)
        if tag & 7 == 2:
            if tag >> 3 == 5:
                return data[at:at + number]
            at += number
    return b""


def read_number(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 128:
            return value, at


def test_register_and_heartbeat():
    with called_service(poc, "--node-id", "3") as client:
        answer = client.RegisterClient(client_id=1, domain_addresses=[b"\xfe\x80 an EFA address"],
                                       receive_buffer_size=64 << 20)
        assert answer.success and answer.server_id == 3, answer
        assert not answer.server_domain_addresses, answer
        assert client.Heartbeat(client_id=1).alive
        # The default of that cache is client_id 1 for every client.
        answer = client.RegisterClient(client_id=1, domain_addresses=[b"shm", b"tcp"])
        assert answer.success and len(answer.server_domain_addresses) == 2, answer
        assert client.Heartbeat(client_id=1).alive
        assert not client.Heartbeat(client_id=2).alive


def test_put_get_delete():
    with called_service(poc) as client:
        client.RegisterClient(client_id=1, receive_buffer_size=1 << 20)
        for value in (b"", b"value", os.urandom(65535)):
            assert client.Put(key=b"k", inline_value=value, ttl_seconds=1000).success
            got = client.Get(key=b"k", request_id=9)
            assert (got.success, got.value_length, got.error_message,
                    got.request_id) == (True, len(value), "", 9), got
            assert inline_value(got) == value
        gone = client.Delete(key=b"k")
        assert gone.success and gone.key_existed, gone
        gone = client.Delete(key=b"k")
        assert gone.success and not gone.key_existed, gone
        try:
            client.Get(key=b"k")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.NOT_FOUND, error
        else:
            raise AssertionError("a key that is gone was found")


def test_memory_that_cannot_be_reached():
    """A place on a network that the server is not on: an error, and never a claim that the value
    was written."""
    with called_service(poc) as client:
        client.RegisterClient(client_id=1, domain_addresses=[b"\xfe\x80 an EFA address"])
        client.Put(key=b"k", inline_value=b"v" * 1000)
        key = poc.DomainAddressKey(domain_address=b"\xfe\x80 an EFA address", rkey=5)
        place = poc.ValueLocation(
            node_id=1, offset=0, length=1 << 20,
            mr_descriptor=poc.MemoryRegionDescriptor(ptr=4096, addr_rkey_list=[key]))
        for call in (lambda: client.Get(key=b"k", response_location=place),
                     lambda: client.Put(key=b"k", rdma_location=place)):
            try:
                call()
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
            else:
                raise AssertionError("memory that is none was used")


if __name__ == "__main__":
    os.makedirs(MADE, exist_ok=True)
    try:
        need_service()
        if not HAS_GRPC:
            raise Skip("no Python here has grpcio (Debian: python3-grpcio)")
        need_program("protoc", "protobuf-compiler")
        generated = make_directory("compat-")
        subprocess.run(["protoc", f"--python_out={generated}", f"-I{SOURCE}/tests/control",
                        f"{SOURCE}/tests/control/kv_rdma_poc.proto"], check=True, timeout=60)
        sys.path.insert(0, generated)
        poc = importlib.import_module("kv_rdma_poc_pb2")
    except Skip as reason:
        print(f"skip grpc_compat: {reason}\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    sys.exit(run_main(globals()))
