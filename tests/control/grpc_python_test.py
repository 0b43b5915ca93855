#!/usr/bin/env python3
"""The gRPC service as Debian's python3-grpcio sees it: every method, statuses, deadlines,
cancellation, TLS, tokens, long messages, reflection, health, and the example in Python.

usage: grpc_python_test.py BIN_DIRECTORY SOURCE_DIRECTORY MADE_DIRECTORY [NAME...]
"""

import contextlib
import importlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from control_harness import (MADE, NUL, PATIENCE_S, READ_KEY, SOURCE, WRITE_KEY, Certificates,
                             GrpcServer, KeyFiles, Skip, make_messages, need_service,
                             python_with_grpc, run_main)
from tool_harness import PUT

HAS_GRPC = python_with_grpc()
if HAS_GRPC:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool

SERVICE = "/kv_cache.KvCacheService/"
pb = health_pb = reflection_pb = messages = None


class Caller:
    """Calls the methods by their names: caller.Get(key=b"k")."""

    STREAMS = {"Scan", "GetStream"}

    def __init__(self, server, credentials=None, token=None, options=()):
        options = [("grpc.max_receive_message_length", -1), *options]
        target = server.address
        if credentials:
            self.channel = grpc.secure_channel(target, credentials, options)
        else:
            self.channel = grpc.insecure_channel(target, options)
        self.metadata = [("authorization", f"Bearer {token}")] if token else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def function(self, name):
        kind = self.channel.unary_stream if name in self.STREAMS else self.channel.unary_unary
        return kind(SERVICE + name,
                    request_serializer=getattr(pb, name + "Request").SerializeToString,
                    response_deserializer=getattr(pb, name + "Response").FromString)

    def __getattr__(self, name):
        def call(timeout=PATIENCE_S, metadata=None, compression=None, **fields):
            return self.function(name)(getattr(pb, name + "Request")(**fields), timeout=timeout,
                                       metadata=metadata or self.metadata,
                                       compression=compression)
        return call


@contextlib.contextmanager
def expect(code, text=""):
    """A call that fails with this status; yields a list that gets the error."""
    caught = []
    try:
        yield caught
    except grpc.RpcError as error:
        caught.append(error)
        assert error.code() == code, (error.code(), error.details())
        assert text in error.details(), error.details()
    else:
        raise AssertionError(f"it succeeded; {code} was expected")


@contextlib.contextmanager
def service(*arguments, **more):
    with GrpcServer(*arguments) as server, Caller(server, **more) as caller:
        yield server, caller


# ---------------------------------------------------------------- methods


def test_every_method():
    with service() as (_, call):
        put = call.Put(key=b"k", inline_value=b"value", request_id=7)
        assert put.success and put.version > 0 and put.request_id == 7, put
        got = call.Get(key=b"k", request_id=8)
        assert (got.success, got.value, got.value_length, got.version, got.ttl_ms,
                got.request_id, got.pushed) == (True, b"value", 5, put.version, 0, 8, False), got
        cas = call.Cas(key=b"k", value=b"other", expected_version=put.version,
                       request_id=9)
        assert cas.success and cas.version > put.version and cas.request_id == 9, cas
        late = call.Cas(key=b"k", value=b"late", expected_version=put.version)
        assert not late.success and late.version == cas.version and late.error_message, late
        there = call.Cas(key=b"k", value=b"new")
        assert not there.success and there.version == cas.version, there
        new = call.Cas(key=b"n", value=b"new")
        assert new.success and new.version > cas.version, new
        gone = call.Cas(key=b"no", value=b"new", expected_version=5)
        assert not gone.success and gone.version == 0, gone
        assert call.Get(key=b"k").value == b"other"
        touch = call.Touch(key=b"k", ttl_seconds=100, request_id=10)
        assert touch.success and touch.version == cas.version and touch.request_id == 10, touch
        assert 90000 < call.Get(key=b"k").ttl_ms <= 100000
        gone = call.Delete(key=b"k", request_id=11)
        assert gone.success and gone.key_existed and gone.request_id == 11, gone
        again = call.Delete(key=b"k")
        assert again.success and not again.key_existed, again


def test_delete_of_one_version():
    with service() as (_, call):
        version = call.Put(key=b"k", inline_value=b"v").version
        with expect(grpc.StatusCode.ABORTED, "another version"):
            call.Delete(key=b"k", version=version + 1)
        assert call.Get(key=b"k").value == b"v"
        assert call.Delete(key=b"k", version=version).key_existed


def test_time_to_live():
    with service() as (_, call):
        call.Put(key=b"s", inline_value=b"v", ttl_seconds=1000)
        assert 990000 < call.Get(key=b"s").ttl_ms <= 1000000
        call.Put(key=b"for ever", inline_value=b"v", ttl_seconds=2**64 - 1)
        assert call.Get(key=b"for ever").value == b"v"
        call.Put(key=b"k", inline_value=b"v", ttl_ms=50)
        end = time.monotonic() + PATIENCE_S
        with contextlib.suppress(grpc.RpcError):
            while time.monotonic() < end:
                assert call.Get(key=b"k").value == b"v"
                time.sleep(0.01)
        with expect(grpc.StatusCode.NOT_FOUND):
            call.Get(key=b"k")


