#!/usr/bin/python3
"""Drives the real store-perf with tiny sizes: every test, its rows, its exit codes.

usage: store_perf_test.py PATH/TO/store-perf [NAME...]

Each test is a function `test_*`; a NAME picks those whose name contains it. The last line counts
them: "N passed, N failed, N skipped".
"""

import json
import os
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import traceback

PROGRAM = sys.argv[1]
SMALL = ["--keys", "5000", "--operations", "20000", "--seconds", "5ms", "--rounds", "2"]
FIGURES = {
    ("get", "bare"): {"get_ns", "ops_per_s", "samples"},
    ("get", "store"): {"get_ns", "ops_per_s", "to_bare", "samples"},
    ("get", "store-many"): {"get_ns", "ops_per_s", "batch", "speedup", "samples"},
    ("get", "bare-chain"): {"get_ns", "ops_per_s", "samples"},
    ("get", "reads-chain"): {"get_ns", "ops_per_s", "samples"},
    ("get", "store-chain"): {"get_ns", "ops_per_s", "to_bare", "samples"},
    ("put", "new"): {"threads", "ops_per_s", "samples"},
    ("put", "overwrite"): {"threads", "ops_per_s", "samples"},
    ("put", "apart"): {"threads", "ops_per_s", "samples"},
    ("churn", "store"): {"ops", "first_per_s", "last_per_s", "last_to_first", "first_median_ns",
                         "last_median_ns", "first_memory", "last_memory", "samples"},
    ("growth", "store"): {"worst_ns", "p9999_ns", "at_keys", "mean_ns", "over_1ms", "samples"},
    ("growth", "store-running"): {"worst_ns", "p9999_ns", "at_keys", "over_1ms", "samples"},
    ("growth", "spin"): {"worst_ns", "samples"},
    ("space", "store"): {"overhead", "headers", "index", "wasted", "free_places", "fixed",
                         "bytes"},
    ("space", "redis"): {"overhead", "bytes"},
    ("space", "memcached"): {"overhead", "bytes"},
    ("hit", "store"): {"hit_ratio", "kept", "memory", "ops"},
    ("hit", "lru-store"): {"hit_ratio", "kept", "ops"},
    ("hit", "redis"): {"hit_ratio", "kept", "memory", "ops"},
    ("hit", "lru-redis"): {"hit_ratio", "kept", "ops"},
}
BASIC = {"test", "subject", "keys", "key_size", "value_size"}


def call(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120)


def rows(*arguments):
    """Runs store-perf with --json and returns its rows, each checked for its figures."""
    result = call("--json", *arguments)
    assert result.returncode == 0, f"exit {result.returncode}: {result.stderr}"
    parsed = [json.loads(line) for line in result.stdout.splitlines()]
    for row in parsed:
        wanted = BASIC | FIGURES[row["test"], row["subject"]]
        assert wanted <= row.keys(), f"missing in {row}: {wanted - row.keys()}"
    return parsed


def subjects(got):
    return [row["subject"] for row in got]


def expect_failure(code, text, *arguments):
    result = call(*arguments)
    assert result.returncode == code, f"exit {result.returncode}, not {code}: {result.stderr}"
    assert text in result.stderr, f"no '{text}' in: {result.stderr}"
    assert len(result.stderr.strip().splitlines()) == 1 and not result.stdout, result


# ---------------------------------------------------------------- the tests of store-perf


def test_get():
    got = rows("get", *SMALL, "--keys", "1K,20000", "--batch", "7")
    assert [(row["keys"], row["subject"]) for row in got] == [
        (keys, subject) for keys in (1000, 20000)
        for subject in ("bare", "store", "store-many", "reads-chain", "bare-chain",
                        "store-chain")]
    for row in got:
        assert len(row["samples"]) == 2 and row["get_ns"] > 0, row
        assert abs(row["ops_per_s"] * row["get_ns"] / 1e9 - 1) < 0.01, row
    assert got[2]["batch"] == 7, got[2]


