#!/usr/bin/env python3
"""The programs and libraries of a build are hardened: read from their ELF, and for what leaves no
trace there, from the compiler's command lines.

    hardening_test.py BUILD-DIRECTORY
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from script_harness import Failure, run_tests

BUILD = Path(sys.argv[1])
PROGRAMS = ("kv-server", "kv-client", "kv-bench", "kv-doctor", "fabric-perf")
LIBRARIES = ("libremora.so", "libremora-server.so")


def readelf(path, *options):
    return subprocess.run(["readelf", "--wide", *options, path], check=True, text=True,
                          capture_output=True).stdout


def need(path, text, pattern, what):
    if not re.search(pattern, text):
        raise Failure(f"{path.name}: {what}")


def test_file(_, path, is_program):
    header, segments = readelf(path, "--file-header"), readelf(path, "--program-headers")
    dynamic, symbols = readelf(path, "--dynamic"), readelf(path, "--dyn-syms")
    need(path, header, r"Type:\s+DYN", "it is loaded at a fixed address")
    if is_program:
        need(path, dynamic, r"FLAGS_1.*\bPIE\b", "it is not position-independent")
    need(path, segments, r"GNU_RELRO", "relocated data stays writable (-z relro)")
    need(path, segments, r"GNU_STACK.*\sRW\s", "the stack is executable")
    need(path, dynamic, r"\bBIND_NOW\b|FLAGS_1.*\bNOW\b", "symbols are bound lazily (-z now)")
    need(path, symbols, r"__stack_chk_fail\b", "no function has a stack protector")
    need(path, symbols, r"__(memcpy|snprintf)_chk\b", "no call is fortified (_FORTIFY_SOURCE)")


def test_command_lines(_):
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    commands = [entry["command"] for entry in entries]
    ours = [command for command in commands if "/src/" in command.split()[-1]]
    if not ours:
        raise Failure("no source is compiled")
    for command in ours:
        for flag in ("-fstack-protector-strong", "-fstack-clash-protection", "-O2"):
            if flag not in command.split():
                raise Failure(f"compiled without {flag}: {command.split()[-1]}")


def main():
    tests = [(name, test_file, (BUILD / "bin" / name, True)) for name in PROGRAMS]
    tests += [(name, test_file, (BUILD / "lib" / name, False)) for name in LIBRARIES]
    return run_tests(tests + [("command_lines", test_command_lines, ())])


if __name__ == "__main__":
    sys.exit(main())
