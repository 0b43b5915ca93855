#!/usr/bin/env python3
"""A word with the key-value server by gRPC: hello.py [HOST:PORT]

See kv_cache.py for what has to be installed, and how kv_cache_pb2.py is made.
"""

import sys

import grpc
from kv_cache import KvCache


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
    with KvCache(address) as cache:
        version = cache.put(b"greeting", "hello from Python".encode(), ttl_s=60)
        print(f"put greeting, version {version}")
        print(f"get greeting: {cache.get(b'greeting').decode()}")

        swapped, current = cache.cas(b"greeting", b"hello again", version)
        print(f"cas: {'done' if swapped else 'somebody was quicker'}, version {current}")
        swapped, current = cache.cas(b"greeting", b"too late", version)
        print(f"cas: {'done' if swapped else 'somebody was quicker'}, version {current}")

        for number in range(3):
            cache.put(f"list:{number}".encode(), b"x" * number)
        names = sorted(entry.key.decode() for entry in cache.scan(b"list:"))
        print(f"scan list: {' '.join(names)}")

        # A value that is longer than a message travels in chunks.
        chunk = b"x" * (1 << 20)
        cache.put_stream(b"film", 20 * len(chunk), (chunk for _ in range(20)), ttl_s=60)
        print(f"film: {sum(len(part) for part in cache.get_stream(b'film'))} bytes")
        cache.delete(b"film")

        print(f"delete: {cache.delete(b'greeting')}, then get: {cache.get(b'greeting')}")
        print(f"keys: {cache.stats('keys')['keys']}")


if __name__ == "__main__":
    try:
        main()
    except grpc.RpcError as error:
        sys.exit(f"hello.py: {error.details()}")
