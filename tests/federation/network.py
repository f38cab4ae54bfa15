"""Hosts of their own on one machine: a network namespace for the hub and one for each site, with a link between them
that delays, loses and counts packets and can be cut. Kernels without `tc netem` have it too: packets pass through this
process, from one TUN device to the other. Needs root and /dev/net/tun."""

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Self

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
HUB = "hub"


def lacking() -> str:
    """Why there can be no such network here, or ""."""
    if not shutil.which("ip"):
        return "there is no `ip` (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    name = f"fr{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespace can be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


class Link:
    """Between a site and the hub. delay: seconds each way; loss: the share of packets that is lost, each way, drawn
    from a fixed seed; rate: bytes a second each way, None for any. up, down: bytes of TCP data from and to the site,
    without headers and whatever was sent again."""

    def __init__(self, site: int, hub: int, seed: int) -> None:
        self.delay, self.loss, self.rate, self.whole = 0.0, 0.0, None, True  # type: float, float, float | None, bool
        self.up = self.down = 0
        self._ends, self._draw, self._order = {site: hub, hub: site}, random.Random(seed), count()
        self._site, self._due, self._free = site, list[tuple[float, int, int, bytes]](), {site: 0.0, hub: 0.0}
        self._seen = dict[bytes, tuple[int, list[tuple[int, int]]]]()  # each way of a connection: start, what passed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self.whole = False

    def mend(self) -> None:
        self.whole = True

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)
        for end in self._ends:
            os.close(end)

    def _forward(self) -> None:
        while not self._stop.is_set():
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, _, to, packet = heapq.heappop(self._due)
                try:
                    os.write(to, packet)
                except OSError:
                    return  # the namespace is gone
            wait = min(0.2, max(0.0, self._due[0][0] - now)) if self._due else 0.2
            for end in select.select([*self._ends], [], [], wait)[0]:
                try:
                    packet = os.read(end, 65535)
                except OSError:
                    return
                self._take(end, packet)

    def _take(self, end: int, packet: bytes) -> None:
        data = self._new(packet)
        self.up, self.down = self.up + data * (end == self._site), self.down + data * (end != self._site)
        if not self.whole or self._draw.random() < self.loss:
            return
        at = time.monotonic()
        if self.rate:
            at = self._free[end] = max(at, self._free[end]) + len(packet) / self.rate
        heapq.heappush(self._due, (at + self.delay, next(self._order), self._ends[end], packet))

    def _new(self, packet: bytes) -> int:
        """The data in an IPv4 packet of TCP that no packet before it had; of anything else 0."""
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != 6:
            return 0
        head = (packet[0] & 15) * 4
        way, number = packet[12:20] + packet[head : head + 4], int.from_bytes(packet[head + 4 : head + 8], "big")
        if packet[head + 13] & 2:  # SYN: the connection begins
            self._seen[way] = number + 1, []
        data = int.from_bytes(packet[2:4], "big") - head - (packet[head + 12] >> 4) * 4
        if data <= 0 or way not in self._seen:
            return max(0, data)
        first, seen = self._seen[way]
        a = (number - first) % 2**32  # numbers begin anew after the last
        b, apart = a + data, list[tuple[int, int]]()
        new = data - sum(max(0, min(b, d) - max(a, c)) for c, d in seen)
        for c, d in seen:
            if d < a or c > b:
                apart.append((c, d))
            else:
                a, b = min(a, c), max(b, d)
        self._seen[way] = first, [*apart, (a, b)]
        return new


class Network:
    """A hub and sites, each `ip netns exec` away. In every namespace the hub is called `host`."""

    def __init__(self, sites: Sequence[str], host: str = "hub.test", seed: int = 0) -> None:
        self.sites, self.host, self._seed = tuple(sites), host, seed
        self._mark = f"fr{os.getpid()}"
        self.links: dict[str, Link] = {}

    def namespace(self, name: str) -> str:
        """Of a site, or of HUB."""
        return f"{self._mark}-{name}"

    def prefix(self, name: str) -> list[str]:
        """What is put before a command to run it there."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def __enter__(self) -> Self:
        for k, name in enumerate((HUB, *self.sites)):
            _ip("netns", "add", self.namespace(name))
            self._in(name, "link", "set", "lo", "up")
            hosts = Path("/etc/netns") / self.namespace(name)
            hosts.mkdir(parents=True, exist_ok=True)
            at = "127.0.0.1" if name == HUB else f"10.77.{k}.1"
            (hosts / "hosts").write_text(f"127.0.0.1 localhost\n{at} {self.host}\n")
        for k, name in enumerate(self.sites, 1):
            ends = [self._tun(HUB, f"t{k}", f"10.77.{k}.1/30"), self._tun(name, "t0", f"10.77.{k}.2/30")]
            self.links[name] = Link(ends[1], ends[0], self._seed + k)
        return self

    def __exit__(self, *exc: object) -> None:
        for name in (HUB, *self.sites):
            left = subprocess.run(["ip", "netns", "pids", self.namespace(name)], capture_output=True, text=True,
                                  check=False).stdout.split()  # fmt: skip
            for pid in left:
                subprocess.run(["kill", "-9", pid], check=False, capture_output=True)
        for link in self.links.values():
            link.close()
        for name in (HUB, *self.sites):
            subprocess.run(["ip", "netns", "del", self.namespace(name)], check=False)
            hosts = Path("/etc/netns") / self.namespace(name)
            (hosts / "hosts").unlink(missing_ok=True)
            hosts.rmdir()

    def _in(self, name: str, *words: str) -> None:
        _ip("-n", self.namespace(name), *words)

    def _tun(self, name: str, device: str, address: str) -> int:
        """The open end of a TUN device in that namespace."""
        found: list[int] = []

        def make() -> None:  # in a thread of its own: a thread may be in a namespace of its own
            with open(f"/run/netns/{self.namespace(name)}") as ns:
                if ctypes.CDLL(None, use_errno=True).setns(ns.fileno(), CLONE_NEWNET):
                    return
            end = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
            found.append(end)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if not found:
            raise RuntimeError(f"no TUN device could be made in the namespace of {name}")
        self._in(name, "addr", "add", address, "dev", device)
        self._in(name, "link", "set", device, "up", "mtu", "1400")
        return found[0]


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
