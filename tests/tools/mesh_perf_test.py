#!/usr/bin/python3
"""Drives the real mesh-perf: every operation on shm and tcp, its rows, its exit codes.

usage: mesh_perf_test.py DIRECTORY/OF/PROGRAMS ROOT [NAME...]
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from tool_harness import BIN, main

ROOT = Path(sys.argv[2])
SHORT = ["--seconds", "50ms", "--warmup", "10ms"]
KEYS = {"device", "op", "size", "depth", "batch", "processes", "ops_per_s", "bytes_per_s",
        "works_per_doorbell", "p50_ns", "p99_ns"}


def call(*arguments):
    return subprocess.run([f"{BIN}/mesh-perf", *arguments], capture_output=True, text=True,
                          timeout=120, stdin=subprocess.DEVNULL)


def rows(*arguments):
    result = call("--json", *SHORT, *arguments)
    assert result.returncode == 0, f"exit {result.returncode}: {result.stderr}"
    parsed = [json.loads(line) for line in result.stdout.splitlines()]
    for row in parsed:
        assert KEYS == row.keys(), row
        assert row["ops_per_s"] > 0, row
        assert abs(row["bytes_per_s"] - row["ops_per_s"] * row["size"]) <= 2 * row["size"], row
    return parsed


def test_every_operation():
    for device in ("shm", "tcp"):
        for op in ("send", "write", "read"):
            found = rows("-d", device, "-o", op, "-s", "64,3000", "-b", "1,8")
            assert [(row["size"], row["batch"]) for row in found] == \
                [(64, 1), (64, 8), (3000, 1), (3000, 8)], found
            for row in found:
                assert row["op"] == op and row["device"] == device, row
                # A batch that is full leaves at once; one that waits for room may be smaller. What
                # was posted before the row began, or waits at its end, blurs it a little.
                assert 0.9 <= row["works_per_doorbell"] <= row["batch"] + 0.5, row


def test_pingpong():
    for device in ("shm", "tcp"):
        row, = rows("-d", device, "-o", "pingpong")
        assert 0 < row["p50_ns"] <= row["p99_ns"], row


def test_more_processes():
    row, = rows("-n", "5", "-b", "4", "-q", "16")
    assert row["processes"] == 5 and row["depth"] == 16, row


def test_table():
    result = call(*SHORT)
    assert result.returncode == 0 and len(result.stdout.splitlines()) == 2, result
    assert "works a doorbell" in result.stdout, result


def test_wrong_lines():
    for arguments in (["-o", "fly"], ["-s", "0"], ["-s", "x"], ["-q", "100"], ["-b", "0"],
                      ["--id", "0"], ["--hosts", "a:1,b:2"], ["-n", "1"], ["more"]):
        result = call(*arguments)
        assert result.returncode == 2 and result.stderr.startswith("mesh-perf: "), result
    result = call("-d", "no-such-device", "-H", "127.0.0.1")
    assert result.returncode == 1 and "no-such-device" in result.stderr, result


def test_missing_peer():
    """One process of a mesh of two, whose other one never comes."""
    result = call("-d", "shm", "--hosts", "mesh-perf-x,mesh-perf-y", "--id", "0", "--timeout",
                  "200ms")
    assert result.returncode == 1 and "missing of 1 peers: 1" in result.stderr, result


def test_manual():
    """Each option of --help is in the manual, and no other."""
    page = (ROOT / "docs" / "man" / "mesh-perf.1").read_text()
    options = set(re.findall(r"--([a-z][a-z-]+)", call("--help").stdout)) - {"help", "version"}
    described = set(re.findall(r"^\.It .*?Fl -([a-z][a-z-]+)", page, re.M))
    assert options == described, options ^ described


if __name__ == "__main__":
    sys.exit(main(globals(), sys.argv[3:]))
