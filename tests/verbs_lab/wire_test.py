#!/usr/bin/env python3
"""The lab itself, with other people's programs: traffic flows between two hosts, stops when the
wire is cut or a host vanishes, and flows again when the wire is whole. What our own programs are
told in such cases is only worth something if this holds."""

import sys
import time

from scenario import expect, run_scenarios

PORT = 7174
PERFTEST_PORT = 18515


def start_server(pair):
    server = pair.a.start(f"rping -s -v -a {pair.ADDRESS_A} -p {PORT}")
    pair.a.wait_for_listener(PORT)
    return server


def ping(pair, count, timeout_s=60):
    return pair.b.run(f"rping -c -v -a {pair.ADDRESS_A} -p {PORT} -C {count}", timeout_s)


def start_endless_reads(pair):
    """Always has an operation under way, so that it must notice when nobody answers. (rping waits
    without end if its turn to be told something never comes.) The number of retries is named
    because rxe takes the usual 7 as `for ever`."""
    command = "ib_read_bw -R -F -s 8 --run_infinitely -D 1 --retry_count=1"
    pair.a.start(command)
    pair.a.wait_for_listener(PERFTEST_PORT)
    client = pair.b.start(f"{command} {pair.ADDRESS_A}")
    client.wait_for("\n 8  ")  # the first second's figures
    return client


def expect_error(client, timeout_s):
    result = client.wait(timeout_s)
    expect(isinstance(result.code, int) and result.code != 0 and "status 12" in result.output,
           f"no error 'retries exceeded' but {result}")


def expect_traffic(pair):
    server = start_server(pair)
    result = ping(pair, 10)
    expect(result.code == 0 and "rdma-ping-9" in result.output, f"rping: {result}")
    server.wait(60)


def test_traffic(pair):
    expect_traffic(pair)


def test_read_latency(pair):
    server = pair.a.start("ib_read_lat -F -n 200")
    pair.a.wait_for_listener(PERFTEST_PORT)
    result = pair.b.run(f"ib_read_lat -F -n 200 {pair.ADDRESS_A}")
    expect(result.code == 0 and "t_typical" in result.output, f"ib_read_lat: {result}")
    server.wait(60)


def test_wire_cut(pair):
    """A connection breaks, a new one does not come about, and the cards notice nothing."""
    client = start_endless_reads(pair)
    pair.cut()
    expect_error(client, 60)
    for guest in (pair.a, pair.b):
        expect("LOWER_UP" in guest.run("ip link show eth0").output, "the card has noticed")
    start_server(pair)
    expect(ping(pair, 1, timeout_s=10).code != 0, "rping connects over a wire that is cut")
    pair.restore()
    pair.clean()
    expect_traffic(pair)


def test_short_interruption(pair):
    """Frames are lost for a moment; verbs send them again and nobody is told."""
    server = start_server(pair)
    client = pair.b.start(f"rping -c -v -a {pair.ADDRESS_A} -p {PORT} -C 400")
    client.wait_for("rdma-ping-20")
    pair.cut()
    time.sleep(0.5)
    before = client.output()
    pair.restore()
    result = client.wait(60)
    expect("rdma-ping-399" not in before, "it was over before the wire was cut")
    expect(result.code == 0 and "rdma-ping-399" in result.output, f"rping: {result}")
    server.wait(60)


def test_card_down(pair):
    """Here the guest takes its own card down, and the verbs device says so."""
    pair.a.run("ip link set eth0 down")
    state = pair.a.run("rdma link show rxe0/1").output
    expect("state DOWN" in state, f"rdma link: {state}")
    pair.a.run("ip link set eth0 up")
    pair.a.restore_addresses()
    expect_traffic(pair)


def test_server_killed(pair):
    """The kernel tells the other side at once."""
    server = start_server(pair)
    client = pair.b.start(f"rping -c -v -a {pair.ADDRESS_A} -p {PORT}")
    client.wait_for("rdma-ping-20")
    server.kill()
    result = client.wait(30)
    expect("DISCONNECT" in result.output, f"the server is dead, but rping says {result}")


def test_host_vanishes(pair):
    client = start_endless_reads(pair)
    pair.a.kill()
    expect_error(client, 60)


SCENARIOS = [
    ("traffic", test_traffic),
    ("read_latency", test_read_latency),
    ("wire_cut", test_wire_cut),
    ("short_interruption", test_short_interruption),
    ("card_down", test_card_down),
    ("server_killed", test_server_killed),
    ("host_vanishes", test_host_vanishes),
]

if __name__ == "__main__":
    sys.exit(run_scenarios(SCENARIOS))
