#!/usr/bin/env python3
"""Drives the real kv-bench, against a kv-server and against the servers that it starts itself.

usage: kv_bench_test.py BIN_DIRECTORY SOURCE_DIRECTORY [NAME...]

Each test is a function `test_*`; a NAME picks those whose name contains it. A test that needs what
is not here is skipped, with the reason. The last line counts them: "N passed, N failed, N skipped".
"""

import csv
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from tool_harness import BIN, NUL, Server, Skip, free_port, main

SOURCE = sys.argv[2]
TRANSPORTS = ["shm", "tcp"]
# What every row has.
TEXTS = {"store", "workload", "op", "path", "provider", "transport"}
NUMBERS = {"keys", "key_size", "value_size", "clients", "threads", "window", "operations",
           "ops_per_s", "bytes_per_s", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns",
           "max_ns", "errors", "misses"}


class BenchServer(Server):
    """A server to be measured."""

    def client(self, *words):
        return super().client(*words, text=True)

    def arguments(self, *more, transport="shm"):
        return ["--port", self.port, "--device", transport, "--keys", "500", *more]

    def loops(self, *arguments, transport="shm"):
        """Tight loops, in no time."""
        return bench("--json", "--seconds", "5ms", "--rounds", "2",
                     *self.arguments(*arguments, transport=transport))

    def rows(self, *arguments, transport="shm"):
        """The rows of a run that must succeed."""
        return rows_of(bench("--json", *self.arguments(*arguments, transport=transport)))


def bench(*arguments, **more):
    return subprocess.run([f"{BIN}/kv-bench", *arguments], capture_output=True, text=True,
                          timeout=120, stdin=NUL, **more)


def rows_of(result):
    assert result.returncode == 0, result
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    for row in rows:
        check_row(row)
    return rows


def check_row(row):
    assert TEXTS | NUMBERS | {"error_kinds", "samples"} <= row.keys(), row
    assert all(isinstance(row[name], str) for name in TEXTS), row
    assert all(isinstance(row[name], (int, float)) for name in NUMBERS), row
    levels = [row[name] for name in ("p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns",
                                     "max_ns")]
    assert levels == sorted(levels), row


def row_of(rows, op, path=None):
    """The row of an operation; of several the one that most operations took."""
    return max((row for row in rows if row["op"] == op and path in (None, row["path"])),
               key=lambda row: row["operations"])


# ---------------------------------------------------------------- operations, in tight loops


def test_loops():
    names = ["get", "put", "get-many", "put-many", "async-get", "async-put", "incr", "ping"]
    with BenchServer() as server:
        for transport in TRANSPORTS:
            for size in ("64", "20KB"):
                result = server.loops(*names, "--value-size", size, transport=transport)
                rows = rows_of(result)
                assert [row["op"] for row in rows] == names, rows
                for row in rows:
                    assert {"paths", "round_trips"} <= row.keys(), row
                    assert row["provider"] == row["transport"].split()[0] == transport, row
                    assert len(row["samples"]) == 2 and min(row["samples"]) > 0, row
                    assert row["p50_ns"] > 0 and row["errors"] == 0, row


def test_loops_paths():
    """A loop measures the path that it is meant to."""
    with BenchServer() as server:
        def path(*arguments, transport="shm"):
            return rows_of(server.loops(*arguments, transport=transport))[0]["path"]
        assert path("get") == "mapped"
        assert path("get", "--get-mode", "ask") == "inline"
        assert path("get", "--cached", transport="tcp") == "location"
        assert path("put") == "eager"
        assert path("put", "--value-size", "20KB") == "landing"
        assert "inline" in rows_of(server.loops("view"))[0]["paths"]


def test_loops_clients_and_threads():
    with BenchServer() as server:
        rows = rows_of(server.loops("get", "put", "get-many", "async-get", "--clients", "2",
                                    "--threads", "2"))
        assert [(row["clients"], row["threads"]) for row in rows] == [(2, 2)] * 4, rows
        rows = rows_of(server.loops("idle", "--clients", "5"))
        assert [row["op"] for row in rows] == ["idle"], rows


