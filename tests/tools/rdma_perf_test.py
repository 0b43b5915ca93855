#!/usr/bin/python3
"""Drives the real rdma-perf: every test on shm and tcp, its output, its exit codes.

usage: rdma_perf_test.py DIRECTORY/OF/PROGRAMS [NAME...]
"""

import json
import subprocess
import sys

from tool_harness import BIN, main

SHORT = ["--seconds", "20ms", "--rounds", "1"]
TESTS = {"roundtrip", "roundtrip-send", "roundtrip-4k", "stream", "stream-thread", "bandwidth"}
KEYS = {"test", "device", "size", "unit", "ours", "bare", "ratio", "limit", "least"}


def call(*arguments):
    return subprocess.run([f"{BIN}/rdma-perf", *arguments], capture_output=True, text=True,
                          timeout=120, check=False)


def check_rows(device):
    result = call("-d", device, "--json", *SHORT)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert TESTS <= {row["test"] for row in rows}, rows
    for row in rows:
        assert KEYS <= row.keys(), f"keys missing: {KEYS - row.keys()}"
        assert row["device"] == device and row["ours"] > 0 and row["bare"] > 0, row
        ratio = row["ours"] / row["bare"]
        assert abs(row["ratio"] - ratio) < 0.01 * ratio + 0.001, row


def test_shm():
    check_rows("shm")


def test_tcp():
    check_rows("tcp")


def test_table():
    result = call("roundtrip", "bandwidth", *SHORT)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("rdma-perf: shm, 1 rounds"), lines
    assert len(lines) == 5 and "<= 1.3" in lines[3] and "GB/s" in lines[4], lines


def test_list():
    result = call("--list")
    assert result.returncode == 0, result.stderr
    assert TESTS <= {line.split()[0] for line in result.stdout.splitlines()}, result.stdout


def test_wrong_usage():
    for arguments, text in ((("no-such-test",), "no-such-test"), (("--rounds", "0"), "rounds"),
                            (("-d", "no-such-device", *SHORT), "no-such-device")):
        result = call(*arguments)
        assert result.returncode in (1, 2), result
        assert text in result.stderr, result.stderr


if __name__ == "__main__":
    sys.exit(main(globals(), sys.argv[2:]))
