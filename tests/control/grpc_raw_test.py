#!/usr/bin/env python3
"""The gRPC service against clients that are wrong, slow or hasty, and against h2load and nghttp.
Whatever one of them does, the others are served: in each test of the first kind a well-behaved
client asks all the time, and gets its answers.

usage: grpc_raw_test.py BIN_DIRECTORY SOURCE_DIRECTORY MADE_DIRECTORY [NAME...]
"""

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from control_harness import (MADE, NUL, PATIENCE_S, Certificates, GrpcServer, Skip, need_program,
                             need_service, run_main)
from http2 import (ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM,
                   GET, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE, PRIORITY, PUT,
                   REFUSED_STREAM, RST_STREAM, SCAN, SETTINGS, WINDOW_UPDATE, Closed, Connection,
                   frame, integer, literal, message, request_headers)

TURN_S = 5  # no well-behaved client waits longer than this for one answer
NO_WINDOW = struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)


class Witness:
    """Asks for a value again and again, in a thread, and remembers what went wrong."""

    def __init__(self, server):
        self.connection = Connection(server.address)
        stream = self.connection.request(PUT, message((1, b"witness"), (2, b"unharmed")))
        self.connection.answer(stream)
        self.answers, self.slowest_s, self.wrong, self.ends = 0, 0, None, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.ends:
                start = time.monotonic()
                assert b"unharmed" in self.connection.get(b"witness")
                self.slowest_s = max(self.slowest_s, time.monotonic() - start)
                self.answers += 1
                time.sleep(0.002)
        except Exception as error:
            self.wrong = error

    def stop(self):
        """After three more answers."""
        end, wanted = time.monotonic() + PATIENCE_S, self.answers + 3
        while self.answers < wanted and not self.wrong and time.monotonic() < end:
            time.sleep(0.002)
        self.ends = True
        self.thread.join(PATIENCE_S)
        self.connection.socket.close()
        assert not self.wrong, repr(self.wrong)
        assert self.answers >= wanted and self.slowest_s < TURN_S, (self.answers, self.slowest_s)


@contextlib.contextmanager
def watched(*arguments):
    """A server, and a witness that has to be served all the time."""
    need_service()
    with GrpcServer(*arguments) as server:
        witness = Witness(server)
        try:
            yield server
        finally:
            witness.stop()
        assert server.stop() == 0


def resident(server):
    """Kilobytes of its own memory that the server holds."""
    with open(f"/proc/{server.process.pid}/status") as status:
        return int(re.search(r"RssAnon:\s+(\d+) kB", status.read())[1])


def figure(server, name):
    """Of the server's own."""
    with open(server.log) as log:
        log.seek(0, os.SEEK_END)
        before = log.tell()
        server.process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            log.seek(before)
            text = log.read()
            found = re.search(rf"^{re.escape(name)} (\d+)$", text, re.M)
            if found:
                return int(found[1])
            if "control.status." in text:
                return 0
            time.sleep(0.01)
    raise AssertionError(f"no figure {name}")


def put(server, key, value):
    with Connection(server.address) as connection:
        stream = connection.request(PUT, message((1, key), (2, b"")))
        connection.answer(stream)
        stream = connection.take_stream()
        connection.send(frame(HEADERS, END_HEADERS, stream, request_headers(PUT)))
        body = message((1, key), (2, value))
        for at in range(0, len(body), 16384):
            connection.send(frame(DATA, 0, stream, body[at:at + 16384]))
        connection.send(frame(DATA, END_STREAM, stream))
        connection.answer(stream)


# ---------------------------------------------------------------- what is no HTTP/2, or no gRPC


def test_garbage():
    with watched() as server:
        for garbage in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(500), b"\0" * 100,
                        PREFACE + b"\xff" * 100, PREFACE + frame(SETTINGS, payload=b"xyz"),
                        PREFACE + frame(SETTINGS) + frame(DATA, 0, 1, b"x"),
                        PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 2, b"\x80"),
                        PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\xff" * 50),
                        PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, 0, 0, b"\0" * 4),
                        PREFACE + frame(SETTINGS) + frame(CONTINUATION, 0, 1, b"x")):
            with Connection(server.address, greets=False) as connection:
                with contextlib.suppress(Closed):
                    connection.send(garbage)
                connection.wait_for_end()