def test_loops_failures():
    with BenchServer() as server:
        result = server.loops("get", "--no-fill")
        assert result.returncode == 1 and "not found" in result.stderr, result
        result = server.loops("view", transport="tcp")
        assert result.returncode == 1 and "shared memory" in result.stderr, result
        assert server.loops("get", "--keep").returncode == 0
        result = server.loops("get", "--no-fill", "--value-size", "100")
        assert result.returncode == 1 and "--value-size 100" in result.stderr, result


# ---------------------------------------------------------------- workloads


def test_workloads():
    wanted = {"a": {"get": 0.5, "put": 0.5}, "b": {"get": 0.95, "put": 0.05}, "c": {"get": 1},
              "d": {"get": 0.95, "insert": 0.05}, "e": {"scan": 0.95, "insert": 0.05},
              "f": {"get": 0.5, "rmw": 0.5}}
    with BenchServer() as server:
        for transport in TRANSPORTS:
            for name, shares in wanted.items():
                rows = server.rows("--workload", name, "--operations", "4K", "--verify",
                                   transport=transport)
                counts = {}
                for row in rows:
                    assert row["workload"] == name and row["provider"] == transport, row
                    assert row["errors"] == row["misses"] == 0, row
                    if row["path"] != "all":
                        assert row["path"], row
                        counts[row["op"]] = counts.get(row["op"], 0) + row["operations"]
                assert sum(counts.values()) == 4000, rows
                assert counts.keys() == shares.keys(), rows
                for op, share in shares.items():
                    assert abs(counts[op] / 4000 - share) < 0.05, (name, counts)


def test_windows():
    """Asynchronous, with all operations there are; each has the path that answered."""
    with BenchServer() as server:
        for transport in TRANSPORTS:
            rows = server.rows("--mix", "get:4,put:4,insert:1,rmw:2,scan:1", "--operations", "3K",
                               "--window", "16", "--verify", "--clients", "2",
                               transport=transport)
            parts = [row for row in rows if row["path"] != "all"]
            assert {row["op"] for row in parts} == {"get", "put", "insert", "rmw", "scan"}, rows
            assert sum(row["operations"] for row in parts) == 3000, rows
            assert all(row["path"] and row["window"] == 16 for row in parts), rows
            assert row_of(parts, "put")["path"] == "eager", rows
            assert row_of(rows, "all")["operations"] == 3000, rows


def test_distributions():
    with BenchServer() as server:
        for name in ("uniform", "zipf", "latest", "sequential"):
            rows = server.rows("--mix", "get:9,insert:1", "--distribution", name, "--operations",
                               "2K", "--clients", "2")
            assert sum(row["misses"] for row in rows) == 0, rows


def test_sizes():
    with BenchServer() as server:
        rows = server.rows("get", "--value-size", "64,1KB,20KB", "--operations", "200",
                           "--key-size", "40", "--verify")
        assert [row["value_size"] for row in rows] == [64, 1024, 20480], rows
        for row in rows:
            assert row["key_size"] == 40, row
            ratio = row["bytes_per_s"] / row["ops_per_s"]
            assert abs(ratio / row["value_size"] - 1) < 0.01, row


def test_time_and_rounds():
    with BenchServer() as server:
        rows = server.rows("--workload", "b", "--seconds", "100ms", "--warm-up", "20ms",
                           "--rounds", "3", "--threads", "2")
        assert all(len(row["samples"]) == 3 for row in rows), rows
        assert row_of(rows, "all")["ops_per_s"] > 0, rows


