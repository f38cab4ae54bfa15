"""Who has a port: tried before something is started on it, and looked at while it runs."""

import errno
import ipaddress
import socket
from pathlib import Path

LISTENING = "0A"  # as /proc/net/tcp writes it


def bound_at(host: str) -> str:
    """The address on which a hub of this name listens, as NVFLARE takes it: loopback names there alone, others
    everywhere."""
    if host.rstrip(".").lower() == "localhost":
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if not address.is_loopback:
        return ""
    return host if isinstance(address, ipaddress.IPv4Address) else "127.0.0.1"


def fault_at(address: str, port: int) -> str:
    """Why nobody can begin to listen there now; "" where one can."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that closed just now is no obstacle
        try:
            tried.bind((address, port))
            tried.listen(1)
        except OSError as e:
            if e.errno != errno.EADDRINUSE:
                return f"port {port} cannot be had ({(e.strerror or str(e)).lower()})"
            return taken(port)
    return ""


def taken(port: int) -> str:
    return f"port {port} is taken (by another program)"


def one_port(port: int, gateway: str | None) -> str:
    """That a hub's gateway (HOST:PORT) would be where its sites dial; "" where it would not."""
    if gateway and gateway.rpartition(":")[2] == str(port):
        return f"port {port} is the one that the sites dial: give the gateway another"
    return ""


def port_words(fault: str, settings: Path) -> str:
    """The fault, and the mend: settings is the file of the hub's."""
    return (
        f"{fault}: stop that, or give this hub another `port` in {settings}; its sites put the same into their own "
        "settings.json"
    )


def held(port: int) -> bool:
    """Whether this process itself listens on the port; True too where the system has no /proc to tell."""
    try:
        lines = [line.split() for name in ("tcp", "tcp6") for line in _lines(Path("/proc/self/net") / name)]
        mine = {file.readlink().name for file in Path("/proc/self/fd").iterdir() if file.is_symlink()}
    except OSError:  # no /proc, or a file that was closed meanwhile
        return True
    return any(w[3] == LISTENING and int(w[1].rpartition(":")[2], 16) == port and f"socket:[{w[9]}]" in mine
               for w in lines)  # fmt: skip


def _lines(table: Path) -> list[str]:
    return table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else []
