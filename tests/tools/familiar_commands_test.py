#!/usr/bin/env python3
"""Runs the command lines that users of similar stores know, word for word.

usage: familiar_commands_test.py BIN_DIRECTORY COMPAT_DIRECTORY [NAME...]

They name fixed ports and every address of the host. So the tests run in a network of their own,
where that is permitted, and are skipped elsewhere. What needs an adapter is run in the lab's guest
(tests/verbs_lab).
"""

import ctypes
import fcntl
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from tool_harness import NUL, READY_S, Skip, main

BIN, COMPAT = (os.path.abspath(path) for path in sys.argv[1:3])
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

# Programs under the names and in the places that the command lines give them.
PROGRAMS = {
    "application": f"{COMPAT}/rdma_kv_program", "client": f"{COMPAT}/rdma_kv_program",
    "bin/kv_server": f"{BIN}/kv-server", "bin/kv_client": f"{BIN}/kv-client",
    "target/release/kv-server": f"{BIN}/kv-server",
    "target/release/kv-client": f"{BIN}/kv-client",
    "target/release/kv-bench": f"{BIN}/kv-bench",
}
# "cargo run --bin NAME -- WORDS" and "./run-with-rdma.sh PROGRAM WORDS" run a program with WORDS.
BUILD_TOOLS = {
    "cargo": 'shift 3; [ "${1:-}" = -- ] && shift; exec "$BIN/$name" "$@"',
    "run-with-rdma.sh": 'exec "$@"',
}

network_error = None


def enter_network():
    """A network with nothing but a loopback; the caller's rights stay as they are."""
    global network_error
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if libc.unshare(flags) != 0:
        network_error = os.strerror(ctypes.get_errno())
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


