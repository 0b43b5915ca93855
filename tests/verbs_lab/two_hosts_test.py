#!/usr/bin/env python3
"""Our own programs on two hosts, by both ways to meet: operations flow; when the wire is cut, the
server is killed or its host vanishes they fail in bounded time, on both sides; and a new connection
works once the wire is back. lab_peer.c is what runs in the hosts."""

import re
import sys

from scenario import expect, run_scenarios

PEER = "build/tests/lab_peer"
PERF = "build/bin/fabric-perf"
PORT = 7471
DEAD_AFTER_MS = 2000
# Half of dead_after for the adapter to give up in the best case; hosts are emulated, and slow.
LOST_WITHIN_MS = 4 * DEAD_AFTER_MS
WAYS = ("verbs", "verbs:socket")


def start_server(pair, device, address=None):
    server = pair.a.start(f"{PEER} serve {device} {address or pair.ADDRESS_A}:{PORT}")
    server.wait_for("listening at")
    return server


def start_caller(pair, device, manner, address=None):
    client = pair.b.start(f"{PEER} call {device} {address or pair.ADDRESS_A}:{PORT} {manner} "
                          f"{DEAD_AFTER_MS}")
    client.wait_for("connected")
    return client


def expect_lost(client, timeout_s=60):
    """The caller learns of the end, within its time, and can close everything."""
    result = client.wait(timeout_s)
    lost = re.search(r"lost after (\d+) ms", result.output)
    expect(lost and result.code == 0 and "closed" in result.output, f"the caller: {result}")
    expect(int(lost[1]) <= LOST_WITHIN_MS, f"it took {lost[1]} ms to notice")


def check_manners(pair, break_it, mend):
    for device in WAYS:
        for manner in ("reads", "sends", "idle"):
            server = start_server(pair, device)
            client = start_caller(pair, device, manner)
            break_it()
            expect_lost(client)
            server.wait_for("lost", 60)  # the server notices as well, though it only waits
            mend()
            client = start_caller(pair, device, manner)  # the server has gone on
            client.kill()
            server.kill()


def run_perf(pair, device, *arguments):
    words = " ".join(arguments)
    return pair.b.run(f"{PERF} run {pair.ADDRESS_A}:{PORT} --device {device} --seconds 1 {words}",
                      60)


def test_traffic(pair):
    for device in WAYS:
        server = pair.a.start(f"{PERF} serve {pair.ADDRESS_A}:{PORT} --device {device}")
        server.wait_for(f":{PORT}")
        for words in ("--op read --size 8", "--op write --size 65536 --depth 4",
                      "--op send --size 64", "--op fadd"):
            result = run_perf(pair, device, words)
            expect(result.code == 0, f"{device} {words}: {result}")
        server.kill()


def test_ipv6(pair):
    for device in WAYS:
        server = start_server(pair, device, "[fd77::1]")
        client = start_caller(pair, device, "reads", "[fd77::1]")
        server.kill()
        expect_lost(client)


def test_wire_cut(pair):
    check_manners(pair, pair.cut, pair.restore)


def test_server_killed(pair):
    """Its kernel tells the other side at once, also one that is asleep."""
    for device in WAYS:
        for manner in ("reads", "idle"):
            server = start_server(pair, device)
            client = start_caller(pair, device, manner)
            server.kill()
            expect_lost(client, 20)


def test_card_down(pair):
    """The adapter says that its port is down; the connection ends, and after it is up again a new
    one works. (By RDMA CM soft-RoCE itself has to be made anew: rping cannot connect either, see
    docs/rationale.md.)"""
    for device in WAYS:
        server = start_server(pair, device)
        client = start_caller(pair, device, "idle")
        pair.b.run("ip link set eth0 down")
        expect_lost(client)
        pair.b.run("ip link set eth0 up")
        pair.b.restore_addresses()
        if device == "verbs":
            pair.b.run("rdma link delete rxe0; rdma link add rxe0 type rxe netdev eth0")
        client = start_caller(pair, device, "reads")
        client.kill()
        server.kill()


def test_host_vanishes(pair):
    start_server(pair, "verbs")
    client = start_caller(pair, "verbs", "idle")
    pair.a.kill()
    expect_lost(client)


SCENARIOS = [
    ("traffic", test_traffic),
    ("ipv6", test_ipv6),
    ("wire_cut", test_wire_cut),
    ("server_killed", test_server_killed),
    ("card_down", test_card_down),
    ("host_vanishes", test_host_vanishes),
]

if __name__ == "__main__":
    sys.exit(run_scenarios(SCENARIOS, programs=[PEER, PERF]))
