"""The network that other tests stand on does what it says."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.federation.network import HUB, Network, lacking

pytestmark = pytest.mark.skipif(bool(why := lacking()), reason=why)
SERVER = """
import socket
s = socket.create_server(("0.0.0.0", 7000)); print("up", flush=True)
while True:
    c, _ = s.accept()
    got = b""
    while (part := c.recv(65536)): got += part
    c.sendall(str(len(got)).encode()); c.close()
"""
CLIENT = """
import socket, sys, time
t = time.monotonic()
try:
    c = socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[3]))
    c.sendall(b"x" * int(sys.argv[2])); c.shutdown(socket.SHUT_WR); print(c.recv(100).decode(), time.monotonic() - t)
except OSError as e:
    print("gone", type(e).__name__)
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(["a", "b"]) as network:
        server = subprocess.Popen([*network.prefix(HUB), sys.executable, "-c", SERVER], stdout=subprocess.PIPE)
        assert server.stdout
        assert server.stdout.readline() == b"up\n"
        yield network
        server.kill()
        server.wait()


def send(network: Network, site: str, size: int, patience: float = 20.0) -> list[str]:
    command = [*network.prefix(site), sys.executable, "-c", CLIENT, network.host, str(size), str(patience)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_what_is_sent_arrives_and_is_counted(network: Network) -> None:
    before = network.links["a"].up, network.links["b"].up
    assert send(network, "a", 300_000)[0] == "300000"
    assert network.links["a"].up - before[0] == 300_000
    assert network.links["b"].up == before[1]


def test_delay_is_that_of_both_ways(network: Network) -> None:
    network.links["a"].delay = 0.1
    try:
        said = send(network, "a", 10)
    finally:
        network.links["a"].delay = 0.0
    assert said[0] == "10"
    assert float(said[1]) >= 0.39  # the handshake and the answer cross twice each


def test_what_is_lost_is_sent_again(network: Network) -> None:
    network.links["b"].loss = 0.2
    try:
        assert send(network, "b", 30_000)[0] == "30000"
    finally:
        network.links["b"].loss = 0.0


def test_a_cut_stops_everything_until_it_is_mended(network: Network) -> None:
    network.links["a"].cut()
    try:
        assert re.match("gone", send(network, "a", 10, patience=0.5)[0])
        assert send(network, "b", 10)[0] == "10"
    finally:
        network.links["a"].mend()
    assert send(network, "a", 10)[0] == "10"
