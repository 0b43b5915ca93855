"""HTTP/2 by hand, for clients that are slow, hasty or wrong: frames as bytes, and no more sense
than a test wants. Headers are written in the plainest way there is; those that come back are not
decoded.
"""

import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = \
    range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 7, 8, 11
INITIAL_WINDOW_SIZE = 4
GET = "/kv_cache.KvCacheService/Get"
PUT = "/kv_cache.KvCacheService/Put"
SCAN = "/kv_cache.KvCacheService/Scan"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def integer(value, prefix_bits, first=0):
    """A number of HPACK."""
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 128:
        out.append(value % 128 | 128)
        value //= 128
    out.append(value)
    return bytes(out)


def literal(name, value, indexed=False):
    """A header that is written out; `indexed`: and remembered, as entry 62."""
    name, value = (text.encode() if isinstance(text, str) else text for text in (name, value))
    return (bytes([0x40 if indexed else 0]) + integer(len(name), 7) + name +
            integer(len(value), 7) + value)


def request_headers(path=GET, extra=()):
    headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "test"),
               ("content-type", "application/grpc"), ("te", "trailers"), *extra]
    return b"".join(literal(name, value) for name, value in headers)


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value % 128 | 128)
        value //= 128
    out.append(value)
    return bytes(out)


def field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(*fields):
    """A message of gRPC with these (number, bytes)."""
    body = b"".join(field(number, value) for number, value in fields)
    return b"\0" + struct.pack(">I", len(body)) + body


class Frame:
    """One that came."""

    def __init__(self, kind, flags, stream, payload):
        self.kind, self.flags, self.stream, self.payload = kind, flags, stream, payload

    def __repr__(self):
        return f"<{self.kind} {self.flags:x} {self.stream} {self.payload[:40]}>"

    def error(self):
        """Of GOAWAY and RST_STREAM."""
        at = 4 if self.kind == GOAWAY else 0
        return struct.unpack(">I", self.payload[at:at + 4])[0]


class Closed(Exception):
    """The server has ended the connection."""


class Connection:
    """One to the server; nothing is answered by itself but SETTINGS and PING."""

    def __init__(self, address, settings=b"", greets=True, timeout_s=20):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout_s = timeout_s
        self.buffer = b""
        self.next_stream = 1
        self.acknowledges = True
        if greets:
            self.send(PREFACE + frame(SETTINGS, payload=settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from error

    def take_stream(self):
        self.next_stream += 2
        return self.next_stream - 2

    def request(self, path, body, extra=(), end=True):
        """Sends a call; returns its stream."""
        stream = self.take_stream()
        self.send(frame(HEADERS, END_HEADERS, stream, request_headers(path, extra)) +
                  frame(DATA, END_STREAM if end else 0, stream, body))
        return stream

    def read(self):
        """The next frame."""
        end = time.monotonic() + self.timeout_s
        while len(self.buffer) < 9 or \
                len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            assert time.monotonic() < end, "nothing comes"
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionError as error:
                raise Closed(str(error)) from error
            if not more:
                raise Closed("at its end")
            self.buffer += more
        length = int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        got = Frame(kind, flags, stream, self.buffer[9:9 + length])
        self.buffer = self.buffer[9 + length:]
        if kind == SETTINGS and not flags & ACK and self.acknowledges:
            self.send(frame(SETTINGS, ACK))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, got.payload))
        return got

    def answer(self, stream):
        """All of a call's answer: its bytes, and the last frame."""
        data = b""
        while True:
            got = self.read()
            if got.stream != stream:
                continue
            if got.kind == DATA:
                data += got.payload
                if got.payload:
                    update = struct.pack(">I", len(got.payload))
                    self.send(frame(WINDOW_UPDATE, 0, 0, update) +
                              frame(WINDOW_UPDATE, 0, stream, update))
            if got.kind == RST_STREAM or got.flags & END_STREAM:
                return data, got

    def get(self, key):
        """The bytes of a Get's answer."""
        return self.answer(self.request(GET, message((1, key))))[0]

    def wait_for(self, kind):
        """The next frame of this kind."""
        while True:
            got = self.read()
            if got.kind == kind:
                return got

    def wait_for_end(self):
        """Reads until the server ends the connection; the frames that came."""
        frames = []
        try:
            while True:
                frames.append(self.read())
        except Closed:
            return frames