class Place:
    """A directory with the programs, in which command lines are run."""

    def __enter__(self):
        if network_error:
            raise Skip(f"no network of its own: {network_error}")
        self.directory = tempfile.TemporaryDirectory(prefix="familiar-")
        self.servers = []
        for name, target in PROGRAMS.items():
            path = os.path.join(self.directory.name, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
        for name, body in BUILD_TOOLS.items():
            path = os.path.join(self.directory.name, name)
            with open(path, "w") as script:
                script.write(f'#!/bin/sh\nBIN={shlex.quote(BIN)} name=${{3:-}}\n{body}\n')
            os.chmod(path, 0o755)
        return self

    def __exit__(self, *_):
        for server in self.servers:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        self.directory.cleanup()

    def environment(self):
        return {**os.environ, "PATH": f"{self.directory.name}:{os.environ['PATH']}"}

    def start(self, line, port):
        """Starts a server by a command line, and waits until its port answers."""
        log = os.path.join(self.directory.name, f"log-{len(self.servers)}")
        with open(log, "w") as output:
            # exec: the process that stop() waits for is the server, not a shell around it.
            server = subprocess.Popen(f"exec {line}", shell=True, cwd=self.directory.name,
                                      stdin=NUL, stdout=output, stderr=output,
                                      env=self.environment(), start_new_session=True)
        self.servers.append(server)
        end = time.monotonic() + READY_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return server
            assert server.poll() is None and time.monotonic() < end, (line, open(log).read())
            time.sleep(0.02)

    def stop(self, server):
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(READY_S)

    def run(self, line, code=0, **more):
        more.setdefault("stdin", NUL) if "input" not in more else None
        result = subprocess.run(line, shell=True, cwd=self.directory.name, capture_output=True,
                                text=True, timeout=120, env=self.environment(), **more)
        assert result.returncode == code, (line, result)
        return result.stdout


def test_application_and_client():
    with Place() as place:
        server = place.start("./application", 12345)
        assert "all went well" in place.run("./client 127.0.0.1")
        assert "all went well" in place.run("./client localhost")
        place.stop(server)


def test_kv_server_and_kv_client():
    with Place() as place:
        server = place.start("./bin/kv_server -a 0.0.0.0 -p 12345 -m 1024 -H", 12345)
        output = place.run("./bin/kv_client -a 127.0.0.1 -p 12345", input="put mykey myvalue\n"
                           "get mykey\ncas mykey 1 newvalue\ndel mykey\nget mykey\nbench 1000\n")
        lines = output.splitlines()
        assert lines[0].startswith("OK") and lines[1] == "myvalue", output
        assert lines[2].startswith(("OK (new version: ", "CAS FAILED (current version: ")), output
        assert lines[3:5] == ["OK", "(nil)"], output
        assert "put" in output and "get" in output.split("(nil)")[1], output
        place.stop(server)
        # There is no such adapter here, and that is said.
        for line in ("./bin/kv_server -a 0.0.0.0 -p 12345 -m 1024 -S -d mlx5_0",
                     "./bin/kv_client -a 127.0.0.1 -p 12345 -S -d mlx5_0 ping"):
            result = subprocess.run(line, shell=True, cwd=place.directory.name, stdin=NUL,
                                    capture_output=True, text=True, timeout=60)
            assert result.returncode in (1, 2, 3) and "mlx5_0" in result.stderr, result


def test_cargo_run():
    with Place() as place:
        server = place.start('cargo run --bin kv-server -- --listen-addr "0.0.0.0:50051" '
                             '--memory-mb 2048 --node-id 0 --log-level debug', 50051)
        place.run('cargo run --bin kv-client -- put mykey "hello world"')
        assert place.run("cargo run --bin kv-client -- get mykey") == "hello world"
        remote = '--server-addr "http://127.0.0.1:50051" get mykey'
        assert place.run(f"cargo run --bin kv-client -- {remote}") == "hello world"
        place.run("cargo run --bin kv-client -- delete mykey")
        output = place.run("cargo run --bin kv-client -- repl", input="put a b\nget a\n")
        assert output.splitlines()[-1] == "b", output
        place.run("cargo run --bin kv-client -- bench --ops 1000 --value-size 1024")
        place.stop(server)
        place.stop(place.start("cargo run --bin kv-server", 12345))


def test_mock():
    """--mock true, --mock false and --mock, of all three programs."""
    with Place() as place:
        for word in ("true", "false", ""):
            server = place.start(f"./target/release/kv-server --mock {word} "
                                 '--listen-addr "0.0.0.0:50051"', 50051)
            url = '--server-addr "http://127.0.0.1:50051"'
            client = f"./target/release/kv-client --mock {word}"
            place.run(f'{client} {url} put mykey "hello"')
            assert place.run(f"{client} {url} get mykey") == "hello"
            assert place.run(f"{client} get mykey") == "hello"
            place.run(f"./target/release/kv-bench --mock {word} --num-keys 20 --value-size 1KB "
                      "--num-threads 1 --warmup 1 --repeat-reads 1")
            place.stop(server)
        for words in ("--mock true -S", "--mock -d rxe0", "--mock true --listen verbs"):
            place.run(f"./target/release/kv-server {words}", code=2)


def test_kv_bench():
    with Place() as place:
        bench = "./run-with-rdma.sh ./target/release/kv-bench"
        server = place.start("./run-with-rdma.sh ./target/release/kv-server -m 1024 "
                             "--listen-addr 50051", 50051)
        for words in ("", "--value-size 16KB --num-threads 4",
                      '--server-addr "http://127.0.0.1:50051"'):
            place.run(f"{bench} {words}")
        place.stop(server)


def test_kv_bench_with_large_values():
    """The longest of them: 5000 values of a megabyte, in a server that has room for few."""
    with Place() as place:
        server = place.start("./target/release/kv-server -m 256", 12345)
        for words in ("--num-keys 5000 --value-size 1MB --num-threads 8 --buffer-mb 128",
                      "--value-size 1MB --num-threads 8"):
            place.run(f"./run-with-rdma.sh ./target/release/kv-bench {words}")
        place.stop(server)


if __name__ == "__main__":
    enter_network()
    sys.exit(main(globals(), sys.argv[3:]))
