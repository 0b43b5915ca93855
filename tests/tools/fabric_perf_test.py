#!/usr/bin/python3
"""Drives the real fabric-perf: every operation on shm and tcp, its output, its exit codes.

usage: fabric_perf_test.py PATH/TO/fabric-perf DIRECTORY/OF/YARDSTICKS [NAME...]

Each test is a function `test_*`; a NAME picks those whose name contains it. The last line counts
them: "N passed, N failed, N skipped".
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

PROGRAM = sys.argv[1]
YARDSTICKS = sys.argv[2]
KEYS = {
    "provider", "op", "size", "depth", "batch", "ops_per_s", "bytes_per_s", "mean_ns",
    "p50_ns", "p99_ns", "p999_ns",
}
OPS = ["send", "read", "write", "write_imm", "cas", "fadd"]
WORDS = {"passed": "ok", "failed": "FAIL", "skipped": "skip"}
SHORT = ["--seconds", "100ms", "--warmup", "10ms"]


class Skip(Exception):
    pass


def call(*arguments, timeout=60):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=timeout)


def rows(*arguments):
    """Runs `fabric-perf run --json` and returns its rows, each checked for sanity."""
    result = call("run", "--json", *arguments)
    assert result.returncode == 0, f"exit {result.returncode}: {result.stderr}"
    parsed = [json.loads(line) for line in result.stdout.splitlines()]
    for row in parsed:
        assert KEYS <= row.keys(), f"keys missing: {KEYS - row.keys()}"
        if row["op"] == "idle":
            continue
        assert row["ops_per_s"] > 0 and row["mean_ns"] > 0, row
        assert 0 < row["p50_ns"] <= row["p99_ns"] <= row["p999_ns"], row
        assert abs(row["bytes_per_s"] - row["ops_per_s"] * row["size"]) < 1 + row["size"], row
        if row["depth"] == 1:
            assert abs(row["mean_ns"] * row["ops_per_s"] / 1e9 - 1) < 0.05, row
    return parsed


def expect_failure(code, text, *arguments):
    result = call(*arguments)
    assert result.returncode == code, f"exit {result.returncode}, not {code}: {result.stderr}"
    assert text in result.stderr, f"no '{text}' in: {result.stderr}"
    assert len(result.stderr.strip().splitlines()) <= 3, result.stderr


class Server:
    """A `fabric-perf serve`; ends with the block. Its address is in .address."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([PROGRAM, "serve", *arguments], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.process.communicate(timeout=10)[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=10)

    def end(self, timeout=10):
        return self.process.wait(timeout)


def shm_address():
    return os.path.join(tempfile.mkdtemp(prefix="fabric-perf-"), "socket")


def address_for(device):
    return shm_address() if device == "shm" else "127.0.0.1:0"


# ---------------------------------------------------------------- operations


def every_op(device):
    got = rows("--device", device, "--op", "all", "--depth", "1,16", *SHORT)
    assert [(row["op"], row["depth"]) for row in got] == [(op, d) for op in OPS for d in (1, 16)]
    assert all(row["provider"] == device and row["size"] == 8 for row in got)


def test_every_op_shm():
    every_op("shm")


def test_every_op_tcp():
    every_op("tcp")


def sizes(device):
    wanted = [0, 1, 4096, 1048576]
    got = rows("--device", device, "--op", "read,write,write_imm", "--size", "0,1,4KB,1MB",
               "--depth", "1,4", *SHORT)
    assert len(got) == 3 * len(wanted) * 2
    assert sorted({row["size"] for row in got}) == wanted


def test_sizes_shm():
    sizes("shm")


def test_sizes_tcp():
    sizes("tcp")


def check(device, *more):
    got = rows("--device", device, "--op", "all", "--check", "--size", "1,8,4000", "--depth",
               "1,7,64", *SHORT, *more)
    assert len(got) >= 4 * 3 * 3


def test_check_shm():
    check("shm")


def test_check_tcp():
    check("tcp")