def test_cache():
    """The cache workload: its flags, and its phases."""
    with BenchServer() as server:
        result = bench("--json", "--keep", "--num-keys", "60", "--value-size", "64KB",
                       "--num-threads", "2",
                       "--num-clients", "2", "--buffer-mb", "8", "--ttl", "60", "--warmup", "5",
                       "--repeat-reads", "3", "--server-addr", f"127.0.0.1:{server.port}",
                       "--mock", "true")
        rows = rows_of(result)
        assert {row["workload"] for row in rows} == {"cache"}, rows
        puts = [row for row in rows if row["op"] == "put"]
        gets = [row for row in rows if row["op"] == "get" and row["path"] != "all"]
        assert sum(row["operations"] for row in puts) == 60, rows
        assert sum(row["operations"] for row in gets) == 180, rows
        assert {row["provider"] for row in rows} == {"shm"}, rows
        key = server.client("scan", "--limit", "1").stdout.strip()
        assert 0 < float(server.client("ttl", key).stdout.split()[0]) <= 60, key
        assert bench("--workload", "cache", "-p", server.port, "--num-keys", "10", "--num-workers",
                     "1", "--mock=no").returncode == 0


def test_leaves_nothing():
    """On a server of others: keys of its own, no more than asked for, and none at the end."""
    with BenchServer() as server:
        for i in range(20):
            server.client("put", f"mine-{i}", "x")

        def left():
            return sorted(server.client("scan").stdout.split())
        mine = sorted(f"mine-{i}" for i in range(20))
        for words in (["--operations", "1000"], ["-W", "d", "-k", "50", "-o", "500"],
                      ["-W", "f", "-k", "50", "-o", "500", "-w", "4"],
                      ["get", "incr", "put-many", "-k", "100", "-t", "5ms", "-r", "1"],
                      ["-W", "cache", "-k", "30", "-s", "1KB"], ["ping", "-t", "5ms", "-r", "1"]):
            for transport in TRANSPORTS:
                result = bench("-p", server.port, "-d", transport, *words)
                assert result.returncode == 0, result
                said = " ".join(result.stdout.split())
                assert f"; localhost:{server.port} by {transport}" in said, result
                assert left() == mine, (words, left())
        # `bench 1000` writes a thousand keys, not a hundred thousand.
        most = server.client("--json", "bench", "1000")
        assert json.loads(most.stdout.splitlines()[0])["keys"] == 1000, most
        # Asked to keep them it does, below its own prefix.
        bench("-p", server.port, "-o", "10", "--keep", "--prefix", "other:")
        bench("-p", server.port, "-o", "10", "--keep")
        keys = [key for key in left() if key not in mine]
        assert len(keys) == 20 and len([key for key in keys if key.startswith("other:")]) == 10
        assert len([key for key in keys if key.startswith("kv-bench:")]) == 10, keys
        bench("-p", server.port, "-o", "10", "-n")
        assert len(left()) == 30, left()
        result = bench("-p", server.port, "-K", "16")
        assert result.returncode == 2 and "25 bytes at least" in result.stderr, result


def test_leaves_nothing_when_interrupted():
    with BenchServer() as server:
        server.client("put", "mine", "x")

        def wait_for_keys(most):
            end = time.monotonic() + 60
            while len(server.client("scan").stdout.split()) <= most:
                assert time.monotonic() < end
                time.sleep(0.02)
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([f"{BIN}/kv-bench", "-p", server.port, "-W", "d", "-k",
                                        "2000", "-t", "100s"], stdin=NUL, stdout=NUL,
                                       stderr=subprocess.PIPE, text=True)
            wait_for_keys(2001)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
            assert process.returncode == 1 and said == "kv-bench: interrupted\n", said
            assert server.client("scan").stdout == "mine\n", server.client("scan")
        # A server that is gone: what is left is said.
        process = subprocess.Popen([f"{BIN}/kv-bench", "-p", server.port, "-W", "a", "-T", "300ms",
                                    "-t", "100s", "-k", "100"], stdin=NUL, stdout=NUL,
                                   stderr=subprocess.PIPE, text=True)
        wait_for_keys(100)
        server.stop(signal.SIGKILL)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 1 and re.search(
            rf"keys that begin with 'kv-bench:' are left on localhost:{server.port}: ", said), said