def test_halves_of_requests():
    """Clients that go away in the middle of everything."""
    whole = PREFACE + frame(SETTINGS) + \
        frame(HEADERS, END_HEADERS, 1, request_headers(GET)) + \
        frame(DATA, END_STREAM, 1, message((1, b"witness")))
    with watched() as server:
        for length in range(0, len(whole), 3):
            with Connection(server.address, greets=False) as connection:
                connection.send(whole[:length])
        end = time.monotonic() + PATIENCE_S
        while figure(server, "control.connections") > 1:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_bytes_one_by_one():
    with watched() as server, Connection(server.address, greets=False) as connection:
        for byte in PREFACE + frame(SETTINGS) + \
                frame(HEADERS, END_HEADERS, 1, request_headers(GET)) + \
                frame(DATA, END_STREAM, 1, message((1, b"witness"))):
            connection.send(bytes([byte]))
        assert b"unharmed" in connection.answer(1)[0]


def test_wrong_messages():
    """Each is answered with a status, and the connection goes on."""
    bodies = (b"", b"\0", b"\0\0\0\0", b"\2\0\0\0\0", b"\1\0\0\0\1x", b"\0\xff\xff\xff\xff",
              b"\0\0\0\0\5abc", message((1, b"k")) * 2, message((1, b"k")) + b"x",
              b"\0\0\0\0\2\x0a\x05", b"\0\0\0\0\1\xff", b"\0\0\0\0\2\x0f\0",
              b"\0\0\0\0\3\x0b\x0b\x0b")
    with watched() as server, Connection(server.address) as connection:
        for body in bodies:
            for path in (GET, PUT, SCAN, "/kv_cache.KvCacheService/Stats",
                         "/grpc.health.v1.Health/Check",
                         "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"):
                _, last = connection.answer(connection.request(path, body))
                assert last.kind == HEADERS and last.flags & END_STREAM, (path, body, last)
        assert b"unharmed" in connection.get(b"witness")


def test_an_answer_before_the_end_of_the_request():
    """The rest of the request is not wanted, and said so."""
    with watched() as server, Connection(server.address) as connection:
        stream = connection.request(GET, b"\0\xff\xff\xff\xff", end=False)
        last = connection.answer(stream)[1]
        assert last.kind == HEADERS, last
        reset = connection.wait_for(RST_STREAM)
        assert reset.stream == stream and reset.error() == 0, reset
        connection.send(frame(DATA, 0, stream, b"x" * 10000))
        assert b"unharmed" in connection.get(b"witness")


def nghttp(server, *arguments):
    need_program("nghttp", "nghttp2-client")
    result = subprocess.run(["nghttp", "-v", "--no-dep", *arguments,
                             f"http://{server.address}{GET}"],
                            capture_output=True, timeout=60, stdin=NUL)
    assert result.returncode == 0, result
    # Without colours and times.
    return re.sub(r"\x1b\[[0-9;]*m", "", result.stdout.decode(errors="replace"))


def test_headers_as_nghttp_shows_them():
    need_program("nghttp", "nghttp2-client")
    grpc = ("-H", "content-type: application/grpc", "-H", "te: trailers")
    body = os.path.join(MADE, "get-witness")
    with open(body, "wb") as file:
        file.write(message((1, b"witness")))
    with watched() as server:
        output = nghttp(server)
        assert ":status: 405" in output, output
        output = nghttp(server, "-d", body)
        assert ":status: 415" in output, output
        output = nghttp(server, "-d", body, "-H", "content-type: application/grpcish")
        assert ":status: 415" in output, output
        output = nghttp(server, "-d", body, *grpc)
        for text in (":status: 200", "content-type: application/grpc\n", "grpc-status: 0",
                     "unharmed"):
            assert text in output, (text, output)
        output = nghttp(server, "-d", body, *grpc, "-H", "grpc-encoding: br")
        for text in (":status: 200", "grpc-status: 12", "grpc-accept-encoding: identity,gzip"):
            assert text in output, (text, output)
        output = nghttp(server, "-d", body, *grpc, "-H", "grpc-timeout: 0n")
        assert "grpc-status: 4" in output, output
        output = nghttp(server, "-d", body, *grpc, "-H", "grpc-timeout: soon")
        assert "grpc-status: 13" in output, output
        for name in ("content-type: application/grpc+proto",
                     "content-type: application/grpc;charset=utf-8"):
            output = nghttp(server, "-d", body, "-H", name)
            assert "grpc-status: 0" in output, output


# ---------------------------------------------------------------- too much


def test_slow_reader():
    """Asks for much and takes nothing: what waits for it is bounded, and then it is cut off."""
    with watched("--grpc-stall", "1s") as server:
        put(server, b"long", b"x" * (1 << 20))
        before = resident(server)
        connections = [Connection(server.address) for _ in range(8)]
        for connection in connections:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(100):
                connection.request(GET, message((1, b"long")))
        time.sleep(0.3)
        held = resident(server) - before
        assert held < 80 << 10, f"{held} KB for eight clients that take nothing"
        end = time.monotonic() + PATIENCE_S
        while figure(server, "control.stalls") < 8:
            assert time.monotonic() < end
            time.sleep(0.1)
        for connection in connections:
            connection.socket.close()