def test_statuses():
    with service() as (_, call):
        with expect(grpc.StatusCode.NOT_FOUND, "no such key"):
            call.Get(key=b"no")
        with expect(grpc.StatusCode.NOT_FOUND, "no such key"):
            call.Touch(key=b"no", ttl_seconds=1)
        for wrong in (b"", b"k" * 4097):
            with expect(grpc.StatusCode.INVALID_ARGUMENT, "1 to 4096 bytes"):
                call.Put(key=wrong, inline_value=b"v")
            with expect(grpc.StatusCode.INVALID_ARGUMENT, "1 to 4096 bytes"):
                call.Get(key=wrong)
        call.Put(key=b"k" * 4096, inline_value=b"")
        assert call.Get(key=b"k" * 4096).value == b""
        with expect(grpc.StatusCode.UNIMPLEMENTED, "no such method"):
            call.channel.unary_unary(SERVICE + "Nonsense")(b"")
        with expect(grpc.StatusCode.INVALID_ARGUMENT, "kv_cache.GetRequest"):
            call.channel.unary_unary(SERVICE + "Get")(b"\x0a\xff")


def test_in_band_answer_of_a_failure():
    """The response comes before the status, for clients that look at it."""
    with service() as (_, call):
        function = call.channel.unary_stream(
            SERVICE + "Get", request_serializer=pb.GetRequest.SerializeToString,
            response_deserializer=pb.GetResponse.FromString)
        answer = function(pb.GetRequest(key=b"no", request_id=5), timeout=PATIENCE_S)
        response = next(answer)
        assert not response.success and response.error_message == "no such key", response
        assert response.request_id == 5, response
        with expect(grpc.StatusCode.NOT_FOUND):
            next(answer)


def test_full_store_rejects():
    with service("--on-full", "reject") as (_, call):
        with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "full"):
            for number in range(100):
                call.Put(key=b"k%d" % number, inline_value=b"v" * 1000000)
        assert call.Get(key=b"k0").value_length == 1000000


def test_scan():
    with service() as (_, call):
        keys = {b"key:%d" % number for number in range(3000)} | {b"o:" + b"x" * 4000}
        for key in keys:
            call.Put(key=key, inline_value=b"v" * 3, ttl_seconds=1000)
        responses = list(call.Scan())
        entries = [entry for response in responses for entry in response.entries]
        assert {entry.key for entry in entries} == keys and len(responses) > 2
        assert responses[-1].cursor == 0
        assert all(entry.value_length == 3 and 900000 < entry.ttl_ms <= 1000000 and entry.version
                   for entry in entries)
        some = {entry.key for response in call.Scan(prefix=b"o:") for entry in response.entries}
        assert some == {b"o:" + b"x" * 4000}
        assert not [entry for response in call.Scan(prefix=b"none") for entry in response.entries]
        found, cursor, parts = set(), 0, 0
        while True:
            responses = list(call.Scan(cursor=cursor, limit=500, batch=100))
            found |= {entry.key for response in responses for entry in response.entries}
            cursor, parts = responses[-1].cursor, parts + 1
            if not cursor:
                break
        assert found == keys and parts >= 6, parts


def test_stats():
    with service("--node-id", "node-7") as (_, call):
        call.Put(key=b"k", inline_value=b"v")
        figures = {f.name: getattr(f, f.WhichOneof("value")) for f in call.Stats().figures}
        assert figures["keys"] == 1 and figures["node_id"] == "node-7", figures
        assert figures["control.calls.Put"] == 1 and figures["control.connections"] == 1
        names = [f.name for f in call.Stats(prefix="control.calls.").figures]
        assert names and all(name.startswith("control.calls.") for name in names)


def test_the_same_store_as_the_native_protocol():
    with service() as (server, call):
        server.expect(0, PUT, "put", "native", "one")
        assert call.Get(key=b"native").value == b"one"
        call.Put(key=b"grpc", inline_value=b"two")
        server.expect(0, "two", "get", "grpc")
        server.expect(0, "5\n", "incr", "counter", "5")
        assert call.Get(key=b"counter").value == b"5"


# ---------------------------------------------------------------- messages


def test_long_messages():
    with service() as (_, call):
        for length in (65535, 65536, 65537, 1 << 20, (4 << 20) - 100):
            value = os.urandom(length)
            call.Put(key=b"long", inline_value=value)
            got = call.Get(key=b"long")
            assert got.value == value and got.value_length == length


def test_message_limits():
    with service() as (server, call):
        with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "--grpc-max-message"):
            call.Put(key=b"k", inline_value=bytes(4 << 20))
        # By the native protocol it fits: and then it is too long for a message on the way back.
        server.expect(0, PUT, "put", "long", "-", input=bytes(5 << 20))
        with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "--grpc-max-message") as caught:
            call.Get(key=b"long")
        assert ("kv-value-length", str(5 << 20)) in [tuple(m) for m in
                                                     caught[0].trailing_metadata()]
    with service("--grpc-max-message", "16MB", "-m", "128") as (_, call):
        call.Put(key=b"k", inline_value=bytes(15 << 20))
        assert call.Get(key=b"k").value_length == 15 << 20


def test_many_at_once():
    """More calls than a connection may have under way: they wait their turn."""
    with service("--grpc-max-streams", "8") as (_, call):
        get, put = call.function("Get"), call.function("Put")
        puts = [put.future(pb.PutRequest(key=b"%d" % number, inline_value=b"v%d" % number))
                for number in range(500)]
        for future in puts:
            future.result(PATIENCE_S)
        gets = [get.future(pb.GetRequest(key=b"%d" % number)) for number in range(500)]
        for number, future in enumerate(gets):
            assert future.result(PATIENCE_S).value == b"v%d" % number


def test_put_needs_a_value():
    with service() as (_, call):
        with expect(grpc.StatusCode.INVALID_ARGUMENT, "no value"):
            call.Put(key=b"k")
        assert call.Put(key=b"k", inline_value=b"").success
        assert call.Get(key=b"k").value_length == 0