def test_server_that_was_not_named():
    """No server: one is started, and that is said. One that refuses us: that is a failure."""
    words = ["ping", "-t", "5ms", "-r", "1"]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 12345))
        except OSError as error:
            raise Skip(f"port 12345, the default: {error}") from error
    result = bench(*words)
    assert result.returncode == 0 and "no server reached at port 12345" in result.stderr, result
    assert "; a server of its own by shm" in " ".join(result.stdout.split()), result
    with tempfile.NamedTemporaryFile("w") as key:
        key.write("a key that the server asks for\n")
        key.flush()
        with BenchServer("--key-file", key.name, defaults=("-a", "127.0.0.1", "-p", "12345",
                                                           "-m", "32")):
            result = bench(*words)
            assert result.returncode == 1 and "--spawn starts another" in result.stderr, result
            assert not result.stdout, result


def test_verify():
    """A spoilt value is found, and where only every byte shows it."""
    with BenchServer() as server:
        arguments = ["--workload", "c", "--operations", "50", "--keys", "1", "--keep"]
        server.rows(*arguments)
        key = server.client("scan", "--limit", "10").stdout.split()
        assert len(key) == 1, key
        value = server.client("get", key[0]).stdout
        with tempfile.NamedTemporaryFile() as file:
            file.write(value.encode()[:-1] + b"!")
            file.flush()
            assert server.client("put", key[0], f"@{file.name}").returncode == 0
        arguments += ["--no-fill"]
        assert bench(*server.arguments(*arguments)).returncode == 0
        result = bench("--json", *server.arguments(*arguments, "--verify"))
        assert result.returncode == 1 and "wrong value" in result.stderr, result
        row = json.loads(result.stdout.splitlines()[0])
        assert row["errors"] == 50 and row["error_kinds"] == {"wrong value": 50}, row


def test_misses():
    """What is not there is no error."""
    with BenchServer() as server:
        result = bench(*server.arguments("-W", "c", "--operations", "300", "--no-fill"))
        assert result.returncode == 0 and "300 found no key" in result.stdout, result


# ---------------------------------------------------------------- pace


def test_rate():
    with BenchServer() as server:
        for window in ("1", "8"):
            rows = server.rows("--workload", "a", "--rate", "500", "--seconds", "1", "--warm-up",
                               "0", "--window", window, "--clients", "2")
            assert abs(row_of(rows, "all")["operations"] - 500) <= 2, rows
        begin = time.monotonic()
        server.rows("--workload", "c", "--think-time", "10ms", "--operations", "50")
        assert time.monotonic() - begin > 0.5


def await_gets(server, count):
    """Until a run that asks for its gets has made so many."""
    def gets():
        return int(re.search(r"^requests.get (\d+)$", server.client("stats").stdout, re.M)[1])
    first, end = gets(), time.monotonic() + 20
    while gets() < first + count:
        assert time.monotonic() < end
        time.sleep(0.05)


def stopped_for_a_second(server, *arguments):
    """The rows of a run of three seconds during which the server stands still for one."""
    process = subprocess.Popen(
        [f"{BIN}/kv-bench", "--json", *server.arguments(
            "--workload", "a", "--get-mode", "ask", "--seconds", "3", "--warm-up", "200ms",
            *arguments, transport="tcp")], stdin=NUL, stdout=subprocess.PIPE, text=True)
    try:
        await_gets(server, 100)  # the warm-up has 20 or so
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(1.1)
        server.process.send_signal(signal.SIGCONT)
        output = process.communicate(timeout=60)[0]
    finally:
        process.kill()
        process.wait()
        server.process.send_signal(signal.SIGCONT)
    assert process.returncode == 0, output
    return [json.loads(line) for line in output.splitlines()]


def test_a_stall_is_not_left_out():
    """At a rate, all who would have come during a stall have waited: a third of all operations,
    for up to a second. Those were due, and are counted."""
    with BenchServer() as server:
        for window in ("1", "4"):
            row = row_of(stopped_for_a_second(server, "--rate", "200", "--window", window), "all")
            assert abs(row["operations"] - 600) <= 5, row
            assert row["p999_ns"] > 0.9e9, row
            assert row["p90_ns"] > 0.3e9, row


