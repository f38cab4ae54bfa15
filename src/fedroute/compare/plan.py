"""Which algorithms are compared with which seeds, as the file compare.yaml of the comparison's folder holds it."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedroute.durable import write
from fedroute.errors import InputError

if TYPE_CHECKING:
    from fedroute.config import Config

FILE = "compare.yaml"
HEADER = (
    "# What is compared here, written by fedroute. The same command again goes on with it; another config is refused.\n"
)
ALONE = "alone"  # the folder of each client trained by itself, which is also the algorithm of that name


@dataclass(frozen=True)
class Plan:
    """config: all but the algorithm, complete; its seed is the first. algorithms: label -> the algorithm with all its
    options. seeds: how many, from the config's own upward."""

    config: dict[str, Any]
    algorithms: dict[str, dict[str, Any]] = field(default_factory=dict)
    seeds: int = 1

    @property
    def all_seeds(self) -> list[int]:
        return list(range(self.config["seed"], self.config["seed"] + self.seeds))

    @property
    def folders(self) -> dict[str, str]:
        """label -> its folder, different for different labels."""
        return {label: folder_of(label) for label in self.algorithms}

    def merged(self, new: "Plan", where: Path) -> "Plan":
        """This plan and a new one, their algorithms and the larger number of seeds. Raises InputError where they differ
        in anything else."""
        changed = _differences(self.config, new.config)
        for label in self.algorithms.keys() & new.algorithms.keys():
            changed += _differences(self.algorithms[label], new.algorithms[label], label)
        if changed:
            raise InputError(
                f"{where}: holds a comparison with another config: {'; '.join(changed[:4])}"
                f"{'; ...' if len(changed) > 4 else ''}: put it back, or name another folder with --out"
            )
        return Plan(self.config, self.algorithms | new.algorithms, max(self.seeds, new.seeds))

    def write(self, folder: Path) -> None:
        import yaml

        text = yaml.safe_dump(vars(self), sort_keys=False, allow_unicode=True)
        write(folder / FILE, HEADER + text)


def read_plan(folder: Path) -> Plan | None:
    """The plan of the comparison in this folder, None where there is none. Raises InputError where it is not
    readable."""
    import yaml

    path = folder / FILE
    if not path.exists():
        return None
    try:
        plan = Plan(**yaml.safe_load(path.read_text(encoding="utf-8")))
        _ = plan.all_seeds, plan.folders
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, AttributeError) as e:
        raise InputError(f"{path}: is no plan that fedroute wrote ({e}): name another folder with --out") from None
    return plan


def make_plan(config: "Config", algorithms: str | Sequence[str | Mapping[str, Any]], seeds: int) -> Plan:
    """algorithms: a text such as "fedavg,fedprox:mu=0.1;private=[norm]", a comma between two, each a name, or a name
    with options as `key=value` (values as YAML) between semicolons after a colon; or a list of such texts and of specs
    such as {"name": "fedprox", "mu": 0.1}. A name without options that is that of the config's algorithm has the
    options of the config.

    Raises InputError for what is not understood, what no algorithm takes, and an algorithm that stands there twice."""
    from fedroute.algorithms import make

    items = _split(algorithms, ",") if isinstance(algorithms, str) else list(algorithms)
    found: dict[str, dict[str, Any]] = {}
    for item in items:
        spec = _spec(item) if isinstance(item, str) else dict(item)
        label = _label(spec)
        configured = spec == {"name": config.algorithm["name"]} and label != ALONE
        given = config.algorithm if configured else spec
        try:
            options = make(given).describe()
        except InputError as e:
            raise InputError(f"--algorithms {label}: {str(e).removeprefix('algorithm.')}") from None
        options = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
        for other, its in found.items():
            if its == options:
                raise InputError(f"--algorithms: {other} and {label} are one algorithm: leave one of them out")
        found[label] = options
    if not found:
        raise InputError("--algorithms: names none: give for example --algorithms fedavg,fedprox")
    rest = {k: v for k, v in config.resolved().items() if k != "algorithm"}
    return Plan(rest, found, seeds)


def folder_of(label: str) -> str:
    """A folder's name for a label: the label itself where that is a plain word, else its words and a short hash."""
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", label).strip("-.")
    return label if plain == label else f"{plain[:60]}-{hashlib.sha256(label.encode()).hexdigest()[:6]}"


def _split(text: str, at: str) -> list[str]:
    """The pieces between the separators that stand in no bracket."""
    pieces, depth = [""], 0
    for c in text:
        depth += (c in "[{(") - (c in "]})")
        if c == at and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += c
    return [p.strip() for p in pieces if p.strip()]


def _spec(text: str) -> dict[str, Any]:
    import yaml

    name, _, options = text.partition(":")
    spec: dict[str, Any] = {"name": name.strip()}
    for piece in _split(options, ";"):
        key, equals, value = piece.partition("=")
        if not equals or not key.strip():
            raise InputError(
                f"--algorithms {text}: {piece!r} is no option: write for example fedprox:mu=0.1;private=[norm]"
            )
        try:
            spec[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise InputError(f"--algorithms {text}: the value of {key} is not YAML: {value!r}") from None
    return spec


def _label(spec: Mapping[str, Any]) -> str:
    def words(v: Any) -> str:
        return f"[{','.join(map(words, v))}]" if isinstance(v, list | tuple) else "" if v is None else str(v)

    options = ";".join(f"{k}={words(v)}" for k, v in spec.items() if k != "name")
    return f"{spec.get('name', '')}{f':{options}' if options else ''}"


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    found: list[str] = []
    for k in dict.fromkeys([*old, *new]):
        a, b, key = old.get(k), new.get(k), f"{path}.{k}" if path else str(k)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _differences(a, b, key)
        elif a != b:
            found.append(f"{key} was {a!r} and is {b!r}")
    return found
