#!/usr/bin/env python3
"""Writes the corpus of tcp_frame_fuzz: valid and nearly valid inputs, one file each.

    tests/fuzz/tcp_frame_corpus.py tests/fuzz/corpus/tcp_frame_fuzz

The format of an input is told in tcp_frame_fuzz.c, the frames in src/fabric/tcp/frame.h.
"""
import os
import struct
import sys

(SEND, WRITE, WRITE_IMM, READ, CSWAP, FADD, WANT, READ_DATA, ATOMIC_RESULT, ACK, GRANT,
 ERROR) = range(1, 13)
KEY = 0x4B4B4B4B4B4B4B4B
REGION = 8192


def head(op, sequence, length=0, status=0, index=0):
    return struct.pack("<BBHIQ", op, status, index, sequence, length)


def ack(op, sequence, messages, byte_count, status=0):
    return struct.pack("<BBHIII", op, status, 0, sequence, messages, byte_count)


def on_region(op, sequence, length, offset, key=KEY):
    return head(op, sequence, length) + struct.pack("<QQ", key, offset)


def send(sequence, length):
    return head(SEND, sequence, length) + bytes(length)


def write(sequence, length, offset=0):
    return on_region(WRITE, sequence, length, offset) + bytes(length)


def write_imm(sequence, length, immediate=7):
    return (on_region(WRITE_IMM, sequence, length, 0) + struct.pack("<II", immediate, 0) +
            bytes(length))


def read(sequence, length, offset=0, key=KEY):
    return on_region(READ, sequence, length, offset, key)


def fadd(sequence, offset=0):
    return on_region(FADD, sequence, 8, offset) + struct.pack("<Q", 1)


def cswap(sequence, offset=0):
    return on_region(CSWAP, sequence, 8, offset) + struct.pack("<QQ", 1, 0)


def data(sequence, length):
    return head(READ_DATA, sequence, length) + bytes(length)


def hello(kind=1, depth=4, version=1):
    return struct.pack("<IHBBQIIII", 0x74726D52, version, kind, 3, 8192, depth, 64, 262144,
                       0) + b"abc".ljust(96, b"\0")


def whole(frames, works=0, behaviour=0):
    """All frames at once."""
    return bytes([1, works, behaviour, 0]) + b"".join(frames)


def pieces(frames, size, works=0, behaviour=0):
    """The same bytes in pieces of `size`."""
    stream = b"".join(frames)
    result = bytes([1, works, behaviour])
    for at in range(0, len(stream), size):
        piece = stream[at:at + size]
        result += bytes([len(piece)]) + piece
    return result


mixed = [write(0, 100), read(1, 64), send(2, 10), write_imm(3, 16), fadd(4), cswap(5),
         read(6, 8192), send(7, 0)]
# With all works selected: READ 16, READ 4096, FADD, CSWAP; four may be in flight.
answers = [data(0, 16), data(1, 4096), head(ATOMIC_RESULT, 2, 9), head(ATOMIC_RESULT, 3, 9),
           ack(ACK, 7, 2, 10), data(7, 0)]

inputs = {
    "codec_hello": b"\0" + hello(),
    "codec_accept": b"\0" + hello(kind=2),
    "codec_reject": b"\0" + hello(kind=3),
    "codec_other_version": b"\0" + hello(version=2),
    "codec_frames": b"\0" + b"".join([read(0, 8), fadd(1), cswap(2), head(SEND, 3),
                                      ack(ACK, 1, 2, 3), head(GRANT, 4),
                                      ack(ERROR, 5, 0, 0, 7)]),
    "requests_whole": whole(mixed),
    "requests_by_byte": pieces(mixed[:6], 1),
    "requests_by_33": pieces(mixed, 33),
    "requests_unread": whole([read(i, 8192) for i in range(4)], behaviour=2),
    "too_many_requests": whole([read(i, 8192) for i in range(300)], behaviour=2),
    "messages_held": whole([send(i, 100) for i in range(10)] + [read(10, 8)], behaviour=1),
    "messages_flood": whole([send(i, 1000) for i in range(30)], behaviour=1),
    "immediates": whole([write_imm(i, 8, i) for i in range(12)]),
    "want": whole([head(WANT, 0, 70000)]),
    "want_and_send": pieces([head(WANT, 0, 66000)], 16) + b"\0" + send(0, 66000),
    "answers": whole(answers, works=0xFF),
    "answers_by_7": pieces(answers, 7, works=0xFF),
    "answer_short": whole([data(0, 16)[:-1]], works=0x01),
    "answer_wrong_length": whole([data(0, 17)], works=0x01),
    "answer_skipped": whole([data(1, 4096)], works=0x03),
    "answer_error": whole([ack(ERROR, 0, 0, 0, 7)], works=0x0F),
    "acks": whole([ack(ACK, 0, 1, 10), ack(ACK, 2, 2, 10), ack(ACK, 3, 2, 10)], works=0x70),
    "acks_beyond": whole([ack(ACK, 9, 9, 99)], works=0x70),
    "wrong_key": whole([read(0, 8, key=1)]),
    "beyond_the_end": whole([read(0, 8, offset=REGION - 7)]),
    "overflow": whole([read(0, 8, offset=(1 << 64) - (1 << 40))]),
    "atomic_unaligned": whole([fadd(0, offset=4)]),
    "sequence_jump": whole([send(1, 8)]),
    "closed_by_us": whole(mixed, works=0xFF, behaviour=4),
    "closed_while_held": whole([send(i, 100) for i in range(10)], works=0x10, behaviour=5),
    "end_in_payload": whole([write(0, 5000)[:3000]]),
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, content in inputs.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(content)


main()
