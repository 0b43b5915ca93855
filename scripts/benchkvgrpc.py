"""The goals of the gRPC service, for bench-kv: h2load, on one core, asks a kv-server on the other
for a value of 64 bytes, by 4 connections with 16 calls under way each. Memory is what the server
takes beside its store, under that load.
"""

import os
import re
import shutil
import struct
import subprocess
import tempfile

from benchgoals import Bound, Missing
from benchservers import KvServer

KEY, VALUE = "h2load", "x" * 64
CALLS_FIRST = 50000
CALLS_A_SECOND = 400000
RATE_LIMIT = 200000
MEMORY_LIMIT = 20e6
RUN_TIMEOUT_S = 600


def get_message():
    """A GetRequest as gRPC sends it."""
    body = b"\x0a" + bytes([len(KEY)]) + KEY.encode()
    return b"\0" + struct.pack(">I", len(body)) + body


def own_memory(process):
    """Bytes that it has besides shared memory, in which the store is."""
    with open(f"/proc/{process.pid}/status") as status:
        sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", status.read(), re.M))
    return 1024 * (int(sizes["VmRSS"]) - int(sizes["RssShmem"]))


def ask(program, cpu, address, body, calls):
    output = subprocess.run(
        ["taskset", "-c", str(cpu), program, "-n", str(calls), "-c", "4", "-m", "16", "-d", body,
         "-H", "content-type: application/grpc", "-H", "te: trailers",
         f"http://{address}/kv_cache.KvCacheService/Get"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True,
        timeout=RUN_TIMEOUT_S).stdout
    if f"{calls} succeeded, 0 failed" not in output:
        raise Missing(f"h2load: calls failed: {output[-300:]}")
    return float(re.search(r"finished in .*?, ([\d.]+) req/s", output)[1])


def measure(build, cpus, rounds, seconds):
    """Goals and rows."""
    program = shutil.which("h2load")
    if not program:
        raise Missing("h2load is not there (Debian: nghttp2-client)")
    server = KvServer(build, cpus[1], "--address", "127.0.0.1", "--listen", "shm,tcp", "--memory",
                      "256MiB", "--workers", "1", "--listen-addr", "0")
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, server:
        address = re.search(r"^grpc: listening at (\S+)", server.log(), re.M)[1]
        body = os.path.join(directory, "get")
        with open(body, "wb") as file:
            file.write(get_message())
        subprocess.run([os.path.join(build, "bin/kv-client"), "-p", str(server.port), "-d", "shm",
                        "put", KEY, VALUE], check=True, stdout=subprocess.DEVNULL, timeout=60)
        ask(program, cpus[0], address, body, CALLS_FIRST)
        rates = [ask(program, cpus[0], address, body, int(CALLS_A_SECOND * seconds))
                 for _ in range(rounds)]
        memory = own_memory(server.process)
    goals = [Bound("gRPC: Get 64 B, 4 connections, 16 calls each", "ops/s", ">=", RATE_LIMIT, rates,
                   "h2load"),
             Bound("gRPC: memory of the server beside its store", "MB", "<=", MEMORY_LIMIT,
                   [memory])]
    rows = [{"contestant": "ours", "by": "grpc", "test": "get", "value_size": len(VALUE),
             "ops_per_s": rate} for rate in rates]
    return goals, rows