def test_scans_take_turns():
    """Many scans of all keys, by clients that would take everything at once."""
    wide = struct.pack(">HI", INITIAL_WINDOW_SIZE, 0x7fffffff)
    with watched() as server:
        with Connection(server.address) as connection:
            connection.send(frame(WINDOW_UPDATE, payload=struct.pack(">I", 1 << 24)))
            for first in range(0, 5000, 50):
                streams = [connection.request(PUT, message((1, b"%05d" % number), (2, b"v")))
                           for number in range(first, first + 50)]
                while streams:
                    got = connection.read()
                    if got.kind == HEADERS and got.flags & END_STREAM:
                        streams.remove(got.stream)
        connections = [Connection(server.address, settings=wide) for _ in range(4)]
        for connection in connections:
            connection.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7ff00000)))
            connection.scans = [connection.request(SCAN, message((1, prefix)))
                                for prefix in (b"none", b"0") * 16]
        for connection in connections:
            left, keys = set(connection.scans), 0
            while left:
                got = connection.read()
                keys += got.payload.count(b"\x0a\x05") if got.kind == DATA else 0
                if got.flags & END_STREAM and got.kind == HEADERS:
                    left.discard(got.stream)
            assert keys >= 16 * 4900, keys
            connection.socket.close()


def test_no_window():
    """The same by HTTP/2's own means."""
    with watched("--grpc-stall", "500ms") as server, \
            Connection(server.address, settings=NO_WINDOW) as connection:
        streams = {connection.request(GET, message((1, b"witness"))) for _ in range(50)}
        while streams:
            got = connection.read()
            assert got.kind != DATA, got
            if got.kind == RST_STREAM:
                assert got.error() == CANCEL, got
                streams.discard(got.stream)
        assert figure(server, "control.stalls") >= 50


def test_a_request_that_does_not_go_on():
    with watched("--grpc-stall", "500ms") as server, Connection(server.address) as connection:
        stream = connection.request(PUT, message((1, b"k"), (2, b"v" * 1000))[:100], end=False)
        reset = connection.wait_for(RST_STREAM)
        assert reset.stream == stream and reset.error() == CANCEL, reset


def test_long_headers():
    with watched() as server, Connection(server.address) as connection:
        # Before the content type, too: what was not looked at must not be called missing.
        for extra in ([("x-long", "y" * 8000)] * 9, [("x-long", "y" * 50000)] * 2):
            long = b"".join(literal(*header) for header in extra)
            whole = request_headers(GET)
            at = whole.index(literal("content-type", "application/grpc"))
            for block in (whole + long, whole[:at] + long + whole[at:]):
                stream = connection.take_stream()
                parts = [block[at:at + 16000] for at in range(0, len(block), 16000)]
                connection.send(frame(HEADERS, 0, stream, parts[0]))
                for part in parts[1:-1]:
                    connection.send(frame(CONTINUATION, 0, stream, part))
                connection.send(frame(CONTINUATION, END_HEADERS, stream, parts[-1]))
                data, last = connection.answer(stream)
                assert not data and last.kind == HEADERS and last.flags & END_STREAM, last
        assert figure(server, "control.status.RESOURCE_EXHAUSTED") == 4, server.text()
        assert b"unharmed" in connection.get(b"witness")


def test_header_bomb():
    """A long header that is remembered, then named a thousand times by one byte each."""
    with watched() as server:
        before = resident(server)
        for _ in range(5):
            with Connection(server.address) as connection:
                bomb = request_headers(GET) + literal("x", "y" * 4000, indexed=True) + \
                    integer(62, 7, 0x80) * 10000
                with contextlib.suppress(Closed):
                    for number in range(100):
                        connection.send(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1,
                                              bomb))
        assert resident(server) - before < 20 << 10


def test_continuation_flood():
    """A header block without an end."""
    with watched() as server, Connection(server.address) as connection:
        connection.send(frame(HEADERS, 0, 1, request_headers(GET)))
        with contextlib.suppress(Closed):
            for _ in range(20000):
                connection.send(frame(CONTINUATION, 0, 1, literal("x", "y" * 1000)))
        connection.wait_for_end()


