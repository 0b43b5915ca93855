#!/usr/bin/env python3
"""Drives the real kv-server and kv-perf, the examples that need a server, and the tour.

usage: kv_tools_test.py BIN_DIRECTORY SOURCE_DIRECTORY [NAME...]

Each test is a function `test_*`, with a server of its own where it needs one; a NAME picks those
whose name contains it. The last line counts them: "N passed, N failed, N skipped".
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

BIN, SOURCE = sys.argv[1], sys.argv[2]
TRANSPORTS = ["shm", "tcp"]
NUL = subprocess.DEVNULL


class Server:
    """A kv-server on a free port, ended at the end of the block."""

    def __init__(self, *arguments):
        self.directory = tempfile.TemporaryDirectory(prefix="kv-tools-")
        self.log = os.path.join(self.directory.name, "log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [f"{BIN}/kv-server", "-a", "127.0.0.1", "-p", "0", "-m", "64", *arguments],
                stdin=NUL, stdout=log, stderr=log)
        self.port = None

    def __enter__(self):
        end = time.monotonic() + 20
        while "\nready\n" not in self.text():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.02)
        self.port = re.search(r"^port: (\d+)$", self.text(), re.M)[1]
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.directory.cleanup()

    def text(self):
        with open(self.log) as log:
            return log.read()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(20)

    def client(self, *words, device="shm", **more):
        more.setdefault("stdin", None if "input" in more else NUL)
        if more["stdin"] is None:
            del more["stdin"]
        return subprocess.run([f"{BIN}/kv-client", "-p", self.port, "-d", device, *words],
                              capture_output=True, timeout=60, **more)

    def expect(self, code, output, *words, **more):
        result = self.client(*words, **more)
        got = (result.returncode, result.stdout.decode())
        assert got == (code, output), f"{words}: {got} {result.stderr}"
        return result

    def perf(self, *arguments, transport="shm"):
        return subprocess.run(
            [f"{BIN}/kv-perf", "--json", "--port", self.port, "--device", transport, "--keys",
             "500", "--seconds", "5ms", "--rounds", "2", *arguments],
            capture_output=True, text=True, timeout=120)


def run(program, *arguments, **more):
    return subprocess.run([f"{BIN}/{program}", *arguments], capture_output=True, text=True,
                          timeout=60, stdin=NUL, **more)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


# ---------------------------------------------------------------- kv-perf


def test_perf():
    tests = ["get", "put", "get-many", "put-many", "async-get", "async-put", "incr", "ping"]
    figures = {"test", "transport", "keys", "key_size", "value_size", "clients", "window",
               "ops_per_s", "bytes_per_s", "p50_ns", "p99_ns", "paths", "round_trips", "samples"}
    with Server() as server:
        for transport in TRANSPORTS:
            for size in ("64", "20KB"):
                result = server.perf(*tests, "--value-size", size, transport=transport)
                assert result.returncode == 0, (transport, size, result)
                rows = [json.loads(line) for line in result.stdout.splitlines()]
                assert [row["test"] for row in rows] == tests, rows
                for row in rows:
                    assert figures <= row.keys(), row
                    assert row["transport"].split()[0] == transport, row
                    assert len(row["samples"]) == 2 and min(row["samples"]) > 0, row
                    assert 0 < row["p50_ns"] <= row["p99_ns"], row


def test_perf_paths():
    """A test measures the path that it is meant to."""
    with Server() as server:
        def paths(*arguments, transport="shm"):
            result = server.perf(*arguments, transport=transport)
            assert result.returncode == 0, result
            return json.loads(result.stdout)["paths"]

        def most_of(counts):
            return max(counts, key=counts.get)
        assert most_of(paths("get")) == "mapped"
        assert most_of(paths("get", "--get-mode", "ask")) == "inline"
        assert most_of(paths("get", "--cached", transport="tcp")) == "location"
        assert most_of(paths("put")) == "eager"
        assert most_of(paths("put", "--value-size", "20KB")) == "landing"
        assert "inline" in paths("view")


def test_perf_clients():
    with Server() as server:
        result = server.perf("get", "put", "--clients", "3")
        assert result.returncode == 0, result
        assert [json.loads(line)["clients"] for line in result.stdout.splitlines()] == [3, 3]
        result = server.perf("idle", "--clients", "5")
        assert result.returncode == 0 and json.loads(result.stdout)["test"] == "idle", result


def test_perf_table():
    with Server() as server:
        result = run("kv-perf", "-p", server.port, "-k", "100", "-t", "5ms", "-r", "1", "get",
                     "put")
        assert [line.split()[0] for line in result.stdout.splitlines()] == ["get", "put"], result


def test_perf_failures():
    with Server() as server:
        result = server.perf("get", "--no-fill")
        assert result.returncode == 1 and "not found" in result.stderr, result
        result = server.perf("view", transport="tcp")
        assert result.returncode == 1 and "shared memory" in result.stderr, result
        assert server.perf("get").returncode == 0
        result = server.perf("get", "--no-fill", "--value-size", "100")
        assert result.returncode == 1 and "--value-size 100" in result.stderr, result
    result = run("kv-perf", "-p", free_port(), "-T", "300ms", "get")
    assert result.returncode == 1 and "connect" in result.stderr, result
    for text, *arguments in (("no test 'fly'", "fly"), ("--keys", "-k", "many"),
                             ("--cpus", "--cpus", "0,x"), ("--cpus", "--cpus", "1,"),
                             ("pin to core 1000", "-p", free_port(), "--cpus", "1000", "get")):
        result = run("kv-perf", *arguments)
        assert result.returncode == 2 and text in result.stderr, (arguments, result)


# ---------------------------------------------------------------- examples and tour


def test_examples():
    with Server() as server:
        for url in (f"shm:kv-{server.port}", f"tcp://127.0.0.1:{server.port}"):
            result = run("examples/04_kv", url)
            assert result.stdout == ("get: remora\ncas: a newer version\ncas again: refused\n"
                                     "ttl: within a minute\nget: not found\n"), result
            result = run("examples/05_async", url)
            assert result.stdout == "1000 of 1000 values are right\n", result
            result = run("examples/06_update", url)
            letters = re.fullmatch(r"40 letters: ([abcd]{40})\n", result.stdout)
            assert result.returncode == 0 and letters, result
            assert all(letters[1].count(letter) == 10 for letter in "abcd"), result
        server.expect(0, "", "scan", "0")
    for example in ("04_kv", "05_async", "06_update"):
        result = run(f"examples/{example}", f"tcp://127.0.0.1:{free_port()}")
        assert result.returncode == 1 and result.stderr, result


def test_tour():
    with tempfile.TemporaryDirectory() as directory:
        result = subprocess.run([f"{SOURCE}/scripts/kv-tour"], capture_output=True, text=True,
                                timeout=60, stdin=NUL,
                                env={**os.environ, "REMORA_BIN": BIN, "TMPDIR": directory})
        assert result.returncode == 0, result
        assert "OK (new version: 2)\n" in result.stdout, result.stdout
        assert "CAS FAILED (current version: 2)\n" in result.stdout, result.stdout
        assert "\n42\n" in result.stdout, result.stdout
        assert not os.listdir(directory), os.listdir(directory)


# ---------------------------------------------------------------- runner


def main():
    counts = {"passed": 0, "failed": 0}
    for name, function in list(globals().items()):
        picked = len(sys.argv) == 3 or any(word in name for word in sys.argv[3:])
        if not name.startswith("test_") or not picked:
            continue
        start = time.monotonic()
        try:
            function()
            print(f"ok {name[5:]} ({(time.monotonic() - start) * 1000:.0f} ms)", flush=True)
            counts["passed"] += 1
        except Exception:
            print(f"FAIL {name[5:]}: {traceback.format_exc()}", flush=True)
            counts["failed"] += 1
    print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    # Servers that are killed leave their socket files: where nobody else looks for them.
    with tempfile.TemporaryDirectory(prefix="kv-shm-") as shm_directory:
        os.environ["REMORA_SHM_DIR"] = shm_directory
        sys.exit(main())