def test_a_rate_that_cannot_be_kept():
    with BenchServer() as server:
        for window in ("1", "8"):
            result = bench(*server.arguments("-m", "put", "--rate", "500M", "-t", "50ms",
                                             "-w", window, transport="tcp"))
            assert result.returncode == 0, result
            assert "the rate was not reached" in " ".join(result.stdout.split()), result


# ---------------------------------------------------------------- what is shown


def test_table():
    with BenchServer() as server:
        result = bench(*server.arguments("-t", "5ms", "-r", "1", "get", "put"))
        lines = result.stdout.splitlines()
        assert result.returncode == 0 and "by shm" in result.stdout, result
        head = next(i for i, line in enumerate(lines) if line.startswith("op "))
        assert lines[head].split() == ["op", "path", "ops/s", "B/s", "p50", "p90", "p99", "p99.9",
                                       "p99.99"], lines
        assert [line.split()[:2] for line in lines[head + 1:]] == [["get", "mapped"],
                                                                   ["put", "eager"]], lines
        assert not result.stderr, result


def histogram_total(text):
    shares = re.findall(r"^ *[\d.]+(?:ns|us|ms|s) * \|[#. ]* ([\d.]+)%$", text, re.M)
    return sum(map(float, shares)), len(shares)


def test_histogram():
    with BenchServer() as server:
        text = bench(*server.arguments("-W", "a", "-o", "2K")).stdout
        total, lines = histogram_total(text)
        assert 99.5 < total < 100.5 and 2 <= lines <= 22 and "#" in text, text
        text = bench(*server.arguments("-W", "a", "-o", "2K", "--histogram=no")).stdout
        assert histogram_total(text)[1] == 0, text
        text = bench(*server.arguments("get", "-t", "5ms", "--histogram")).stdout
        assert histogram_total(text)[1] > 0, text
        # What is rarer than the last line shows is told in one line.
        text = bench(*server.arguments("-W", "c", "-o", "100K")).stdout
        last = [line for line in text.splitlines() if re.match(r" *[\d.]+[num]?s +\|", line)][-1]
        rest = re.findall(r"^ *[\d.]+[num]?s +and more: [\d.]+%, at most [\d.]+[num]?s$", text,
                          re.M)
        assert not last.endswith(" 0.00%") and len(rest) <= 1, text


def test_widths():
    with BenchServer() as server:
        for width in (30, 40, 60, 80, 200):
            for arguments in (["-W", "a", "-o", "1K"], ["get", "put", "-t", "5ms", "-r", "1"],
                              ["-W", "f", "-o", "1K", "-w", "8"]):
                result = bench(*server.arguments(*arguments),
                               env={**os.environ, "COLUMNS": str(width)})
                assert result.returncode == 0, result
                longest = max(result.stdout.splitlines(), key=len)
                assert len(longest) <= max(width, 40), (width, longest)
                assert "p99.99" in result.stdout, result


def test_csv():
    with BenchServer() as server:
        result = bench("--csv", *server.arguments("-W", "a", "-o", "1K"))
        rows = list(csv.DictReader(result.stdout.splitlines()))
        assert result.returncode == 0 and len(rows) >= 3, result
        for row in rows:
            assert set(row) == TEXTS - {"transport"} | NUMBERS, row
            assert all(float(row[name]) >= 0 for name in NUMBERS), row
        assert [row["operations"] for row in rows if row["op"] == "all"] == ["1000"], rows


def test_plot():
    if not shutil.which("gnuplot"):
        raise Skip("gnuplot is not installed")
    with BenchServer() as server, tempfile.TemporaryDirectory() as directory:
        png, svg = os.path.join(directory, "it's.png"), os.path.join(directory, "one.svg")
        result = bench(*server.arguments("get", "put", "-t", "5ms", "-r", "1", "-s", "64,1KB",
                                         "--plot", png))
        assert result.returncode == 0 and not result.stderr, result
        with open(png, "rb") as file:
            assert file.read(8) == b"\x89PNG\r\n\x1a\n", png
        result = bench(*server.arguments("-W", "a", "-o", "1K", "--plot", svg))
        assert result.returncode == 0 and not result.stderr, result
        with open(svg) as file:
            assert "<svg" in file.read(), svg


