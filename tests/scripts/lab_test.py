#!/usr/bin/env python3
"""The parts of the verbs lab that need no guest: its archives, the order of modules, its protocol
with the guest, and that a machine without QEMU skips by name. The rest is tried by the guests
themselves, in tests/verbs_lab."""

import base64
import contextlib
import io
import socket
import subprocess
import sys
import threading

from script_harness import ROOT, Failure, expect, run_tests, write_tree

sys.path.insert(0, str(ROOT / "scripts"))

import testreport  # noqa: E402
from lab import image, kernel, suite  # noqa: E402
from lab.cpio import Archive  # noqa: E402
from lab.guest import (TIMED_OUT, Lane, Running, cards_of_one, kernel_words,  # noqa: E402
                       shell_command)


def expect_equal(actual, expected):
    if actual != expected:
        raise Failure(f"{actual!r}, expected {expected!r}")


def parse_archive(data):
    """path -> (mode, content) of a cpio archive."""
    entries, at = {}, 0
    while True:
        fields = [int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i in range(13)]
        name = data[at + 110:at + 110 + fields[11] - 1].decode()
        at += (110 + fields[11] + 3) // 4 * 4
        if name == "TRAILER!!!":
            return entries
        entries[name] = (fields[1], data[at:at + fields[6]])
        at += (fields[6] + 3) // 4 * 4


def test_archive(root):
    write_tree(root, {"program": "#!/bin/sh\n"}, executable=True)
    archive = Archive()
    archive.add_file("/usr/bin/program", root / "program")
    archive.add_link("/bin/sh", "busybox")
    archive.add_text("/etc/a", "first")
    archive.add_text("/etc/a", "second")
    archive.add_character_device("/dev/console", 5, 1)
    output = io.BytesIO()
    archive.write(output)
    entries = parse_archive(output.getvalue())
    expect_equal(list(entries)[:3], ["usr", "usr/bin", "usr/bin/program"])
    expect_equal(entries["usr/bin/program"], (0o100755, b"#!/bin/sh\n"))
    expect_equal(entries["bin/sh"], (0o120777, b"busybox"))
    expect_equal(entries["etc/a"], (0o100644, b"first"))
    expect_equal(entries["dev/console"][0], 0o020600)


def test_fingerprint(root):
    """It changes with a file's time, and with a text."""
    write_tree(root, {"file": "x"})
    prints = []
    for text, time in (("a", 1), ("a", 1), ("a", 2), ("b", 2)):
        subprocess.run(["touch", "-d", f"@{time}", root / "file"], check=True)
        archive = Archive()
        archive.add_file("/file", root / "file")
        archive.add_text("/text", text)
        prints.append(image.fingerprint(archive))
    expect_equal([prints.index(each) for each in prints], [0, 0, 2, 3])


def write_module(root, name, depends):
    path = root / "kernel" / f"{name}.ko"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0")


def test_modules(root):
    """modprobe loads a line of modules.dep from its end: what others need comes last."""
    for name in kernel.MODULES:
        if name != "virtio_pci":
            write_module(root, name, "low,high" if name == "rdma_rxe" else "")
    write_module(root, "high", "low")
    write_module(root, "low", "inside")
    write_tree(root, {"modules.builtin": "kernel/inside.ko\nkernel/virtio-pci.ko\n"})
    modules = kernel.needed_modules(root)
    lines = kernel.dependency_file(modules).splitlines()
    expect_equal("rdma_rxe.ko: high.ko low.ko" in lines, True)
    expect_equal("virtio_pci" in modules, False)


def test_missing_module(root):
    (root / "kernel").mkdir()
    try:
        kernel.needed_modules(root)
    except kernel.Unavailable as reason:
        expect_equal(str(reason), "this kernel has no module virtio_pci")
        return
    raise Failure("a kernel without modules is taken")


class FakeGuest:
    """The guest's end of a lane: answers in pieces, as a slow machine does."""

    def __init__(self, pieces):
        self.running = []
        self.command = None
        ours, self.channel = socket.socketpair()
        self.lane = Lane(ours)
        threading.Thread(target=self.serve, args=(pieces,), daemon=True).start()

    def serve(self, pieces):
        with self.channel:
            word, encoded = self.channel.makefile().readline().split()
            self.command = base64.b64decode(encoded).decode()
            for piece in pieces:
                self.channel.sendall(piece.replace(b"WORD", word.encode()))

    def fail(self, reason):
        raise Failure(reason)


def run_on_lane(pieces):
    guest = FakeGuest(pieces)
    seen = []
    running = Running(guest, guest.lane, 1, "some command")
    guest.running.append(running)
    result = running.wait(10, seen.append)
    expect_equal(guest.command, "some command")
    expect_equal(b"".join(seen).decode(), result.output)
    return result


def test_protocol(_root):
    result = run_on_lane([b"one\ntw", b"o without an end\1WO"[:-2], b"\1WORD 3"[1:], b"\n"])
    expect_equal((result.code, result.output), (3, "one\ntwo without an end"))


def test_guest_gone(_root):
    try:
        run_on_lane([b"some output\n"])
    except Failure as failure:
        expect_equal(str(failure), "the guest ended while a command ran")
        return
    raise Failure("an end of the guest looks like an end of the command")


def test_shell_command(root):
    """What the shell makes of it: environment, quoting."""
    text = shell_command(["printf", "%s|", "a b", "it's"], {"X": "y 'z'"})
    output = subprocess.run(["sh", "-c", f"{text}; printf %s \"$X\""], capture_output=True,
                            text=True, check=True).stdout
    expect_equal(output, "a b|it's|y 'z'")
    expect_equal(shell_command("id", memlock_kib=64).startswith("ulimit -l 64; exec setpriv"), True)


def test_kernel_words(_root):
    words = kernel_words("x", cards_of_one(), 64, 100).split()
    for word in ("lab_name=x", "lab_net1=10.78.0.1/24,fd78::1/64", "lab_deadline=100"):
        expect_equal(word in words, True)


def test_skips_are_named(_root):
    """Each program and script of the table, with the reason."""
    def unavailable():
        raise kernel.Unavailable("no QEMU here")
    original, suite.check_build = suite.check_build, unavailable
    report = testreport.Report()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            suite.run(report, long_too=True)
    finally:
        suite.check_build = original
    names = [entry[0] for entry in suite.PROGRAMS] + [script.stem for script in suite.SCRIPTS]
    expect_equal(report.skips, [f"skip verbs/{name}: no QEMU here" for name in names])
    expect_equal((report.passed, report.failed, report.skipped), (0, 0, len(names)))


def test_timed_out_is_a_failure(_root):
    """A program that was killed has no closing line, and no exit code."""
    report = testreport.Report()
    with contextlib.redirect_stdout(io.StringIO()):
        report.count_program("verbs/x", TIMED_OUT, "ok one\n")
    expect(0, report.failures[0], 0, "FAIL verbs/x: no closing line; not finished in time")


TESTS = [(function.__name__.removeprefix("test_"), function, ()) for function in (
    test_archive, test_fingerprint, test_modules, test_missing_module, test_protocol,
    test_guest_gone, test_shell_command, test_kernel_words, test_skips_are_named,
    test_timed_out_is_a_failure)]

if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