def test_put():
    got = rows("put", *SMALL, "--threads", "3")
    assert [(row["subject"], row["threads"]) for row in got] == [
        (kind, threads) for kind in ("new", "overwrite", "apart") for threads in (1, 3)]
    assert all(len(row["samples"]) == 2 and min(row["samples"]) > 0 for row in got), got
    got = rows("put", *SMALL, "--threads", "1", "--cpus", "none")
    assert [row["threads"] for row in got] == [1, 1, 1], got


def test_churn():
    row, = rows("churn", *SMALL)
    assert row["ops"] == 20000 and len(row["samples"]) == 10, row
    assert abs(row["last_per_s"] / row["first_per_s"] - row["last_to_first"]) < 0.01, row


def test_growth():
    store, running, spin = rows("growth", *SMALL)
    assert subjects([store, running, spin]) == ["store", "store-running", "spin"]
    assert all(a >= b for a, b in zip(store["samples"], running["samples"])), (store, running)
    assert 1000 <= store["at_keys"] < 5000, store
    assert 0 < store["mean_ns"] < store["p9999_ns"] * 1.01, store
    assert store["worst_of_all_ns"] == max(store["samples"]), store


def test_space():
    row, = rows("space", *SMALL)
    parts = sum(row[name] for name in ("headers", "index", "wasted", "free_places", "fixed"))
    assert abs(parts - row["overhead"]) < 0.01, f"{parts} are not {row['overhead']}: {row}"
    assert abs(row["bytes"] / row["keys"] - 80 - row["overhead"]) < 0.01, row


def test_hit():
    got = rows("hit", "--keys", "50K", "--operations", "200K")
    assert subjects(got) == ["store", "lru-store"]
    store, lru = got
    assert store["ops"] == 200000 and store["kept"] == lru["kept"] < 50000, got
    # Of a table without any policy it would be about a tenth.
    assert 0.4 < store["hit_ratio"] < 1 and 0.4 < lru["hit_ratio"] < 1, got


def test_more_skew_hits_more():
    few, many = (rows("hit", "--keys", "50K", "--operations", "100K", "--skew", skew)[0]
                 for skew in ("0.5", "1.2"))
    assert few["hit_ratio"] + 0.2 < many["hit_ratio"], (few, many)


def test_other_sizes():
    got = rows("get", "put", "churn", "growth", "space", *SMALL, "--key-size", "100",
               "--value-size", "3000")
    assert {row["test"] for row in got} == {"get", "put", "churn", "growth", "space"}
    assert all(row["key_size"] == 100 and row["value_size"] == 3000 for row in got), got


def test_table():
    result = call("space", "churn", *SMALL)
    assert result.returncode == 0, result.stderr
    lines = [line.split()[:2] for line in result.stdout.splitlines()]
    assert lines == [["churn", "store"], ["space", "store"]], result.stdout


# ---------------------------------------------------------------- Redis and memcached


class FakeRedis(socketserver.StreamRequestHandler):
    """Enough of a Redis: it forgets every other key."""

    def handle(self):
        kept, count = {}, 0
        while True:
            words = self.read_request()
            if words is None:
                return
            if words[0] == b"SET":
                count += 1
                if self.server.forget == 0 or count % self.server.forget:
                    kept[words[1]] = words[2]
                self.wfile.write(b"+OK\r\n")
            elif words[0] == b"GET":
                value = kept.get(words[1])
                self.wfile.write(b"$-1\r\n" if value is None else
                                 b"$%d\r\n%s\r\n" % (len(value), value))
            elif words[0] == b"DBSIZE":
                self.wfile.write(b":%d\r\n" % len(kept))
            else:
                text = b"# Memory\r\nused_memory:%d\r\nmaxmemory:1048576\r\n" % (
                    1000 + 150 * len(kept))
                self.wfile.write(b"$%d\r\n%s\r\n" % (len(text), text))

    def read_request(self):
        line = self.rfile.readline()
        if not line:
            return None
        words = []
        for _ in range(int(line[1:])):
            words.append(self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2])
        return words