def test_what_put_takes_can_be_got():
    """Whatever fits into a message on the way in fits into one on the way out."""
    limit = 4 << 20
    with GrpcServer() as server, \
            Caller(server, options=[("grpc.max_receive_message_length", limit)]) as call:
        call.Put(key=b"k", inline_value=bytes(limit - 64), ttl_seconds=2**62)
        got = call.Get(key=b"k", request_id=2**64 - 1)
        assert got.value_length == len(got.value) == limit - 64
        for length in (limit - 63, limit - 16, limit):
            with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "PutStream"):
                call.Put(key=b"k", inline_value=bytes(length))
            with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "PutStream"):
                call.Cas(key=b"k", value=bytes(length), expected_version=got.version)


def test_metadata():
    """Up to 64 KiB of it; a call with more ends alone."""
    with service() as (_, call):
        call.Put(key=b"k", inline_value=b"v")
        for length in (20000, 50000):
            assert call.Get(key=b"k", metadata=[("x-long", "y" * length)]).value == b"v"
        with expect(grpc.StatusCode.RESOURCE_EXHAUSTED):
            call.Get(key=b"k", metadata=[("x-long", "y" * 50000), ("x-longer", "y" * 50000)])
        assert call.Get(key=b"k").value == b"v"


# ---------------------------------------------------------------- streams


def put_stream(call, key, value, chunk=100000, timeout=PATIENCE_S, compression=None, **header):
    """PutStream of a value; `chunk` bytes a message."""
    def messages():
        fields = {"value_length": len(value), **header}
        yield pb.PutStreamRequest(header=pb.PutStreamHeader(key=key, **fields))
        for at in range(0, len(value), chunk):
            yield pb.PutStreamRequest(chunk=value[at:at + chunk])
    function = call.channel.stream_unary(
        SERVICE + "PutStream", request_serializer=pb.PutStreamRequest.SerializeToString,
        response_deserializer=pb.PutStreamResponse.FromString)
    return function(messages(), timeout=timeout, metadata=call.metadata, compression=compression)


def get_stream(call, key, **fields):
    responses = list(call.GetStream(key=key, **fields))
    return responses[0], b"".join(response.chunk for response in responses), len(responses)


def test_streams():
    with service() as (_, call):
        for length in (0, 1, 65536, 4 << 20, (9 << 20) + 5):
            value = os.urandom(length)
            put = put_stream(call, b"k", value, ttl_seconds=1000, request_id=5)
            assert put.success and put.version and put.request_id == 5, put
            first, got, count = get_stream(call, b"k", request_id=6)
            assert got == value
            assert (first.value_length, first.version, first.request_id) == (length, put.version,
                                                                              6), first
            assert 990000 < first.ttl_ms <= 1000000, first
            assert count == max(1, -(-length // 262144)), count
        assert get_stream(call, b"k", chunk_size=1 << 20)[2] == 10
        assert get_stream(call, b"k", chunk_size=2**32 - 1)[2] == 3
        with expect(grpc.StatusCode.NOT_FOUND):
            get_stream(call, b"none")
        with expect(grpc.StatusCode.INVALID_ARGUMENT):
            get_stream(call, b"")
        # What other clients count is a value, too.
        call.Put(key=b"n", inline_value=b"7")
        assert get_stream(call, b"n")[1] == b"7"


def test_stream_conditions():
    value = os.urandom(5 << 20)
    with service() as (_, call):
        new = put_stream(call, b"k", value, condition=pb.PutStreamHeader.IF_ABSENT)
        assert new.success, new
        there = put_stream(call, b"k", b"x", condition=pb.PutStreamHeader.IF_ABSENT)
        assert not there.success and there.version == new.version and there.error_message, there
        late = put_stream(call, b"k", b"x", condition=pb.PutStreamHeader.IF_VERSION,
                          expected_version=new.version + 1)
        assert not late.success and late.version == new.version, late
        assert get_stream(call, b"k")[1] == value
        swapped = put_stream(call, b"k", value + b"x", condition=pb.PutStreamHeader.IF_VERSION,
                             expected_version=new.version)
        assert swapped.success and swapped.version > new.version, swapped
        gone = put_stream(call, b"none", b"x", condition=pb.PutStreamHeader.IF_VERSION,
                          expected_version=new.version)
        assert not gone.success and gone.version == 0, gone
        with expect(grpc.StatusCode.INVALID_ARGUMENT, "version 0"):
            put_stream(call, b"k", b"x", condition=pb.PutStreamHeader.IF_VERSION)
        with expect(grpc.StatusCode.INVALID_ARGUMENT, "condition"):
            put_stream(call, b"k", b"x", condition=9)


def test_streams_that_are_wrong():
    """They change nothing, and what they held comes back."""
    with service() as (_, call):
        call.Put(key=b"k", inline_value=b"old")
        function = call.channel.stream_unary(
            SERVICE + "PutStream", request_serializer=pb.PutStreamRequest.SerializeToString,
            response_deserializer=pb.PutStreamResponse.FromString)
        header = pb.PutStreamRequest(header=pb.PutStreamHeader(key=b"k", value_length=10))
        chunk = pb.PutStreamRequest(chunk=b"12345")
        for messages in ([], [chunk], [header], [header, chunk], [header, header, chunk, chunk],
                         [header, chunk, chunk, chunk], [header, pb.PutStreamRequest()],
                         [pb.PutStreamRequest(header=pb.PutStreamHeader(value_length=1)), chunk]):
            for _ in range(20):
                with expect(grpc.StatusCode.INVALID_ARGUMENT):
                    function(iter(messages), timeout=PATIENCE_S)
        with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "ever hold"):
            put_stream(call, b"k", b"", value_length=1 << 40)
        assert call.Get(key=b"k").value == b"old"
        # 64 MiB of store: drafts that were not given back would fill it.
        for _ in range(20):
            with expect(grpc.StatusCode.INVALID_ARGUMENT):
                put_stream(call, b"k", b"12345", value_length=12 << 20)
        assert put_stream(call, b"k", bytes(12 << 20)).success


def test_a_value_that_is_replaced_while_it_is_read():
    with service() as (_, call):
        old = os.urandom(12 << 20)
        put_stream(call, b"k", old)
        stream = call.GetStream(key=b"k")
        got = next(stream).chunk
        put_stream(call, b"k", b"new")
        got += b"".join(response.chunk for response in stream)
        assert got == old
        assert get_stream(call, b"k")[1] == b"new"


def test_streams_are_bounded():
    """In bytes that they hold, and in time."""
    with service("--grpc-stall", "1s") as (server, call):
        started, go_on = threading.Event(), threading.Event()

        def messages(length):
            yield pb.PutStreamRequest(header=pb.PutStreamHeader(key=b"k", value_length=length))
            started.set()
            go_on.wait(PATIENCE_S)

        function = call.channel.stream_unary(
            SERVICE + "PutStream", request_serializer=pb.PutStreamRequest.SerializeToString,
            response_deserializer=pb.PutStreamResponse.FromString)
        # One that is slow: it may have a second, and one more for 64 KiB.
        slow = function.future(messages(65536))
        with expect(grpc.StatusCode.DEADLINE_EXCEEDED, "64 KiB a second"):
            slow.result(PATIENCE_S)
        # One that holds most of the memory. Others have to be short of the rest.
        holder = function.future(messages(40 << 20))
        end = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(grpc.RpcError):
                put_stream(call, b"other", bytes(1 << 20))
                assert time.monotonic() < end
                continue
            break
        with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "hold too much"):
            put_stream(call, b"other", bytes(1 << 20))
        holder.cancel()
        go_on.set()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with contextlib.suppress(grpc.RpcError):
                put_stream(call, b"other", bytes(1 << 20))
                break
        assert get_stream(call, b"other")[1] == bytes(1 << 20)


