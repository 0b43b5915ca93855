#!/usr/bin/env python3
"""Uses the shared libraries from Python, by ctypes.

usage: library_ctypes_test.py BIN_DIRECTORY CLIENT_LIBRARY SERVER_LIBRARY [NAME...]
"""

import ctypes
import sys
import threading

from tool_harness import Server, main

CLIENT_LIBRARY, SERVER_LIBRARY = sys.argv[2:4]
KV_NOT_FOUND = -1
CONN_MODE_AUTO, CONN_MODE_SHM, CONN_MODE_TCP = 2, 3, 4


def load_client():
    library = ctypes.CDLL(CLIENT_LIBRARY)
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    library.kv_client_create.restype = pointer
    library.kv_client_error.restype = text
    library.kv_client_transport.restype = text
    for name, arguments in {
            "create": [ctypes.c_int], "connect": [pointer, text, ctypes.c_int],
            "error": [pointer], "transport": [pointer], "destroy": [pointer],
            "put": [pointer, text, size, text, size],
            "get": [pointer, text, size, pointer, ctypes.POINTER(size)]}.items():
        getattr(library, f"kv_client_{name}").argtypes = arguments
    return library


class Client:
    def __init__(self, library, mode, port):
        self.library = library
        self.handle = library.kv_client_create(mode)
        status = library.kv_client_connect(self.handle, b"127.0.0.1", int(port))
        assert status == 0, library.kv_client_error(self.handle)

    def put(self, key, value):
        status = self.library.kv_client_put(self.handle, key, len(key), value, len(value))
        assert status == 0, self.library.kv_client_error(self.handle)

    def get(self, key, room=1 << 20):
        buffer, length = ctypes.create_string_buffer(room), ctypes.c_size_t(room)
        status = self.library.kv_client_get(self.handle, key, len(key), buffer,
                                            ctypes.byref(length))
        return status, buffer.raw[:length.value]

    def close(self):
        self.library.kv_client_destroy(self.handle)


def work(library, mode, port, number, failures):
    try:
        client = Client(library, mode, port)
        for i in range(100):
            key, value = b"key %d" % number, b"%d of %d" % (i, number) * (1 + i * 20)
            client.put(key, value)
            assert client.get(key) == (0, value)
        assert client.get(b"missing")[0] == KV_NOT_FOUND
        client.close()
    except BaseException as failure:
        failures.append(failure)
        raise


def test_put_and_get_by_threads():
    library = load_client()
    with Server() as server:
        for mode in (CONN_MODE_SHM, CONN_MODE_TCP):
            failures = []
            threads = [threading.Thread(target=work,
                                        args=(library, mode, server.port, i, failures))
                       for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures, failures


def test_five_calls():
    library = load_client()
    with Server() as server:
        handle, value = ctypes.c_void_p(), ctypes.c_char_p()
        url = ctypes.create_string_buffer(b"tcp://127.0.0.1:" + server.port.encode())
        assert library.kv_open(url, ctypes.byref(handle)) == 0
        assert library.kv_set(handle, b"fish", b"remora") == 0
        assert library.kv_get(handle, b"fish", ctypes.byref(value)) == 0
        assert value.value == b"remora"
        library.kv_release(value)
        assert library.kv_close(handle) == 0


def test_server_inside():
    """Both libraries in one process: each has all that it needs."""
    server = ctypes.CDLL(SERVER_LIBRARY)
    server.kv_server_error.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    # A kv_server_options_t of zeros, but for `listen`, `address` and `port`, which come first.
    options = (ctypes.c_void_p * 128)()
    listen = ctypes.create_string_buffer(b"tcp://127.0.0.1")
    options[0] = ctypes.addressof(listen)
    ctypes.c_int.from_buffer(options, 2 * ctypes.sizeof(ctypes.c_void_p)).value = -1
    assert server.kv_server_create(options, ctypes.byref(handle)) == 0, server.kv_server_error()
    assert server.kv_server_start(handle) == 0, server.kv_server_error()
    client = Client(load_client(), CONN_MODE_TCP, server.kv_server_port(handle))
    client.put(b"fish", b"remora")
    assert client.get(b"fish") == (0, b"remora")
    client.close()
    server.kv_server_destroy(handle)


if __name__ == "__main__":
    sys.exit(main(globals(), sys.argv[4:]))
