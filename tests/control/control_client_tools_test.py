#!/usr/bin/env python3
"""kv-client and kv-bench on the gRPC service, with addresses that begin with http:// or https://.

usage: control_client_tools_test.py BIN_DIRECTORY SOURCE_DIRECTORY MADE_DIRECTORY [NAME...]
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from control_harness import (Certificates, GrpcServer, KeyFiles, NUL, Skip, need_service, run_main)
from tool_harness import BIN, PUT, check_answer, free_port


class Service(GrpcServer):
    """A server, and kv-client on its gRPC service."""

    scheme = "http"

    def url(self):
        return f"{self.scheme}://{self.address}"

    def ask(self, *words, **more):
        if "input" not in more:
            more.setdefault("stdin", NUL)
        return subprocess.run([f"{BIN}/kv-client", "--server-addr", self.url(), *words],
                              capture_output=True, timeout=60, **more)

    def check(self, code, output, *words, **more):
        result = self.ask(*words, **more)
        check_answer(result, code, output)
        return result

    def version_of(self, key):
        return json.loads(self.ask("--json", "stat", key).stdout)["version"]


class SafeService(Service):
    scheme = "https"


def test_commands():
    with Service() as server:
        server.check(0, PUT, "put", "k", "hello")
        server.check(0, "hello", "get", "k")
        server.check(1, "", "get", "none")
        old = server.version_of("k")
        server.check(0, re.compile(r"OK \(new version: \d+\)\n"), "cas", "k", str(old), "two")
        new = server.version_of("k")
        assert new > old, (old, new)
        server.check(1, f"CAS FAILED (current version: {new})\n", "cas", "k", str(old), "tre")
        server.check(1, "", "cas", "none", "1", "x")
        server.check(0, "1\n", "exists", "k")
        server.check(1, "0\n", "exists", "none")
        server.check(0, PUT, "put", "t", "x", "--ttl", "100s")
        assert 0 < float(server.ask("ttl", "t").stdout.split()[0]) <= 100
        server.check(0, "OK\n", "expire", "t", "0")
        server.check(0, "never expires\n", "ttl", "t")
        server.check(0, f"version {new}\nlength 3\nttl never expires\n", "stat", "k")
        assert server.ask("put", "k", "x", "--if-absent").returncode == 1
        assert sorted(server.ask("scan").stdout.split()) == [b"k", b"t"]
        assert len(server.ask("scan", "--limit", "1").stdout.split()) == 1
        server.check(0, "t\n", "scan", "t*")
        server.check(0, "", "scan", "nothing*")
        server.check(0, "OK\n", "delete", "t")
        server.check(1, "", "del", "t")
        figures = dict(line.split(" ", 1) for line in
                       server.ask("stats").stdout.decode().splitlines())
        assert figures["keys"] == "1" and int(figures["control.calls.Put"]) >= 2, figures
        assert re.match(rb"OK \([0-9.]+ us by grpc\+shm\)", server.ask("ping").stdout)
        assert server.ask("top", "--once", "--interval", "50ms").returncode == 0
        got = json.loads(server.ask("--json", "get", "k").stdout)
        assert got["value"] == "two" and got["version"] == new, got


def test_what_the_service_has_not():
    with Service() as server:
        for command in (["incr", "n"], ["flush"]):
            result = server.ask(*command)
            assert result.returncode == 3, result
            assert b"the gRPC service has no such call" in result.stderr, result
            assert b"kv-client -a HOST" in result.stderr, result
        assert b"own protocol" in server.ask("doctor").stderr
        assert server.ask("-p", "5", "get", "k").returncode == 2
        assert server.ask("--socket", "get", "k").returncode == 2


def test_long_values():
    """By shm, by tcp, and with a buffer that is shorter than the value."""
    with Service() as server, tempfile.TemporaryDirectory() as directory:
        source, target = os.path.join(directory, "a"), os.path.join(directory, "b")
        with open(source, "wb") as file:
            file.write(os.urandom(9_000_000))
        for options in (["-d", "shm"], ["-d", "tcp"], ["--buffer-mb", "1"], ["--mock"]):
            assert server.ask(*options, "put", "k", "@" + source).returncode == 0, options
            assert server.ask(*options, "get", "k", "--output", target).returncode == 0, options
            with open(source, "rb") as one, open(target, "rb") as other:
                assert one.read() == other.read(), options
            os.unlink(target)
        assert b" by grpc+tcp)" in server.ask("-d", "tcp", "ping").stdout
        figures = server.ask("stats").stdout.decode()
        assert "control.plane.pushes 4\n" in figures and "control.plane.pulls 4\n" in figures


def test_prompt():
    with Service() as server:
        result = server.ask("repl", input=b"put a b\nget a\nincr n\nget none\nscan\nquit\n")
        assert result.stdout.splitlines()[0::1][:2] [1:] == [b"b"], result
        assert result.stdout.startswith(b"OK (version: "), result
        assert b"no such call" in result.stdout and b"(nil)" in result.stdout, result


def test_keys():
    files = KeyFiles()
    with Service(*files.arguments()) as server:
        server.check(0, PUT, "-k", files.write, "put", "a", "b")
        server.check(0, "b", "-k", files.read, "get", "a")
        assert server.ask("-k", files.read, "put", "a", "c").returncode == 3
        assert server.ask("get", "a").returncode == 3


def test_tls():
    certificates = Certificates()
    with SafeService("--tls-cert", certificates.path("server.pem"), "--tls-key",
                     certificates.path("server.key")) as server:
        authority = ("--ca-file", certificates.path("ca.pem"))
        server.check(0, PUT, *authority, "put", "a", "b")
        server.check(0, "b", "--insecure", "get", "a")
        refused = server.ask("get", "a")
        assert refused.returncode == 3 and b"certificate" in refused.stderr, refused
        assert b"name the authority that signed it by --ca-file" in refused.stderr, refused
        result = server.ask(*authority, "bench", "--ops", "50", "--value-size", "1024",
                            "--keys", "100")
        assert result.returncode == 0, result


def test_example():
    with Service() as server:
        result = subprocess.run([f"{BIN}/examples/11_push", server.url()], capture_output=True,
                                text=True, timeout=60, stdin=NUL)
        assert result.stdout == ("values travel by shm\nput by rendezvous\n"
                                 "got 1048576 bytes by push, the last is 'x'\n"), result


def test_nobody_there():
    result = subprocess.run([f"{BIN}/kv-client", "--server-addr", f"http://127.0.0.1:{free_port()}",
                             "get", "k"], capture_output=True, text=True, timeout=60, stdin=NUL)
    assert result.returncode == 3 and "nobody listens there" in result.stderr, result
    result = subprocess.run([f"{BIN}/kv-client", "--server-addr", "http://", "get", "k"],
                            capture_output=True, text=True, timeout=60, stdin=NUL)
    assert result.returncode == 3 and "http://HOST:PORT" in result.stderr, result


def bench(*arguments):
    result = subprocess.run([f"{BIN}/kv-bench", *arguments], capture_output=True, text=True,
                            timeout=120, stdin=NUL)
    assert result.returncode == 0, result
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_bench_cache():
    """The flags of the cache workload, by gRPC."""
    with Service() as server:
        rows = bench("--json", "--keep", "--num-keys", "60", "--value-size", "64KB",
                     "--num-threads", "2",
                     "--num-clients", "2", "--buffer-mb", "8", "--ttl", "60", "--warmup", "5",
                     "--repeat-reads", "3", "--server-addr", server.url(), "--mock", "true")
        assert {row["workload"] for row in rows} == {"cache"}, rows
        assert {row["store"] for row in rows} == {"grpc"}, rows
        assert {row["provider"] for row in rows} == {"grpc+shm"}, rows
        puts = [row for row in rows if row["op"] == "put"]
        gets = [row for row in rows if row["op"] == "get" and row["path"] != "all"]
        assert sum(row["operations"] for row in puts) == 60, rows
        assert sum(row["operations"] for row in gets) == 180, rows
        assert {row["path"] for row in gets} == {"push"}, rows
        key = server.ask("scan", "--limit", "1").stdout.strip()
        assert 0 < float(server.ask("ttl", key).stdout.split()[0]) <= 60, key


def test_bench_workloads():
    with Service() as server:
        for workload in ("a", "e", "f"):
            rows = bench("--json", "-u", server.url(), "-W", workload, "-k", "50", "-s", "1KB",
                         "-t", "50ms")
            assert rows and all(row["store"] == "grpc" for row in rows), rows
        rows = bench("--json", "-u", server.url(), "get", "-k", "20", "-s", "100KB", "-t", "50ms",
                     "--verify", "-d", "tcp")
        assert {row["path"] for row in rows} == {"push"}, rows
        assert {row["provider"] for row in rows} == {"grpc+tcp"}, rows
        for words in (["async-get"], ["get", "--cached"], ["view"], ["-W", "a", "--window", "4"]):
            result = subprocess.run([f"{BIN}/kv-bench", "-u", server.url(), *words], stdin=NUL,
                                    capture_output=True, text=True, timeout=60)
            assert result.returncode == 2, result


def test_bench_beside_the_native_protocol():
    rows = bench("--json", "--compare", "grpc", "get", "-k", "20", "-s", "100KB", "-t", "50ms",
                 "-r", "1")
    assert {row["store"] for row in rows} == {"remora", "grpc"}, rows
    result = subprocess.run([f"{BIN}/kv-bench", "--compare", "grpc", "-p", free_port()], stdin=NUL,
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "server of our own" in result.stderr, result


if __name__ == "__main__":
    try:
        need_service()
    except Skip as reason:
        print(f"skip control_client_tools: {reason}\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    sys.exit(run_main(globals()))
