#!/usr/bin/env python3
"""Writes the corpus of control_h2_fuzz: control_corpus.py DIRECTORY

Good calls of every method, as records and as raw frames, and some that are wrong in ways that took
thought. The fuzzer finds the rest.
"""

import gzip
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "control"))
from http2 import (CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, HEADERS, PING, PREFACE,  # noqa
                   PUT, RST_STREAM, SETTINGS, WINDOW_UPDATE, field, frame, integer, literal,
                   message, request_headers, varint)

(GET_M, PUT_M, DELETE_M, CAS_M, TOUCH_M, STATS_M, GET_STREAM_M, PUT_STREAM_M, SCAN_M, REGISTER_M,
 HEARTBEAT_M, CHECK_M, WATCH_M, REFLECT_M, REFLECT_ALPHA_M) = range(15)
NO_PREFIX, NO_END, IN_PIECES, RESET, TIMEOUT, TOKEN, GZIP = (1 << bit for bit in range(7))


def number(index, value):
    return varint(index << 3) + varint(value)


def record(method, body, flags=0):
    return bytes([method, flags]) + struct.pack(">H", len(body)) + body


def records(*several):
    return bytes([120]) + b"".join(several)


def greeted(raw):
    return bytes([0]) + raw


def put_stream(length, *chunks, condition=0):
    """Messages with their prefixes."""
    header = field(1, b"key") + number(2, length) + number(6, condition) + number(7, 1)
    return message((1, header)) + b"".join(message((2, chunk)) for chunk in chunks)


LOCATION = number(1, 7) + field(2, number(1, 4096) + field(2, field(1, b"shm:x") +
                                                                  number(2, 7))) + number(4, 100)
