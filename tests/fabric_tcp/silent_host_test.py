#!/usr/bin/env python3
"""A host that falls silent: two network namespaces, a link between them that is cut.

No segment says that the other side is gone. The server, which only waits, has to notice within
dead_after_ms (10 s by default), end its connection and, serving --once, end itself; the client,
with READs in flight, has to end with a message and exit 3. Takes about 12 seconds, and needs the
right to make network namespaces.
"""

import os
import subprocess
import sys
import time

LIMIT_S = 16  # 10 s until a silent host is dead, and some for a busy machine
NEAR, FAR = f"remora-near-{os.getpid()}", f"remora-far-{os.getpid()}"
ADDRESS = "10.77.0.1:7471"


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


def make_hosts():
    for namespace in (NEAR, FAR):
        ip("netns", "add", namespace)
    ip("-n", NEAR, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", FAR)
    for namespace, address in ((NEAR, "10.77.0.2/24"), (FAR, "10.77.0.1/24")):
        ip("-n", namespace, "addr", "add", address, "dev", "wire")
        ip("-n", namespace, "link", "set", "wire", "up")


def remove_hosts():
    for namespace in (NEAR, FAR):
        subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def start(program, namespace, *arguments):
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, "timeout", "60", program, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(name, process, cut, exit_code):
    """The process has to end by itself, in time and with this exit code."""
    try:
        text, _ = process.communicate(timeout=max(1, cut + LIMIT_S - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        raise AssertionError(f"the {name} has not noticed: {text[-300:]}") from None
    if process.returncode != exit_code:
        raise AssertionError(f"the {name} exited with {process.returncode}: {text[-300:]}")


def silent_host(program):
    server = start(program, FAR, "serve", ADDRESS, "--device", "tcp", "--once")
    server.stdout.readline()  # it listens
    client = start(program, NEAR, "run", ADDRESS, "--device", "tcp", "--op", "read",
                   "--depth", "16", "--seconds", "50")
    time.sleep(1.5)
    ip("-n", FAR, "link", "set", "wire", "down")
    cut = time.monotonic()
    time.sleep(3)
    if server.poll() is not None or client.poll() is not None:
        raise AssertionError("one ended before the link was silent for long")
    end("client", client, cut, 3)
    end("server", server, cut, 0)


def main():
    passed = failed = skipped = 0
    try:
        make_hosts()
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", b"") or str(error).encode()
        print(f"skip silent_host: no network namespaces here: {detail.decode().strip()}")
        skipped = 1
    else:
        try:
            silent_host(sys.argv[1])
            print("ok silent_host")
            passed = 1
        except AssertionError as error:
            print(f"FAIL silent_host: {error}")
            failed = 1
    finally:
        remove_hosts()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