def test_check_shm_plain():
    check("shm", "--plain")


def test_check_tcp_plain():
    check("tcp", "--plain")


def test_wait_modes():
    for device in ("shm", "tcp"):
        for wait in ("spin", "adapt", "sleep"):
            got = rows("--device", device, "--op", "send,read,write_imm", "--wait", wait,
                       "--depth", "1,16", "--check", *SHORT)
            assert len(got) == 6 and all(row["wait"] == wait for row in got)


def test_inline():
    for device in ("shm", "tcp"):
        got = rows("--device", device, "--op", "send,write,write_imm", "--inline", "--check",
                   "--depth", "1,16", *SHORT)
        assert len(got) == 6


def test_batch():
    got = rows("--device", "tcp", "--op", "read", "--depth", "16", "--batch", "1", *SHORT)
    assert got[0]["batch"] == 1
    got = rows("--device", "tcp", "--op", "read", "--depth", "10", "--batch", "7", "--check",
               *SHORT)
    assert got[0]["batch"] == 7


def test_iterations():
    for depth in ("1", "16"):
        got = rows("--op", "read,send", "--iterations", "1000", "--depth", depth)
        assert [row["ops"] for row in got] == [1000, 1000], got


def test_idle_pair_uses_no_cpu():
    for device in ("shm", "tcp"):
        row, = rows("--device", device, "--op", "idle", "--seconds", "500ms")
        assert row["client_cpu"] < 0.05 and row["server_cpu"] < 0.05, row


def test_table():
    result = call("run", "--op", "send,read", *SHORT)
    assert result.returncode == 0, result.stderr
    assert "forked as process" in result.stdout, result.stdout
    assert "full round trip" in result.stdout, result.stdout
    lines = result.stdout.splitlines()
    assert any(line.startswith("send ") for line in lines), result.stdout
    assert any(line.startswith("read ") for line in lines), result.stdout


# ---------------------------------------------------------------- servers


def test_server_once_ends_itself():
    for device in ("shm", "tcp"):
        with Server(address_for(device), "--device", device, "--once") as server:
            assert len(rows(server.address, "--device", device, "--op", "send,read", *SHORT)) == 2
            assert server.end() == 0


def test_server_serves_one_after_the_other():
    with Server(address_for("tcp"), "--device", "tcp") as server:
        for _ in range(3):
            rows(server.address, "--device", "tcp", "--op", "fadd", "--check", *SHORT)
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0


def test_server_ends_on_signals():
    for device in ("shm", "tcp"):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Server(address_for(device), "--device", device) as server:
                server.process.send_signal(number)
                assert server.end() == 0
    address = shm_address()
    with Server(address) as server:
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
        assert not os.path.exists(address), "the socket file was left behind"


