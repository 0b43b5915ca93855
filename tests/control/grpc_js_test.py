#!/usr/bin/env python3
"""The gRPC service as npm's @grpc/grpc-js sees it, and the example in JavaScript.

usage: grpc_js_test.py BIN_DIRECTORY SOURCE_DIRECTORY MADE_DIRECTORY [NAME...]

grpc-js is got by npm into MADE_DIRECTORY, once, and without a lock file. Where that is not possible
the tests are skipped, and say why.
"""

import json
import os
import re
import shutil
import subprocess
import sys

from control_harness import (MADE, NUL, SOURCE, WRITE_KEY, Certificates, GrpcServer, KeyFiles,
                             Skip, need_program, need_service, run_main)

NPM_TIMEOUT_S = 120
EXAMPLE = os.path.join(SOURCE, "examples", "grpc", "javascript")


def node_modules():
    """Where grpc-js is; got if it is not there yet."""
    need_service()
    need_program("node", "nodejs")
    need_program("npm", "npm")
    directory = os.path.join(MADE, "npm")
    modules = os.path.join(directory, "node_modules")
    mark = os.path.join(directory, "complete")
    if os.path.exists(mark):
        return modules
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    shutil.copy(os.path.join(EXAMPLE, "package.json"), directory)
    try:
        result = subprocess.run(
            ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=directory, capture_output=True, text=True, timeout=NPM_TIMEOUT_S, stdin=NUL)
    except subprocess.TimeoutExpired as error:
        raise Skip(f"npm install took more than {NPM_TIMEOUT_S} s; is there a network?") from error
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["npm install failed"]
        raise Skip(f"npm cannot get @grpc/grpc-js: {lines[0]}")
    with open(mark, "w"):
        pass
    return modules


def run_node(program, *arguments):
    environment = dict(os.environ, NODE_PATH=node_modules(),
                       KV_CACHE_PROTO=os.path.join(SOURCE, "proto", "kv_cache.proto"))
    result = subprocess.run(["node", program, *arguments], capture_output=True, text=True,
                            timeout=60, stdin=NUL, env=environment)
    assert result.returncode == 0, result
    return result.stdout


def run_script(name, *arguments):
    """One part of grpc_test.js; it throws where something is wrong."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "grpc_test.js")
    output = run_node(script, EXAMPLE, name, *arguments)
    assert output.endswith("done\n"), output
    return output


def test_example():
    node_modules()
    with GrpcServer() as server:
        output = run_node(os.path.join(EXAMPLE, "hello.js"), server.address)
    assert "get greeting: hello from JavaScript\n" in output, output
    assert re.search(r"cas: done, version (\d+)\ncas: somebody was quicker, version \1\n",
                     output), output
    assert "film: 20971520 bytes\n" in output, output
    assert "scan list: list:0 list:1 list:2\n" in output, output
    assert output.endswith("delete: true, then get: null\nkeys: 3\n"), output


def test_methods():
    node_modules()
    with GrpcServer() as server:
        run_script("methods", server.address)


def test_streaming_and_cancellation():
    node_modules()
    with GrpcServer() as server:
        run_script("streaming", server.address)


def test_chunks():
    node_modules()
    with GrpcServer() as server:
        run_script("chunks", server.address)


def test_metadata():
    node_modules()
    with GrpcServer() as server:
        run_script("metadata", server.address)


def test_tls_and_tokens():
    node_modules()
    files = Certificates()
    with GrpcServer("--tls-cert", files.path("server.pem"), "--tls-key",
                    files.path("server.key"), *KeyFiles().arguments()) as server:
        run_script("secure", server.address, files.path("ca.pem"), WRITE_KEY)


def test_no_lock_file():
    """Nor anything else that names where packages come from."""
    found = os.listdir(EXAMPLE)
    assert "package-lock.json" not in found and "node_modules" not in found, found
    with open(os.path.join(EXAMPLE, "package.json")) as file:
        assert set(json.load(file)["dependencies"]) == {"@grpc/grpc-js", "@grpc/proto-loader"}


if __name__ == "__main__":
    sys.exit(run_main(globals()))