class FakeMemcached(socketserver.StreamRequestHandler):
    """Enough of a memcached."""

    def handle(self):
        kept = {}
        for line in self.rfile:
            words = line.split()
            if words[0] == b"set":
                kept[words[1]] = self.rfile.read(int(words[4]) + 2)
                self.wfile.write(b"STORED\r\n")
            elif words == [b"stats"]:
                self.wfile.write(b"STAT curr_items %d\r\nSTAT hash_bytes 0\r\nEND\r\n" % len(kept))
            else:
                self.wfile.write(b"STAT total_malloced %d\r\nEND\r\n" % (200 * len(kept)))


class Fake:
    """One of these at a socket, until the end of the block."""

    def __init__(self, handler, forget=0):
        self.directory = tempfile.TemporaryDirectory(prefix="store-perf-")
        self.socket = os.path.join(self.directory.name, "socket")
        self.server = socketserver.UnixStreamServer(self.socket, handler)
        self.server.forget = forget

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.directory.cleanup()


def test_space_of_others():
    with Fake(FakeRedis) as redis, Fake(FakeMemcached) as memcached:
        got = rows("space", "--keys", "3000", "--redis", redis.socket, "--memcached",
                   memcached.socket)
    assert subjects(got) == ["store", "redis", "memcached"]
    assert [row["overhead"] for row in got[1:]] == [150 - 80, 200 - 80], got


def test_hit_of_redis():
    with Fake(FakeRedis, forget=2) as redis:
        got = rows("hit", "--keys", "5000", "--operations", "20000", "--redis", redis.socket)
    assert subjects(got) == ["store", "lru-store", "redis", "lru-redis"]
    assert 0.3 < got[2]["hit_ratio"] < 1 and got[2]["kept"] == got[3]["kept"], got


def test_redis_that_loses_keys():
    with Fake(FakeRedis, forget=2) as redis:
        result = call("space", "--keys", "3000", "--redis", redis.socket)
    assert result.returncode == 1 and "redis kept 1500 of 3000 keys" in result.stderr, result


def test_no_redis():
    result = call("space", "--keys", "3000", "--redis", "/nowhere/at-all.sock")
    assert result.returncode == 1 and "/nowhere/at-all.sock" in result.stderr, result


# ---------------------------------------------------------------- wrong usage


def test_bad_usage():
    expect_failure(2, "no test 'fly'; there are get, put", "fly")
    expect_failure(2, "--frobnicate", "--frobnicate")
    expect_failure(2, "--keys: 'many' is no count", "get", "--keys", "many")
    expect_failure(2, "--keys: '1Q' is no count", "get", "--keys", "1Q")
    expect_failure(2, "--keys: empty", "get", "--keys", "1K,,2K")
    expect_failure(2, "--keys: 3 is not between", "get", "--keys", "3")
    expect_failure(2, "--keys: nan", "get", "--keys", "nan")
    expect_failure(2, "--keys: more than 8", "get", "--keys", ",".join(["1K"] * 9))
    expect_failure(2, "--operations", "churn", "--operations", "-5")
    expect_failure(2, "--key-size", "get", "--key-size", "8")
    expect_failure(2, "--value-size", "get", "--value-size", "4")
    expect_failure(2, "--cpus: 'x' is no core", "get", "--cpus", "0,x")
    expect_failure(2, "pin to core 1000", "get", "--cpus", "1000")
    expect_failure(2, "--rounds", "get", "--rounds", "0")
    expect_failure(2, "--keys must be more than 1000", "growth", "--keys", "500")


def test_too_little_memory():
    expect_failure(1, "--memory gives it more", "space", "--keys", "100K", "--memory", "2MB")
    expect_failure(2, "a store of 64KiB", "space", "--keys", "1K", "--memory", "64KB")


def test_help():
    result = call("--help")
    assert result.returncode == 0 and "growth" in result.stdout, result


# ---------------------------------------------------------------- runner


def main():
    counts = {"passed": 0, "failed": 0}
    for name, function in list(globals().items()):
        picked = len(sys.argv) == 2 or any(word in name for word in sys.argv[2:])
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
    sys.exit(main())
