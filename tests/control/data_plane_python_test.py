#!/usr/bin/env python3
"""Registered clients that have no data plane, by Debian's python3-grpcio: they get values inside
the messages, their registration lives as long as they are heard of, and places that they name are
refused, for they have none.

usage: data_plane_python_test.py BIN_DIRECTORY SOURCE_DIRECTORY MADE_DIRECTORY [NAME...]
"""

import importlib
import os
import sys
import time

from control_harness import (MADE, PATIENCE_S, Caller, GrpcServer, Skip, called_service,
                             make_messages, need_service, python_with_grpc, run_main)

HAS_GRPC = python_with_grpc()
if HAS_GRPC:
    import grpc

pb = None


def fails(code, call, **fields):
    try:
        call(**fields)
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error
    raise AssertionError(f"no {code}")


def location(node_id=7, rkey=1, length=1 << 20):
    region = pb.MemoryRegionDescriptor(ptr=4096, addr_rkey_list=[pb.DomainAddressKey(rkey=rkey)])
    return pb.ValueLocation(node_id=node_id, mr_descriptor=region, offset=0, length=length)


def test_registered_without_a_link():
    with called_service(pb) as caller:
        answer = caller.RegisterClient(client_id=7, domain_addresses=[b"shm", b"tcp"],
                                       receive_buffer_size=1 << 20)
        assert answer.success and answer.server_name and len(answer.link_token) == 16, answer
        kinds = [address.split(b":")[0] for address in answer.server_domain_addresses]
        assert kinds == [b"shm", b"tcp"], answer
        assert answer.inline_limit == 65536 and answer.expires_after_ms == 30000, answer
        assert answer.max_message_size == 4 << 20, answer
        for size in (0, 1, 65535, 65536, 1 << 20, 3 << 20):
            value = os.urandom(size)
            assert caller.Put(key=b"k", inline_value=value).success
            got = caller.Get(key=b"k", request_id=7)
            assert got.value == value and not got.pushed and got.request_id == 7, got
        beat = caller.Heartbeat(client_id=7)
        assert beat.alive and not beat.linked, beat
        assert not caller.Heartbeat(client_id=8).alive


def test_only_kinds_that_it_has():
    with called_service(pb) as caller:
        answer = caller.RegisterClient(client_id=1, domain_addresses=[b"tcp"])
        assert [a[:4] for a in answer.server_domain_addresses] == [b"tcp:"], answer
        answer = caller.RegisterClient(client_id=2, domain_addresses=[b"verbs:mlx5_0"])
        assert not answer.server_domain_addresses, answer
        answer = caller.RegisterClient(client_id=3)
        assert len(answer.server_domain_addresses) == 2, answer


def test_places_of_nobody():
    """Whether it is registered or not, it has told of no memory."""
    with called_service(pb) as caller:
        caller.Put(key=b"k", inline_value=b"v" * 100000)
        for _ in range(2):
            refused = fails(grpc.StatusCode.INVALID_ARGUMENT, caller.Get, key=b"k",
                            response_location=location())
            assert "response_location" in refused.details(), refused
            fails(grpc.StatusCode.INVALID_ARGUMENT, caller.Put, key=b"new",
                  rdma_location=location())
            fails(grpc.StatusCode.INVALID_ARGUMENT, caller.Get, key=b"k",
                  response_location=pb.ValueLocation())
            caller.RegisterClient(client_id=7 + _)
        fails(grpc.StatusCode.NOT_FOUND, caller.Get, key=b"new")


def test_numbers():
    """Registrations without a link may share a number, on two connections and on one."""
    with GrpcServer("--node-id", "42") as server:
        one = Caller(server, pb)
        two = Caller(server, pb, [("grpc.use_local_subchannel_pool", 1)])
        tokens = {caller.RegisterClient(client_id=number).link_token
                  for caller in (one, two, one) for number in (0, 1, 2**32 - 1)}
        assert len(tokens) == 9, tokens
        answer = one.RegisterClient(client_id=1)
        assert (answer.server_id, answer.server_name) == (42, "42"), answer
        one.channel.close()
        assert two.Heartbeat(client_id=1).alive
        two.channel.close()


def test_forgotten():
    with called_service(pb, "--grpc-client-expiry", "1s") as caller:
        caller.RegisterClient(client_id=1)
        caller.RegisterClient(client_id=2)
        end = time.monotonic() + PATIENCE_S
        while caller.Heartbeat(client_id=2).alive:
            figures = {f.name: f.number for f in caller.Stats(prefix="control.plane.").figures}
            if figures["control.plane.clients"] == 1:
                break
            assert time.monotonic() < end, figures
            time.sleep(0.1)
        assert not caller.Heartbeat(client_id=1).alive
        caller.RegisterClient(client_id=1)
        assert caller.Heartbeat(client_id=1).alive


if __name__ == "__main__":
    os.makedirs(MADE, exist_ok=True)
    try:
        need_service()
        if not HAS_GRPC:
            raise Skip("no Python here has grpcio (Debian: python3-grpcio)")
        sys.path.insert(0, make_messages())
        pb = importlib.import_module("kv_cache_pb2")
    except Skip as reason:
        print(f"skip data_plane_python: {reason}\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    sys.exit(run_main(globals()))
