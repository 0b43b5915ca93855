#!/usr/bin/env python3
"""Writes the first inputs of kv_decode_fuzz and kv_session_fuzz: good messages of every kind.

    tests/fuzz/kv_corpus.py
"""

import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
KEYED = {16, 17, 18, 19, 20, 21, 22, 27, 29}
VALUED = {17, 30, 33}


def request(op, key=b"", value=b"", touches=0, length=None):
    header = struct.pack("<BBHIIHHQQQQ", op, 0, len(key), 1, 0, touches, 0,
                         len(value) if length is None else length, 0, 0, 0)
    return header + key + value + b"\1" * (16 * touches)


def reply(op, value=b""):
    return struct.pack("<BBhIIIQQQQQQQ", op, 1 if value else 0, 0, 1, 0, 1, 5, 6, len(value), 0, 64,
                       0, 2**64 - 1) + value


def write(fuzzer, name, data):
    (CORPUS / fuzzer / name).write_bytes(data)


def main():
    for op in range(16, 35):
        key = b"key" if op in KEYED else b""
        value = b"value" if op in VALUED else b""
        write("kv_decode_fuzz", f"request-{op}", request(op, key, value, op % 3))
        write("kv_decode_fuzz", f"reply-{op}", reply(op, value))
    entry = struct.pack("<QQQII", 1, 2, 3, 5, 0) + b"hello\0\0\0"
    write("kv_decode_fuzz", "scan", reply(23, entry + entry))
    write("kv_decode_fuzz", "scan-behind", request(23, b"key", b"", 1))
    write("kv_decode_fuzz", "hello", struct.pack("<BBBBI16s16sQ", 1, 0, 0, 0, 32, b"n" * 16,
                                                     b"i" * 16, 1))
    write("kv_decode_fuzz", "refuse", struct.pack("<BBBBi120s", 5, 0, 0, 0, -12, b"no"))
    for choices in (0, 1, 2, 4, 8, 16, 24):
        records = b"".join(bytes([0, offset]) for offset in range(20))
        write("kv_session_fuzz", f"good-{choices}", bytes([choices]) + records)
        for at in (0, 1, 2, 4, 8, 12, 16, 24, 32, 40):
            write("kv_session_fuzz", f"bad-{choices}-{at}",
                  bytes([choices]) + bytes([0, 0, 8, at | 1]) + b"\xff" * 8 + bytes([3, at]) * 6)


if __name__ == "__main__":
    main()
