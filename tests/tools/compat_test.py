#!/usr/bin/env python3
"""Runs the programs of tests/compat, which are written for other libraries.

usage: compat_test.py BIN_DIRECTORY PROGRAM_DIRECTORY [NAME...]
"""

import os
import signal
import socket
import subprocess
import sys

from tool_harness import NUL, Server, Skip, free_port, main

PROGRAMS = sys.argv[2]
KV_PORT = 12345


def start(program, *arguments):
    return subprocess.Popen([f"{PROGRAMS}/{program}", *arguments], stdin=NUL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(program, *arguments):
    return subprocess.run([f"{PROGRAMS}/{program}", *arguments], stdin=NUL, text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_snowrdma():
    for address in ("127.0.0.1", "tcp://127.0.0.1", "shm://127.0.0.1"):
        port = free_port()
        server = start("snowrdma_program", "server", address, port, "2")
        try:
            assert server.stdout.readline() == "ready\n"
            for _ in range(2):
                result = run("snowrdma_program", "client", address, port)
                assert result.returncode == 0, result
                assert result.stdout == "client: Hello\nclient: written\n", result
            output, _ = server.communicate(timeout=60)
            assert output == "server: a client left\n" * 2 + "server: done\n", output
            assert server.returncode == 0
        finally:
            server.kill()
            server.wait()


def test_rdma_kv():
    """`./application`, then `./client SERVER`; the server leaves no socket behind."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", KV_PORT)) == 0:
            raise Skip(f"port {KV_PORT} is taken, and run_server() takes no other")
    server = start("rdma_kv_program")
    try:
        lines = []
        while not any(line.startswith("tcp") for line in lines):
            line = server.stdout.readline()
            assert line, lines
            lines.append(line)
        for name in ("127.0.0.1", "localhost", f"tcp://127.0.0.1:{KV_PORT}"):
            result = run("rdma_kv_program", name)
            assert result.returncode == 0, result
            assert "wrong" not in result.stdout and "all went well" in result.stdout, result
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, server.stdout.read()
        left = os.listdir(os.environ["REMORA_SHM_DIR"])
        assert not left, left
    finally:
        server.kill()
        server.wait()


def test_kv_store():
    with Server() as server:
        result = run("kv_store_program", "auto", "127.0.0.1", server.port)
        assert result.returncode == 0 and result.stdout.endswith("all right\n"), result


if __name__ == "__main__":
    sys.exit(main(globals(), sys.argv[3:]))