def test_stream_flood():
    """More calls than are permitted are refused, as long as the client may not know better; after
    that it is cut off."""
    with watched("--grpc-max-streams", "16", "--grpc-stall", "60s") as server, \
            Connection(server.address) as connection:
        half = message((1, b"witness"))[:3]
        first = [connection.request(GET, half, end=False) for _ in range(16)]
        for _ in range(100):
            connection.request(GET, half, end=False)
        connection.acknowledges = False
        for _ in range(100):
            reset = connection.wait_for(RST_STREAM)
            assert reset.stream not in first and reset.error() == REFUSED_STREAM, reset
        for stream in first:
            connection.send(frame(DATA, END_STREAM, stream, message((1, b"witness"))[3:]))
        left = set(first)
        while left:
            got = connection.read()
            if got.kind == HEADERS and got.flags & END_STREAM:
                left.discard(got.stream)
        connection.send(frame(SETTINGS, ACK))
        with contextlib.suppress(Closed):
            for _ in range(17):
                connection.request(GET, half, end=False)
        connection.wait_for_end()


def test_rapid_reset():
    with watched() as server, Connection(server.address) as connection:
        headers = request_headers(GET)
        with contextlib.suppress(Closed):
            for _ in range(100):
                batch = b""
                for _ in range(100):
                    stream = connection.take_stream()
                    batch += frame(HEADERS, END_HEADERS, stream, headers) + \
                        frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))
                connection.send(batch)
        frames = connection.wait_for_end()
        away = [got for got in frames if got.kind == GOAWAY]
        assert not away or away[0].error() in (ENHANCE_YOUR_CALM, 2), away
        assert figure(server, "control.floods") == 1


def test_ping_flood():
    with watched() as server, Connection(server.address) as connection:
        with contextlib.suppress(Closed):
            for _ in range(100):
                connection.send(frame(PING, 0, 0, b"12345678") * 100)
        frames = connection.wait_for_end()
        away = [got for got in frames if got.kind == GOAWAY]
        assert not away or (away[0].error() == ENHANCE_YOUR_CALM and
                            away[0].payload.endswith(b"too_many_pings")), away
        assert figure(server, "control.floods") == 1


def test_other_floods():
    """Frames that mean nothing, in masses; from a client that takes no answers, too."""
    with watched() as server:
        before = resident(server)
        for kind in (frame(SETTINGS), frame(PRIORITY, 0, 1, b"\0\0\0\0\1"),
                     frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"), frame(0xfa, 0, 0, b"x" * 100),
                     frame(DATA, 0, 1), frame(SETTINGS, payload=b"\0\xfe\0\0\0\0" * 10)):
            with Connection(server.address) as connection:
                connection.request(GET, b"", end=False)
                with contextlib.suppress(Closed, socket.timeout):
                    connection.socket.settimeout(2)
                    for _ in range(200):
                        connection.send(kind * 100)
        assert resident(server) - before < 20 << 10


def test_connection_flood():
    with watched("--grpc-max-connections", "10") as server:
        connections = [Connection(server.address) for _ in range(9)]
        for connection in connections:
            connection.wait_for(SETTINGS)
        for _ in range(20):
            with Connection(server.address, greets=False) as connection:
                connection.wait_for_end()
        assert figure(server, "control.connections_refused") == 20
        connections.pop().socket.close()
        end = time.monotonic() + PATIENCE_S
        while figure(server, "control.connections") > 9:
            assert time.monotonic() < end
        with Connection(server.address) as connection:
            assert b"unharmed" in connection.get(b"witness")
        for connection in connections:
            connection.socket.close()


def test_unfinished_requests_share_a_budget():
    """What is announced costs nothing, what has come is counted, and short calls go on."""
    limits = ("--grpc-max-message", "256KB", "--grpc-max-buffered", "4MB", "--grpc-stall", "60s")
    with watched(*limits) as server:
        before = resident(server)
        announced = [Connection(server.address) for _ in range(8)]
        for connection in announced:
            for _ in range(100):
                connection.request(PUT, b"\0" + struct.pack(">I", 256 << 10), end=False)
        connections = [Connection(server.address) for _ in range(8)]
        refused = 0
        for connection in connections:
            for _ in range(10):
                stream = connection.request(PUT, b"\0" + struct.pack(">I", 256 << 10), end=False)
                for _ in range(12):
                    connection.send(frame(DATA, 0, stream, b"x" * 16384))
            refused += sum(1 for got in drain(connection)
                           if got.kind == HEADERS and got.flags & END_STREAM)
        assert 0 < refused < 80, refused
        held = resident(server) - before
        assert held < 12 << 10, f"{held} KB"
        for connection in announced + connections:
            connection.socket.close()