def test_plot_without_gnuplot():
    with tempfile.TemporaryDirectory() as directory:
        result = bench("--plot", os.path.join(directory, "x.png"), "get",
                       env={**os.environ, "PATH": directory})
        assert result.returncode == 1 and "apt-get install gnuplot" in result.stderr, result
        assert not os.listdir(directory), os.listdir(directory)


def read_terminal(*arguments, columns):
    """What a run writes to a terminal of so many columns."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.pop("COLUMNS", None)
        os.execv("/bin/sh", ["sh", "-c", f'stty cols {columns}; exec "$@"', "sh",
                             f"{BIN}/kv-bench", *arguments])
    text, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        if not part:
            break
        text += part
    status = os.waitpid(pid, 0)[1]
    os.close(terminal)
    return status, text.decode()


def test_progress_on_a_terminal():
    with BenchServer() as server:
        status, text = read_terminal(*server.arguments("-W", "b", "-t", "1"), columns=40)
        assert status == 0 and re.search(r"\r.*%", text) and "\x1b[K" in text, text
        shown = re.sub(r"\r[^\r\n]*\x1b\[K", "", text)  # all that was wiped again
        assert max(map(len, shown.splitlines())) <= 40, shown


# ---------------------------------------------------------------- servers of its own


def processes_of(group):
    """Those of a session that are still there."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            if fields[3] == str(group) and fields[0] != "Z":
                found.append(int(name))
        except OSError:
            continue
    return found


def test_spawn():
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen([f"{BIN}/kv-bench", "--spawn", "-W", "a", "-o", "1K", "-k",
                                    "100"], stdin=NUL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   env={**os.environ, "TMPDIR": directory})
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0 and "by shm" in output and not errors, (output, errors)
        assert not processes_of(process.pid) and not os.listdir(directory)
    result = bench("--spawn", "-p", "1", "get")
    assert result.returncode == 2 and "--spawn" in result.stderr, result