CORPUS = {
    "get": records(record(GET_M, field(1, b"key"))),
    "get_location": records(record(GET_M, field(1, b"key") + field(2, LOCATION))),
    "put_get": records(record(PUT_M, field(1, b"key") + field(2, b"value") + number(4, 10)),
                       record(GET_M, field(1, b"key") + number(3, 7))),
    "put_location": records(record(PUT_M, field(1, b"key") + field(3, LOCATION))),
    "put_both": records(record(PUT_M, field(2, b"v") + field(3, LOCATION) + field(2, b"w"))),
    "delete": records(record(DELETE_M, field(1, b"key") + number(16, 3))),
    "cas": records(record(CAS_M, field(1, b"key") + field(2, b"v")),
                   record(CAS_M, field(1, b"key") + field(2, b"w") + number(3, 1))),
    "cas_location": records(record(CAS_M, field(1, b"key") + field(6, LOCATION))),
    "put_stream": records(record(PUT_STREAM_M, put_stream(6, b"abc", b"def"), NO_PREFIX),
                          record(GET_STREAM_M, field(1, b"key") + number(2, 2))),
    "put_stream_if": records(record(PUT_STREAM_M, put_stream(1, b"a", condition=1), NO_PREFIX),
                             record(PUT_STREAM_M, put_stream(1, b"a", condition=2), NO_PREFIX)),
    "put_stream_short": records(record(PUT_STREAM_M, put_stream(7, b"abc"), NO_PREFIX)),
    "put_stream_long": records(record(PUT_STREAM_M, put_stream(2, b"abc"), NO_PREFIX)),
    "put_stream_huge": records(record(PUT_STREAM_M, put_stream(2**64 - 1, b"abc"), NO_PREFIX)),
    "put_stream_left": records(record(PUT_STREAM_M, put_stream(9 << 20, b"a"), NO_PREFIX | NO_END),
                               record(PUT_STREAM_M, put_stream(9 << 20, b"a"), NO_PREFIX | RESET)),
    "gzip": records(record(PUT_M, gzip.compress(field(1, b"key") + field(2, b"v" * 2000)), GZIP),
                    record(GET_M, gzip.compress(field(1, b"key")), GZIP)),
    "gzip_bomb": records(record(PUT_M, gzip.compress(field(1, b"k") + field(2, bytes(1 << 20))),
                                GZIP)),
    "gzip_broken": records(record(PUT_M, gzip.compress(field(1, b"key"))[:-3], GZIP),
                           record(PUT_M, b"", GZIP)),
    "touch": records(record(TOUCH_M, field(1, b"key") + number(2, 2**64 - 1))),
    "stats": records(record(STATS_M, field(1, b"control."))),
    "scan": records(record(PUT_M, field(1, b"a") + field(2, b"b")),
                    record(SCAN_M, field(1, b"a") + number(3, 5) + number(4, 1))),
    "register": records(record(REGISTER_M, number(1, 7) + field(2, b"shm") + number(3, 65536))),
    "heartbeat": records(record(HEARTBEAT_M, number(1, 7))),
    "health": records(record(CHECK_M, field(1, b"other")), record(CHECK_M, b""),
                      record(WATCH_M, b"", NO_END), record(WATCH_M, b"")),
    "reflect": records(record(REFLECT_M, field(7, b"") , NO_END),
                       record(REFLECT_M, field(3, b"kv_cache.proto")),
                       record(REFLECT_M, field(4, b"kv_cache.KvCacheService.Get")),
                       record(REFLECT_ALPHA_M, field(5, field(1, b"x") + number(2, 1)))),
    "reflect_stream": records(record(REFLECT_M, message((7, b"")) * 3 + message((4, b"no")),
                                     NO_PREFIX)),
    "pieces": records(record(GET_M, field(1, b"key"), IN_PIECES)),
    "resets": records(record(SCAN_M, b"", RESET), record(GET_M, b"", NO_END | RESET)),
    "timeout": records(record(WATCH_M, b"", TIMEOUT), record(GET_M, field(1, b"k"), TIMEOUT)),
    "token": records(record(GET_M, field(1, b"k"), TOKEN)),
    "two_messages": records(record(GET_M, message((1, b"k")) * 2, NO_PREFIX)),
    "compressed": records(record(GET_M, b"\1\0\0\0\1x", NO_PREFIX)),
    "too_long": records(record(PUT_M, b"\0\xff\xff\xff\xff", NO_PREFIX)),
    "many_parts": records(record(STATS_M, field(1, b"") * 2000)),
    "unknown_fields": records(record(GET_M, field(1, b"k") + field(1000, b"x") + number(99, 1) +
                                     b"\x0d1234" + b"\x0912345678")),
    "deep": records(record(GET_M, field(2, field(2, field(2, b"")) * 100))),
    "raw_get": greeted(frame(HEADERS, END_HEADERS, 1, request_headers(GET)) +
                       frame(DATA, END_STREAM, 1, message((1, b"key")))),
    "raw_put": greeted(frame(HEADERS, END_HEADERS, 1, request_headers(PUT)) +
                       frame(DATA, END_STREAM, 1, message((1, b"key"), (2, b"value")))),
    "raw_continuation": greeted(frame(HEADERS, END_STREAM, 1, request_headers(GET)[:20]) +
                                frame(CONTINUATION, END_HEADERS, 1, request_headers(GET)[20:])),
    "raw_bomb": greeted(frame(HEADERS, END_HEADERS | END_STREAM, 1, request_headers(GET) +
                              literal("x", "y" * 1000, indexed=True) +
                              integer(62, 7, 0x80) * 1000)),
    "raw_trailers": greeted(frame(HEADERS, END_HEADERS, 1, request_headers(GET)) +
                            frame(DATA, 0, 1, message((1, b"key"))) +
                            frame(HEADERS, END_HEADERS | END_STREAM, 1, literal("x", "y"))),
    "raw_pings": greeted(frame(PING, 0, 0, b"12345678") * 100),
    "raw_rapid_reset": greeted(b"".join(
        frame(HEADERS, END_HEADERS, stream, request_headers(GET)) +
        frame(RST_STREAM, 0, stream, b"\0\0\0\x08") for stream in range(1, 41, 2))),
    "raw_windows": greeted(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) +
                           frame(HEADERS, END_HEADERS, 1, request_headers(GET)) +
                           frame(DATA, END_STREAM, 1, message((1, b"key"))) +
                           frame(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff") * 2),
    "bare_http1": bytes([100]) + b"GET / HTTP/1.1\r\n\r\n",
    "bare_preface": bytes([100]) + PREFACE + frame(SETTINGS),
}

if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, content in CORPUS.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(content)