def lose_server(device, op, number, text):
    with Server(address_for(device), "--device", device) as server:
        client = subprocess.Popen([PROGRAM, "run", server.address, "--device", device, "--op", op,
                                   "--seconds", "30"], text=True, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        time.sleep(0.3)
        server.process.send_signal(number)
        error = client.communicate(timeout=30)[1]
        assert client.returncode == 3, f"{device} {op}: exit {client.returncode}: {error}"
        assert text in error, error


def test_lost_server():
    for device in ("shm", "tcp"):
        for op in ("send", "read"):
            lose_server(device, op, signal.SIGKILL, "the server is gone")
        lose_server(device, "send", signal.SIGTERM, "the server is gone")


def test_client_killed_server_goes_on():
    for device in ("shm", "tcp"):
        with Server(address_for(device), "--device", device) as server:
            client = subprocess.Popen([PROGRAM, "run", server.address, "--device", device, "--op",
                                       "send", "--seconds", "30"], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            time.sleep(0.3)
            client.kill()
            client.wait()
            rows(server.address, "--device", device, "--op", "send", *SHORT)


def test_forked_server_dies_with_its_client():
    client = subprocess.Popen([PROGRAM, "run", "--op", "send", "--seconds", "30"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    line = client.stdout.readline()
    child = int(line.split("forked as process ")[1].split(",")[0])
    client.kill()
    client.communicate()
    for _ in range(100):
        if not os.path.exists(f"/proc/{child}"):
            return
        with open(f"/proc/{child}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "Z":
                return
        time.sleep(0.05)
    raise AssertionError("the forked server is still there")


# ---------------------------------------------------------------- wrong usage


def test_bad_usage():
    expect_failure(2, "no command 'fly'", "fly")
    expect_failure(2, "--frobnicate", "run", "--frobnicate")
    expect_failure(2, "no operation 'jump'", "run", "--op", "jump")
    expect_failure(2, "--size", "run", "--size", "eight")
    expect_failure(2, "--size", "run", "--size", "8,,9")
    expect_failure(2, "--depth", "run", "--depth", "0")
    expect_failure(2, "--wait", "run", "--wait", "doze")
    expect_failure(2, "exclude each other", "run", "--plain", "--arena")
    expect_failure(2, "--server-cpu", "run", "somewhere", "--server-cpu", "0")
    expect_failure(2, "pin to core 1000", "run", "--cpu", "1000")
    expect_failure(2, "max_depth", "run", "--depth", "65536", "--op", "read")
    result = call()
    assert result.returncode == 2 and result.stderr


def test_no_such_device():
    expect_failure(2, "carrier-pigeon", "serve", "--device", "carrier-pigeon")
    result = call("run", "--device", "carrier-pigeon")
    assert result.returncode == 2 and "carrier-pigeon" in result.stderr, result


def test_plain_atomics_are_left_out():
    result = call("run", "--device", "shm", "--plain", "--json", *SHORT)
    assert result.returncode == 0, result.stderr
    assert "left out: cas" in result.stderr, result.stderr
    expect_failure(2, "no atomics", "run", "--device", "shm", "--plain", "--op", "cas")


def test_help():
    for command in ([], ["serve"], ["run"]):
        result = call(*command, "--help")
        assert result.returncode == 0 and "--help" in result.stdout, result


def test_unreachable():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        expect_failure(3, str(port), "run", f"127.0.0.1:{port}", "--device", "tcp")
    expect_failure(3, "nobody-here", "run", "nobody-here", "--device", "shm")


def test_something_else_listens():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = call("run", f"127.0.0.1:{port}", "--device", "tcp", "--timeout", "300ms")
        assert result.returncode == 3, result


# ---------------------------------------------------------------- yardsticks


def yardstick(name, *arguments):
    path = os.path.join(YARDSTICKS, name)
    if not os.path.exists(path):
        raise Skip(f"{name} was not built: libfabric-dev is missing")
    result = subprocess.run([path, *arguments, "--seconds", "0.1"], capture_output=True, text=True,
                            timeout=30)
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)
    assert row["ops_per_s"] > 0 and 0 < row["p50_ns"] <= row["p999_ns"], row


def test_raw_tcp():
    yardstick("raw-tcp-pingpong", "pingpong")
    yardstick("raw-tcp-pingpong", "bandwidth", "--size", "1048576", "--depth", "4")


def test_ofi_read():
    yardstick("ofi-read", "read", "--depth", "16")


# ---------------------------------------------------------------- runner


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, function in list(globals().items()):
        picked = len(sys.argv) == 3 or any(word in name for word in sys.argv[3:])
        if not name.startswith("test_") or not picked:
            continue
        start = time.monotonic()
        try:
            function()
            outcome, remark = "passed", ""
        except Skip as reason:
            outcome, remark = "skipped", f": {reason}"
        except Exception:
            outcome, remark = "failed", ": " + traceback.format_exc()
        counts[outcome] += 1
        took = f" ({(time.monotonic() - start) * 1000:.0f} ms)" if outcome == "passed" else ""
        print(f"{WORDS[outcome]} {name[5:]}{took}{remark}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