def drain(connection):
    """What has come so far."""
    connection.socket.settimeout(0.3)
    try:
        while True:
            yield connection.read()
    except (socket.timeout, Closed):
        return


def test_idle_server_sleeps():
    need_service()
    with GrpcServer() as server, Connection(server.address) as connection:
        connection.get(b"none")
        time.sleep(0.2)

        def used():
            with open(f"/proc/{server.process.pid}/stat") as stat:
                words = stat.read().rsplit(")", 1)[1].split()
            return int(words[11]) + int(words[12])

        # Others of the server's threads tick; a tenth of a core is far more than all of them.
        before = used()
        time.sleep(1)
        assert used() - before < os.sysconf("SC_CLK_TCK") / 10


# ---------------------------------------------------------------- TLS


def test_tls_handshakes_that_are_none():
    files = Certificates()
    need_service()
    with GrpcServer("--tls-cert", files.path("server.pem"), "--tls-key",
                    files.path("server.key")) as server:
        for garbage in (PREFACE, os.urandom(1000), b"\x16\x03\x01\xff\xff" + b"x" * 1000, b""):
            with Connection(server.address, greets=False) as connection:
                with contextlib.suppress(Closed):
                    connection.send(garbage)
        silent = [Connection(server.address, greets=False) for _ in range(20)]
        host, port = server.address.rsplit(":", 1)
        for protocols, works in (("h2", True), ("http/1.1", False), (None, False)):
            command = ["openssl", "s_client", "-connect", f"{host}:{port}", "-CAfile",
                       files.path("ca.pem"), "-brief"]
            if protocols:
                command += ["-alpn", protocols]
            result = subprocess.run(command, input=b"", capture_output=True, timeout=60)
            done = b"CONNECTION ESTABLISHED" in result.stderr
            if protocols:
                assert done == works, (protocols, result)
        for old in ("-tls1", "-tls1_1"):
            result = subprocess.run(["openssl", "s_client", "-connect", f"{host}:{port}", old,
                                     "-alpn", "h2", "-brief"],
                                    input=b"", capture_output=True, timeout=60)
            assert b"CONNECTION ESTABLISHED" not in result.stderr, result
        for connection in silent:
            connection.socket.close()
        assert server.stop() == 0


# ---------------------------------------------------------------- load


def test_load():
    need_service()
    need_program("h2load", "nghttp2-client")
    body = os.path.join(MADE, "get-witness")
    with open(body, "wb") as file:
        file.write(message((1, b"witness")))
    with watched() as server:
        result = subprocess.run(
            ["h2load", "-n", "50000", "-c", "4", "-m", "16", "-d", body,
             "-H", "content-type: application/grpc", "-H", "te: trailers",
             f"http://{server.address}{GET}"],
            capture_output=True, text=True, timeout=120, stdin=NUL)
        assert "50000 succeeded, 0 failed, 0 errored" in result.stdout, result.stdout
        assert figure(server, "control.status.OK") >= 50000
        assert resident(server) < 20 << 10, resident(server)


# ---------------------------------------------------------------- the program's options


def test_options():
    need_service()

    def fails(code, text, *arguments):
        result = subprocess.run([f"{sys.argv[1]}/kv-server", "-m", "32", "-p", "0", *arguments],
                                capture_output=True, text=True, timeout=60, stdin=NUL)
        assert result.returncode == code and text in result.stderr, (arguments, result)
        assert len(result.stderr.splitlines()) == 1 and not result.stdout, (arguments, result)

    files = Certificates()
    fails(1, "no address for gRPC", "--listen-addr", "localhost:http")
    fails(1, "no address for gRPC", "--listen-addr", "70000")
    fails(2, "give --listen-addr", "--tls-cert", "x")
    fails(1, "both a certificate and its key", "--listen-addr", "0", "--tls-cert",
          files.path("server.pem"))
    fails(1, "cannot use", "--listen-addr", "0", "--tls-cert", "/nowhere", "--tls-key", "/nowhere")
    fails(1, "TLS key", "--listen-addr", "0", "--tls-cert", files.path("server.pem"),
          "--tls-key", files.path("client.key"))
    fails(1, "headers of 100 bytes", "--listen-addr", "0", "--grpc-max-headers", "100")
    fails(2, "no address for gRPC", "--check-config", "--listen-addr", "a:b")
    with GrpcServer() as server:
        fails(1, "cannot listen for gRPC at", "--listen-addr", server.address)
        assert server.address.startswith("127.0.0.1:")
    with GrpcServer("--listen-addr", "[::1]:0") as server:
        assert server.address.startswith("[::1]:")


if __name__ == "__main__":
    sys.exit(run_main(globals()))