def test_a_reader_that_does_not_read():
    with service("--grpc-stall", "1s") as (_, call):
        put_stream(call, b"k", bytes(12 << 20))
        stream = call.GetStream(key=b"k")
        next(stream)
        end = time.monotonic() + PATIENCE_S
        while call.Stats(prefix="control.stalls").figures[0].number == 0:
            assert time.monotonic() < end
            time.sleep(0.05)
        with contextlib.suppress(grpc.RpcError):
            for _ in stream:
                pass
        assert put_stream(call, b"k", bytes(40 << 20)).success


# ---------------------------------------------------------------- ports and keys


def test_ports_are_told_and_can_be_chosen():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with service("--data-port", str(port)) as (server, call):
        told = re.search(r"^grpc data: listening at (.*)$", server.text(), re.M)[1].split()
        assert f"tcp:127.0.0.1:{port}" in told, told
        answer = call.RegisterClient(client_id=1)
        assert sorted(a.decode() for a in answer.server_domain_addresses) == sorted(told), answer
        # Whatever the native server does, gRPC's ports are where gRPC listens.
        with open(f"/proc/{server.process.pid}/net/tcp") as file:
            listening = [line.split() for line in file if line.split()[3] == "0A"]
        places = {fields[1].split(":")[0] for fields in listening
                  if int(fields[1].split(":")[1], 16) in (port, int(server.address.split(":")[1]))}
        assert places == {"0100007F"}, listening


def test_every_host_without_a_key():
    """The native server has two addresses of this host, the data plane one of gRPC's. It warns."""
    with GrpcServer(defaults=("-p", "0", "-m", "64", "--listen-addr", "0.0.0.0:0")) as server:
        told = re.search(r"^grpc data: listening at (.*)$", server.text(), re.M)[1].split()
        assert any(re.fullmatch(r"tcp:\*:\d+", place) for place in told), told
        assert "there is no key: everybody who can reach gRPC at 0.0.0.0" in server.text()
    with GrpcServer() as server:
        assert "there is no key" not in server.text(), server.text()


def test_long_messages_without_a_key():
    """Health and reflection need no key, so they take no long messages, and not many calls."""
    with GrpcServer(*KeyFiles().arguments()) as server, Caller(server) as call:
        check = call.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb.HealthCheckResponse.FromString)
        assert check(health_pb.HealthCheckRequest(), timeout=PATIENCE_S).status == 1
        with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "4096"):
            check(health_pb.HealthCheckRequest(service="x" * 5000), timeout=PATIENCE_S)
        watch = call.channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb.HealthCheckResponse.FromString)
        watches = [watch(health_pb.HealthCheckRequest()) for _ in range(16)]
        for one in watches:
            assert next(one).status == 1
        with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "without a key"):
            next(watch(health_pb.HealthCheckRequest()))
        # With the key there is no such limit.
        metadata = [("authorization", f"Bearer {WRITE_KEY}")]
        assert check(health_pb.HealthCheckRequest(), metadata=metadata,
                     timeout=PATIENCE_S).status == 1
        for one in watches:
            one.cancel()


def test_wrong_keys_are_logged():
    with GrpcServer(*KeyFiles().arguments()) as server, \
            Caller(server, token="x" * 32) as call:
        with expect(grpc.StatusCode.UNAUTHENTICATED):
            call.Get(key=b"k")
        server.wait_for_text("a wrong key")
        assert re.search(r"gRPC: 127\.0\.0\.1:\d+: a wrong key", server.text()), server.text()
        assert "x" * 32 not in server.text()


def test_connections_without_a_key_make_way():
    with GrpcServer(*KeyFiles().arguments(), "--grpc-max-connections", "4") as server:
        host, port = server.address.split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(4)]
        with Caller(server, token=WRITE_KEY) as call:
            assert call.Put(key=b"k", inline_value=b"v").success
            more = [socket.create_connection((host, int(port))) for _ in range(8)]
            assert call.Get(key=b"k").value == b"v"
        for one in (*idle, *more):
            one.close()


