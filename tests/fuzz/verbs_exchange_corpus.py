#!/usr/bin/env python3
"""Writes the corpus of verbs_exchange_fuzz: valid and nearly valid inputs, one file each.

    tests/fuzz/verbs_exchange_corpus.py tests/fuzz/corpus/verbs_exchange_fuzz

The bytes are told in src/fabric/verbs/exchange.h and greeting.h.
"""
import os
import struct
import sys

MAGIC = 0x76726D52
HELLO, ACCEPT, REJECT, READY = range(1, 5)
V4 = bytes(10) + b"\xff\xff\x0a\x01\x02\x03"
LINK_LOCAL = b"\xfe\x80" + bytes(13) + b"\x01"


def greeting(kind=HELLO, version=1, private=b"abc", recv_size=8192):
    return struct.pack("<IBBBBIIQ", MAGIC, version, kind, len(private), 0, recv_size, 0,
                       0x1122334455667788) + private.ljust(32, b"\0")


def exchange(first=greeting(), qpn=17, psn=0xABCDEF, lid=0, mtu=3, reads=16, link=2, gid_type=2,
             gid=V4, zero=0):
    return first + struct.pack("<IIHBBBBBB", qpn, psn, lid, mtu, reads, reads, link, gid_type,
                               0) + gid + struct.pack("<Q", zero)


def refusal(text, version=1, length=None):
    return struct.pack("<IBBBBII", MAGIC, version, REJECT, len(text) if length is None else length,
                       0, 0, 0) + text


inputs = {
    "hello_roce": exchange(),
    "hello_roce_v6": exchange(gid=LINK_LOCAL),
    "hello_roce_v1": exchange(gid_type=1),
    "accept_infiniband": exchange(greeting(ACCEPT), lid=7, link=1, gid_type=0, gid=LINK_LOCAL),
    "hello_with_more": exchange() + b"\0",
    "hello_half": exchange()[:50],
    "hello_other_version": exchange(greeting(version=2)),
    "hello_no_queue_pair": exchange(qpn=0),
    "hello_wide_psn": exchange(psn=1 << 24),
    "hello_bad_mtu": exchange(mtu=6),
    "hello_no_reads": exchange(reads=0),
    "hello_bad_link": exchange(link=3),
    "hello_multicast": exchange(gid=b"\xff" + V4[1:]),
    "hello_zero_gid": exchange(gid=bytes(16)),
    "hello_reserved": exchange(zero=1),
    "hello_long_private": exchange(greeting(private=bytes(32))),
    "greeting_alone": greeting(),
    "greeting_padded": greeting() + bytes(92),
    "refusal": refusal(b"full"),
    "refusal_empty": refusal(b""),
    "refusal_longest": refusal(b"x" * 120),
    "refusal_endless": refusal(b"x" * 120, length=255),
    "refusal_other_version": refusal(b"another version", version=9),
    "refusal_control_characters": refusal(b"\x1b[2J\a\xff"),
    "ready": struct.pack("<IBBH", MAGIC, 1, READY, 0),
    "ready_and_more": struct.pack("<IBBHB", MAGIC, 1, READY, 0, 1),
    "http": b"GET / HTTP/1.1\r\n\r\n",
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, content in inputs.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(content)


main()