def test_interrupted():
    """Nothing is left behind, whoever is told to end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen([f"{BIN}/kv-bench", "--spawn", "-W", "a", "-t", "60", "-k",
                                    "100", "-c", "2"], stdin=NUL, stdout=NUL,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        end = time.monotonic() + 20
        while len(processes_of(process.pid)) < 4 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(number)
        errors = process.communicate(timeout=30)[1]
        if number != signal.SIGKILL:
            assert process.returncode == 1 and "interrupted" in errors, (number, errors)
        while processes_of(process.pid) and time.monotonic() < end:
            time.sleep(0.05)
        assert not processes_of(process.pid), number


def have(program):
    places = [os.environ.get("REMORA_SERVERS_DIR", "/nowhere") + "/usr/bin",
              f"{BIN}/../servers/usr/bin", f"{BIN}/../../servers/usr/bin"]
    return shutil.which(program) or any(os.access(f"{place}/{program}", os.X_OK)
                                        for place in places)


def compared(*arguments):
    """The rows beside those servers that are here."""
    stores = [store for store, program in (("redis", "redis-server"), ("memcached", "memcached"))
              if have(program)]
    if not stores:
        raise Skip("neither redis-server nor memcached is here (scripts/setup bench)")
    with tempfile.TemporaryDirectory() as directory:
        result = bench("--compare", ",".join(stores), "-k", "200", *arguments,
                       env={**os.environ, "TMPDIR": directory})
        if result.returncode == 2 and "built without" in result.stderr:
            raise Skip(result.stderr.strip())
        assert result.returncode == 0, result
        assert not os.listdir(directory), os.listdir(directory)
    return stores, result


def test_compare():
    stores, result = compared("--json", "--operations", "300", "--rounds", "2", "--verify")
    rows = rows_of(result)
    for store in ["remora", *stores]:
        mine = [row for row in rows if row["store"] == store and row["path"] != "all"]
        assert {row["op"] for row in mine} == {"get", "put", "async-get", "async-put"}, mine
        for op in ("get", "put", "async-get", "async-put"):
            part = [row for row in mine if row["op"] == op]
            assert sum(row["operations"] for row in part) == 600, part
            assert sum(row["errors"] + row["misses"] for row in part) == 0, part
    assert {row["provider"] for row in rows if row["store"] != "remora"} == {"unix"}, rows


def test_compare_ratios():
    stores, result = compared("-W", "f", "-o", "500", "-w", "4", "--ttl", "60", "-s", "2KB",
                              "--verify")
    for store in stores:
        assert re.search(rf"^all x4 +[\d.e+]+x {store} +[\d.e+]+x$", result.stdout, re.M), result
    _, result = compared("get", "put", "-o", "300", "-s", "64,1KB")
    assert re.search(r"^get 1KiB +[\d.e+]+x ", result.stdout, re.M), result


def test_compare_scan():
    if not have("redis-server"):
        raise Skip("redis-server is not here (scripts/setup bench)")
    result = bench("--json", "--compare", "redis", "-W", "e", "-o", "200", "-k", "200")
    if result.returncode == 2 and "built without" in result.stderr:
        raise Skip(result.stderr.strip())
    scans = [row for row in rows_of(result) if row["op"] == "scan"]
    assert {row["store"] for row in scans} == {"remora", "redis"}, scans
    assert all(row["bytes_per_s"] > 0 for row in scans), scans


# ---------------------------------------------------------------- failures


def test_no_server():
    for arguments in (["get"], ["-W", "a"]):
        result = bench("-p", free_port(), "-T", "300ms", *arguments)
        assert result.returncode == 1 and "connect" in result.stderr, result
        assert not result.stdout and "are left" not in result.stderr, result


def test_the_server_dies():
    with BenchServer() as server:
        process = subprocess.Popen(
            [f"{BIN}/kv-bench", *server.arguments("-W", "a", "-t", "30", "-T", "200ms", "-g",
                                                  "ask", transport="tcp")],
            stdin=NUL, stdout=NUL, stderr=subprocess.PIPE, text=True)
        await_gets(server, 1)
        server.process.kill()
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 1 and "failed" in errors, errors


def test_usage():
    for text, *arguments in (
            ("no operation 'fly'", "fly"), ("--keys", "-k", "many"), ("--cpus", "--cpus", "0,x"),
            ("--cpus", "--cpus", "1,"), ("--workload", "-W", "z"), ("--mix", "-m", "get:x"),
            ("no operation 'fly'", "-m", "fly:1"), ("--value-size", "-s", "4"),
            ("--value-size", "-s", "64,big"), ("--rate", "-R", "fast"), ("--operations", "-o", "0"),
            ("--compare", "--compare", "oracle"), ("--compare", "--compare", "redis,redis"),
            ("one of them", "--json", "--csv"), ("one of them", "-W", "a", "-m", "get"),
            ("one of them", "-W", "a", "get"), ("--window", "-w", "4", "-W", "a", "--think-time",
                                                "1ms"),
            ("--warm-up", "--warm-up", "1s", "-o", "10", "get"),
            ("--rate", "--rate", "5", "-W", "a", "--think-time", "1ms"),
            ("tight loop", "ping", "--rate", "10"), ("no scan", "-W", "e", "--compare",
                                                     "memcached"),
            ("neither .png nor .svg", "--plot", "x.jpg", "get"), ("--frobnicate", "--frobnicate"),
            ("pin to core 1000", "--spawn", "--cpus", "1000", "get")):
        result = bench(*arguments)
        if "built without" in result.stderr:
            continue
        assert result.returncode == 2 and text in result.stderr, (arguments, result)
        assert len(result.stderr.splitlines()) == 1 and not result.stdout, (arguments, result)
    result = bench("--help")
    assert result.returncode == 0 and "--workload" in result.stdout, result


if __name__ == "__main__":
    sys.exit(main(globals(), sys.argv[3:]))