def test_removed_keys():
    """Open streams of a key that was removed end, and so do clients of the data plane."""
    files = KeyFiles()
    apart = [("grpc.use_local_subchannel_pool", 1)]
    with GrpcServer(*files.arguments()) as server, \
            Caller(server, token=READ_KEY, options=apart) as reader, \
            Caller(server, token=WRITE_KEY, options=apart) as writer:
        put_stream(writer, b"k", bytes(12 << 20))
        reader.RegisterClient(client_id=1)
        writer.RegisterClient(client_id=2)
        stream = reader.GetStream(key=b"k", chunk_size=65536)
        next(stream)
        kept = writer.GetStream(key=b"k", chunk_size=65536)
        next(kept)
        files.make("read", "n" * 32)
        server.process.send_signal(signal.SIGHUP)
        with expect(grpc.StatusCode.UNAUTHENTICATED, "removed"):
            for _ in stream:
                time.sleep(0.05)
        with expect(grpc.StatusCode.UNAUTHENTICATED):
            reader.Get(key=b"n")
        assert sum(len(response.chunk) for response in kept) == (12 << 20) - 65536
        assert not writer.Heartbeat(client_id=1).alive
        assert writer.Heartbeat(client_id=2).alive


def other_address():
    """An address of this host that is not of the loopback device; in a network of our own one is
    made."""
    subprocess.run(["ip", "address", "add", "192.0.2.77/32", "dev", "lo"], capture_output=True,
                   stdin=NUL, check=False)
    for address in ("192.0.2.77", *subprocess.run(["hostname", "-I"], capture_output=True,
                                                  text=True, check=False).stdout.split()):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((address, 0))
            if not address.startswith("127."):
                return address
    raise Skip("this host has no address but 127.0.0.1")


def test_keys_without_tls():
    """A key that everyone can read on its way is refused, on both sides."""
    address, files = other_address(), KeyFiles()
    with GrpcServer(*files.arguments(), "--listen-addr", f"{address}:0") as server, \
            Caller(server, token=WRITE_KEY) as call:
        assert "serves this host alone" in server.text(), server.text()
        with expect(grpc.StatusCode.FAILED_PRECONDITION, "--tls-cert"):
            call.Put(key=b"k", inline_value=b"v")
        client = [f"{sys.argv[1]}/kv-client", "--server-addr", f"http://{server.address}",
                  "--key-file", files.write]
        result = subprocess.run([*client, "get", "k"], capture_output=True, text=True, stdin=NUL,
                                timeout=60)
        assert result.returncode != 0 and "https://" in result.stderr, result
    with GrpcServer(*files.arguments(), "--listen-addr", f"{address}:0",
                    "--grpc-insecure") as server, Caller(server, token=WRITE_KEY) as call:
        assert call.Put(key=b"k", inline_value=b"v").success
        client[2] = f"http://{server.address}"
        result = subprocess.run([*client, "--insecure", "get", "k"], capture_output=True,
                                text=True, stdin=NUL, timeout=60)
        assert result.returncode == 0 and result.stdout.strip() == "v", result
    # Without a key there is nothing to read on the way.
    with GrpcServer("--listen-addr", f"{address}:0") as server, Caller(server) as call:
        assert call.Put(key=b"k", inline_value=b"v").success


def test_tls_files_that_are_wrong():
    """Each is told with its reason, and what to do."""
    files = Certificates()
    # It ends as it begins: after the next second it is old.
    files.openssl("x509", "-req", "-in", files.path("server.csr"), "-signkey",
                  files.path("server.key"), "-days", "0", "-out", files.path("old.pem"))
    time.sleep(2)
    with open(files.path("empty.pem"), "w"):
        pass
    cert, key = files.path("server.pem"), files.path("server.key")
    for wrong_cert, wrong_key, words in (
            (files.path("none.pem"), key, ("none.pem", "No such file", "check the name")),
            (files.directory, key, ("Is a directory",)),
            (files.path("empty.pem"), key, ("empty.pem", "no certificate", "-----BEGIN")),
            (files.path("old.pem"), key, ("expired at", "renew it")),
            (cert, files.path("none.key"), ("none.key", "No such file")),
            (cert, cert, ("server.pem", "no private key")),
            (cert, files.path("client.key"), ("client.key", "not the key of the certificate"))):
        result = subprocess.run([f"{sys.argv[1]}/kv-server", "--listen-addr", "0", "--tls-cert",
                                 wrong_cert, "--tls-key", wrong_key, "--check-config"],
                                capture_output=True, text=True, stdin=NUL, timeout=60)
        assert result.returncode == 2, result
        for word in words:
            assert word in result.stderr, (word, result.stderr)
        assert "system lib" not in result.stderr, result


def test_tls_files_without_permission():
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        raise Skip("root may read everything")
    files = Certificates()
    os.chmod(files.path("server.key"), 0)
    command = [f"{sys.argv[1]}/kv-server", "--listen-addr", "0", "--tls-cert",
               files.path("server.pem"), "--tls-key", files.path("server.key"), "--check-config"]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search",
                   "--inh-caps=-dac_override,-dac_read_search", *command]
    result = subprocess.run(command, capture_output=True, text=True, stdin=NUL, timeout=60)
    assert result.returncode == 2 and "Permission denied" in result.stderr, result
    assert "let the user of this program read it" in result.stderr, result


# ---------------------------------------------------------------- figures


def test_figures():
    """Calls count in the server's figures; the hit ratio is right whatever the values' length."""
    with service() as (_, call):
        call.Put(key=b"short", inline_value=b"v")
        put_stream(call, b"long", bytes(200000))
        put_stream(call, b"longer", bytes(5 << 20))
        call.Cas(key=b"new", value=b"v")
        for _ in range(100):
            call.Get(key=b"short")
            call.Get(key=b"long")
            get_stream(call, b"longer")
            for method in (call.Get, lambda key: list(call.GetStream(key=key))):
                with expect(grpc.StatusCode.NOT_FOUND):
                    method(key=b"none")
        call.Delete(key=b"short")
        call.Touch(key=b"long", ttl_seconds=100)
        figures = {f.name: f.number for f in call.Stats().figures}
        assert (figures["gets"], figures["hits"]) == (500, 300), figures
        assert (figures["hits_by_clients"], figures["misses_by_clients"]) == (0, 0), figures
        for name, count in (("get", 500), ("put", 4), ("delete", 1), ("expire", 1)):
            assert figures[f"requests.{name}"] == count, (name, figures)
            assert figures[f"requests.{name}.grpc"] == count, (name, figures)
            assert figures[f"times.{name}.samples"] > 0, (name, figures)
        assert figures["clients.grpc"] == 1 and figures["bytes_in"] > 5 << 20, figures
        assert figures["bytes_out"] > 500 << 20, figures


# ---------------------------------------------------------------- compression


def test_gzip():
    plain, noise = b"text " * 40000, os.urandom(200000)
    with service() as (server, call):
        gzip = grpc.Compression.Gzip
        for value in (b"", b"v", plain, noise, bytes(4000000)):
            assert call.Put(key=b"k", inline_value=value, compression=gzip).success
            assert call.Get(key=b"k", compression=gzip).value == value
            assert call.Get(key=b"k").value == value
        value = plain * 30 + noise
        assert put_stream(call, b"s", value, compression=gzip).success
        responses = list(call.GetStream(key=b"s", compression=gzip))
        assert b"".join(response.chunk for response in responses) == value

        def taken(**more):
            before = call.Stats(prefix="control.bytes_out").figures[0].number
            call.Get(key=b"k", **more)
            return call.Stats(prefix="control.bytes_out").figures[0].number - before

        # Only those who compress get compressed answers, and only where it pays.
        call.Put(key=b"k", inline_value=plain)
        assert taken() > len(plain) > 20 * taken(compression=gzip)
        call.Put(key=b"k", inline_value=noise)
        assert taken(compression=gzip) > len(noise)


def test_gzip_bomb():
    """Four megabytes are the limit of what a message unpacks to, too."""
    with service() as (server, call):
        with expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "unpacks"):
            call.Put(key=b"k", inline_value=bytes(64 << 20), compression=grpc.Compression.Gzip)
        with open(f"/proc/{server.process.pid}/status") as file:
            peak = next(line for line in file if line.startswith("VmHWM"))
        assert int(peak.split()[1]) < 160 << 10, peak


# ---------------------------------------------------------------- time


def test_deadline():
    with service() as (server, call):
        for number in range(300):
            call.Put(key=b"k%d" % number, inline_value=b"v")
        # Who takes a scan this slowly would need half a minute: its deadline ends it. (To wait, and
        # take all then, would not do: what has come may be taken before the clock is looked at.)
        with expect(grpc.StatusCode.DEADLINE_EXCEEDED):
            for _ in call.Scan(timeout=0.3, batch=1):
                time.sleep(0.1)
        # And here nobody answers. The signal takes a moment to stop all threads: that is awaited.
        server.process.send_signal(signal.SIGSTOP)
        os.waitpid(server.process.pid, os.WUNTRACED)
        with expect(grpc.StatusCode.DEADLINE_EXCEEDED):
            call.Get(key=b"k1", timeout=0.2)
        server.process.send_signal(signal.SIGCONT)
        assert call.Get(key=b"k1").value == b"v"


def test_watch_ends_at_its_deadline():
    with service() as (_, call):
        watch = call.channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb.HealthCheckResponse.FromString)
        answer = watch(health_pb.HealthCheckRequest(), timeout=0.3)
        assert next(answer).status == health_pb.HealthCheckResponse.SERVING
        with expect(grpc.StatusCode.DEADLINE_EXCEEDED):
            next(answer)


def test_cancellation():
    options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536)]
    with service(options=options) as (_, call):
        # More than fits into the client's window: the scans wait for their client.
        for number in range(1000):
            call.Put(key=b"k%d" % number + b"x" * 2000, inline_value=b"v")
        call.Put(key=b"k1", inline_value=b"v")
        for _ in range(200):
            answer = call.Scan(batch=10)
            next(answer)
            answer.cancel()
        with expect(grpc.StatusCode.CANCELLED):
            list(answer)
        end = time.monotonic() + PATIENCE_S
        while True:
            figures = {f.name: f.number for f in call.Stats(prefix="control.status.").figures}
            if figures.get("control.status.CANCELLED", 0) >= 100:
                break
            assert time.monotonic() < end, figures
            time.sleep(0.02)
        assert call.Get(key=b"k1").value == b"v"


def test_keepalive():
    """Both ends ask whether the other is there; neither minds."""
    options = [("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 5000),
               ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0)]
    with GrpcServer("--grpc-keepalive", "300ms") as server, \
            Caller(server, options=options) as call:
        call.Put(key=b"k", inline_value=b"v")
        time.sleep(3)
        assert call.Get(key=b"k").value == b"v"
        figures = {f.name: f.number for f in call.Stats(prefix="control.").figures}
        assert figures["control.connections_total"] == 1, figures


def test_a_client_that_stops_is_cut_off():
    program = f"""
import sys, time
sys.path[:0] = [{messages!r}, {os.path.dirname(__file__)!r}]
import grpc, kv_cache_pb2 as pb
channel = grpc.insecure_channel(sys.argv[1])
get = channel.unary_unary({SERVICE + "Get"!r})
while True:
    try:
        get(pb.GetRequest(key=b"k").SerializeToString(), wait_for_ready=True)
        break
    except grpc.RpcError:
        pass
"""

    def count_connections():
        # On a machine that is busy we, too, may be cut off for having been too slow: once more.
        while True:
            try:
                return {f.name: f.number for f in call.Stats().figures}["control.connections"]
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE, error
                assert time.monotonic() < end, error

    with GrpcServer("--grpc-keepalive", "300ms", "--grpc-stall", "2s") as server, \
            Caller(server) as call:
        call.Put(key=b"k", inline_value=b"v")
        with subprocess.Popen([sys.executable, "-c", program + "print('there', flush=True)\n"
                               "time.sleep(1000)", server.address],
                              stdin=NUL, stdout=subprocess.PIPE) as other:
            try:
                assert other.stdout.readline() == b"there\n"
                other.send_signal(signal.SIGSTOP)
                end = time.monotonic() + PATIENCE_S
                while count_connections() > 1:
                    assert time.monotonic() < end
                    time.sleep(0.05)
            finally:
                other.kill()


# ---------------------------------------------------------------- who may


def test_tokens():
    with GrpcServer(*KeyFiles().arguments()) as server:
        with Caller(server) as call:
            with expect(grpc.StatusCode.UNAUTHENTICATED, "authorization: Bearer"):
                call.Get(key=b"k")
            for wrong in ("Bearer", "Basic " + WRITE_KEY, "Bearer " + WRITE_KEY[:-1],
                          "Bearer " + WRITE_KEY + "x", "Bearer x" + "y" * 2000):
                with expect(grpc.StatusCode.UNAUTHENTICATED):
                    call.Get(key=b"k", metadata=[("authorization", wrong)])
            # Health needs none: who balances load has no key.
            check = call.channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                response_deserializer=health_pb.HealthCheckResponse.FromString)
            assert check(b"").status == health_pb.HealthCheckResponse.SERVING
        with Caller(server, token=WRITE_KEY) as call:
            call.Put(key=b"k", inline_value=b"v")
        with Caller(server, token=READ_KEY) as call:
            assert call.Get(key=b"k").value == b"v"
            assert [e.key for r in call.Scan() for e in r.entries] == [b"k"]
            for name, fields in (("Put", {"inline_value": b"x"}), ("Delete", {}),
                                 ("Cas", {"value": b"x"}), ("Touch", {})):
                with expect(grpc.StatusCode.PERMISSION_DENIED, "only read"):
                    getattr(call, name)(key=b"k", **fields)
            assert call.Get(key=b"k").value == b"v"


def test_new_keys_count_at_once():
    files = KeyFiles()
    with GrpcServer(*files.arguments(), "-l", "info") as server, \
            Caller(server, token=WRITE_KEY) as call:
        call.Put(key=b"k", inline_value=b"v")
        files.make("write", "n" * 32)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_text("the key files were read anew")
        with expect(grpc.StatusCode.UNAUTHENTICATED):
            call.Get(key=b"k")
        assert call.Get(key=b"k", metadata=[("authorization", "bearer " + "n" * 32)]).success


def test_tls():
    files = Certificates()
    arguments = ("--tls-cert", files.path("server.pem"), "--tls-key", files.path("server.key"))
    credentials = grpc.ssl_channel_credentials(files.read("ca.pem"))
    with service(*arguments, credentials=credentials) as (server, call):
        assert " by TLS\n" in server.text()
        value = os.urandom(3 << 20)
        call.Put(key=b"k", inline_value=value)
        assert call.Get(key=b"k").value == value
        with Caller(server) as plain, expect(grpc.StatusCode.UNAVAILABLE):
            plain.Get(key=b"k")
        strange = grpc.ssl_channel_credentials(files.read("stranger.pem"))
        with Caller(server, credentials=strange) as other, expect(grpc.StatusCode.UNAVAILABLE):
            other.Get(key=b"k")
        assert call.Get(key=b"k").value == value


def test_tls_with_certificates_of_clients():
    files = Certificates()
    arguments = ("--tls-cert", files.path("server.pem"), "--tls-key", files.path("server.key"),
                 "--tls-client-ca", files.path("ca.pem"))
    known = grpc.ssl_channel_credentials(files.read("ca.pem"), files.read("client.key"),
                                         files.read("client.pem"))
    with service(*arguments, credentials=known) as (server, call):
        call.Put(key=b"k", inline_value=b"v")
        for key, certificate in ((None, None), ("stranger.key", "stranger.pem")):
            unknown = grpc.ssl_channel_credentials(
                files.read("ca.pem"), key and files.read(key),
                certificate and files.read(certificate))
            with Caller(server, credentials=unknown) as other, \
                    expect(grpc.StatusCode.UNAVAILABLE):
                other.Get(key=b"k")
        assert call.Get(key=b"k").value == b"v"


# ---------------------------------------------------------------- standard services


def reflect(call, version, *requests):
    method = call.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb.ServerReflectionResponse.FromString)
    return list(method(iter(reflection_pb.ServerReflectionRequest(**request)
                            for request in requests), timeout=PATIENCE_S))


def test_reflection():
    with service() as (_, call):
        for version in ("v1", "v1alpha"):
            listed, by_file, by_service, by_method, by_enum, no_file, no_symbol, extension, \
                nothing = reflect(
                    call, version, {"list_services": ""}, {"file_by_filename": "kv_cache.proto"},
                    {"file_containing_symbol": "kv_cache.KvCacheService"},
                    {"file_containing_symbol": "kv_cache.KvCacheService.Get"},
                    {"file_containing_symbol":
                     "grpc.health.v1.HealthCheckResponse.ServingStatus"},
                    {"file_by_filename": "none.proto"}, {"file_containing_symbol": "kv_cache"},
                    {"all_extension_numbers_of_type": "kv_cache.GetRequest"}, {})
            names = [service.name for service in listed.list_services_response.service]
            assert sorted(names) == ["grpc.health.v1.Health",
                                     "grpc.reflection.v1.ServerReflection",
                                     "grpc.reflection.v1alpha.ServerReflection",
                                     "kv_cache.KvCacheService"], names
            files = [response.file_descriptor_response.file_descriptor_proto[0]
                     for response in (by_file, by_service, by_method)]
            assert files[0] == files[1] == files[2]
            description = descriptor_pb2.FileDescriptorProto.FromString(files[0])
            pool = descriptor_pool.DescriptorPool()
            pool.Add(description)
            assert "Scan" in pool.FindServiceByName("kv_cache.KvCacheService").methods_by_name
            assert descriptor_pb2.FileDescriptorProto.FromString(
                by_enum.file_descriptor_response.file_descriptor_proto[0]).package == \
                "grpc.health.v1"
            assert [response.error_response.error_code
                    for response in (no_file, no_symbol, extension, nothing)] == [5, 5, 5, 3]
            assert by_file.original_request.file_by_filename == "kv_cache.proto"


def test_call_without_a_proto_file():
    """All that a client knows comes from reflection."""
    from google.protobuf import message_factory
    with service() as (_, call):
        call.Put(key=b"k", inline_value=b"v")
        answer = reflect(call, "v1alpha",
                         {"file_containing_symbol": "kv_cache.KvCacheService"})[0]
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(answer.file_descriptor_response.file_descriptor_proto[0])
        method = pool.FindServiceByName("kv_cache.KvCacheService").methods_by_name["Get"]
        factory = message_factory.MessageFactory(pool)
        request, response = (factory.GetPrototype(kind)
                             for kind in (method.input_type, method.output_type))
        got = call.channel.unary_unary(
            SERVICE + "Get", request_serializer=request.SerializeToString,
            response_deserializer=response.FromString)(request(key=b"k"))
        assert got.value == b"v"


def test_health():
    with service() as (server, call):
        check = call.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb.HealthCheckResponse.FromString)
        for name in ("", "kv_cache.KvCacheService"):
            assert check(health_pb.HealthCheckRequest(service=name)).status == \
                health_pb.HealthCheckResponse.SERVING
        with expect(grpc.StatusCode.NOT_FOUND):
            check(health_pb.HealthCheckRequest(service="other"))
        watch = call.channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb.HealthCheckResponse.FromString)
        unknown = watch(health_pb.HealthCheckRequest(service="other"))
        assert next(unknown).status == health_pb.HealthCheckResponse.SERVICE_UNKNOWN
        unknown.cancel()
        states = watch(health_pb.HealthCheckRequest(service=""))
        assert next(states).status == health_pb.HealthCheckResponse.SERVING
        server.process.send_signal(signal.SIGTERM)
        assert next(states).status == health_pb.HealthCheckResponse.NOT_SERVING
        with expect(grpc.StatusCode.UNAVAILABLE):
            next(states)
        assert server.process.wait(PATIENCE_S) == 0


def test_a_stop_loses_no_call():
    """While calls come in without pause the server stops: each is answered, or may be repeated."""
    with service() as (server, call):
        call.Put(key=b"k", inline_value=b"v")
        ends, failures, others = [], [], []

        def ask():
            while True:
                try:
                    assert call.Get(key=b"k").value == b"v"
                except grpc.RpcError as error:
                    ends.append(error.code())
                    if error.code() != grpc.StatusCode.UNAVAILABLE:
                        failures.append(error)
                    return

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        assert server.stop() == 0
        for thread in threads:
            thread.join(PATIENCE_S)
        assert len(ends) == 8 and not failures and not others, (ends, failures)


# ---------------------------------------------------------------- the program, and the example


def test_example():
    with service() as (server, _):
        environment = dict(os.environ, PYTHONPATH=messages)
        result = subprocess.run(
            [sys.executable, f"{SOURCE}/examples/grpc/python/hello.py", server.address],
            capture_output=True, text=True, timeout=60, stdin=NUL, env=environment)
        assert result.returncode == 0, result
        assert "get greeting: hello from Python\n" in result.stdout, result
        assert re.search(r"cas: done, version (\d+)\ncas: somebody was quicker, version \1\n",
                         result.stdout), result
        assert "film: 20971520 bytes\n" in result.stdout, result
        assert "scan list: list:0 list:1 list:2\n" in result.stdout, result
        assert result.stdout.endswith("delete: True, then get: None\nkeys: 3\n"), result


def require():
    need_service()
    if not HAS_GRPC:
        raise Skip("no Python here has grpcio (Debian: python3-grpcio)")


def test_0_needs():
    """The first: without it none of the others has anything to test."""
    global pb, health_pb, reflection_pb, messages
    require()
    messages = make_messages()
    sys.path.insert(0, messages)
    pb = importlib.import_module("kv_cache_pb2")
    health_pb = importlib.import_module("grpc_standard.health.v1.health_pb2")
    reflection_pb = importlib.import_module("grpc_standard.reflection.v1.reflection_pb2")


if __name__ == "__main__":
    os.makedirs(MADE, exist_ok=True)
    try:
        test_0_needs()
    except Skip as reason:
        print(f"skip grpc_python: {reason}\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    del globals()["test_0_needs"]
    sys.exit(run_main(globals()))
