"""A gallery of wrong configs: each message names the file, the key and the mend; exit 2, no traceback."""
# ruff: noqa: E501  # a table: a case a line

from pathlib import Path

import pytest

from tests.cli.conftest import CONFIG, Fedroute

GALLERY: dict[str, tuple[str, str, list[str]]] = {
    # what: (instead of this text, that one), what the message holds
    "unknown part": ("training:", "trainig:", ["trainig: unknown key; did you mean training?"]),
    "unknown key": ("local_steps", "local_step", ["training.local_step: unknown key; did you mean local_steps?"]),
    "a word for a number": ("rounds: 3", "rounds: ten", ["training.rounds: 'ten'", "a whole number, at least 1"]),
    "yes for a number": ("rounds: 3", "rounds: yes", ["training.rounds: True", "a whole number, at least 1"]),
    "a fraction for a count": ("rounds: 3", "rounds: 2.5", ["training.rounds: 2.5", "a whole number"]),
    "out of range": ("lr: 0.1", "lr: 0", ["training.lr: 0 does not fit; give a number, above 0"]),
    "not finite": ("lr: 0.1", "lr: .nan", ["training.lr: nan", "a number, above 0"]),
    "unknown choice": ("lr: 0.1", "optimizer: adm", ["training.optimizer: 'adm'", "sgd, adam, adamw", "did you mean adam?"]),
    "unknown schedule": ("lr: 0.1", "schedule: cosin", ["training.schedule", "cosine"]),
    "unknown key of a schedule": ("lr: 0.1", "schedule: {name: step, gama: 1}", ["training.schedule.gama", "gamma"]),
    "unknown server optimiser": ("lr: 0.1", "server_optimizer: adma", ["training.server_optimizer", "adam"]),
    "unknown key inside": ("lr: 0.1", "weighting: {cpa: 0.4}", ["training.weighting.cpa: unknown key; did you mean cap?"]),
    "range inside": ("lr: 0.1", "weighting: {cap: 4}", ["training.weighting.cap: 4", "above 0 and at most 1"]),
    "both of two": ("lr: 0.1", "local_epochs: 2", ["local_epochs and local_steps are both given; give one"]),
    "ignored option": ("lr: 0.1", "optimizer: adam, momentum: 0.9", ["momentum", "belong to optimizer: sgd"]),
    "unknown algorithm": ("fedprox", "fedporx", ["algorithm.name", "'fedporx'", "did you mean fedprox?"]),
    "unknown symbol": ("mu: 0.1", "mo: 0.1", ["algorithm.mo: unknown key; take one of mu"]),
    "symbol out of range": ("mu: 0.1", "mu: -1", ["algorithm.mu", "greater than or equal to 0"]),
    "nothing shared": ("mu: 0.1", "private: [head]", ["algorithm.private: keeps every weight of this model (head)", "alone"]),
    "no such role": ("mu: 0.1", "private: [norms]", ["algorithm.private", "'norms'", "head"]),
    "unknown model": ("linear", "liner", ["model.name", "'liner'", "did you mean linear?"]),
    "unknown option of a model": ("linear", "mlp, hiden: [3]", ["model.hiden: unknown key of mlp; did you mean hidden?"]),
    "model that does not fit": ("linear", "mlp, hidden: [0]", ["model.hidden", "greater than or equal to 1"]),
    "a number for a list": ("linear", "mlp, hidden: 12", ["model.hidden: Input should be a list such as [12], but it is 12"]),
    "a word for a list": ("mu: 0.1", "private: head", ["algorithm.private: Input should be a list such as [head]"]),
    "unknown source": ("source: bundled", "source: bundle", ["federation.source", "'bundle'", "bundled"]),
    "unknown key of a partition": ("clients: 3", "client: 3", ["federation.partition.client", "clients"]),
    "unknown partition": ("method: iid", "method: idd", ["federation.partition.method", "'idd'", "iid"]),
    "more clients than rows": ("clients: 3", "clients: 9999", ["9999"]),
    "unknown engine": ("engine: sequential", "engine: stack", ["engine.name: 'stack'", "did you mean stacked?"]),
    "unknown key of an engine": ("engine: sequential", "engine: {threads: 2}", ["engine.threads: unknown key", "workers"]),
    "timeout where nothing ends": ("engine: sequential", "engine: {timeout: 9}", ["engine: timeout belongs to name: workers; auto"]),
    "ignored weighting": (
        "{name: fedprox, mu: 0.1}\ntraining: {",
        "afl\ntraining: {weighting: {by: uniform}, ",
        ["training.weighting: afl settles itself what each client counts", "leave weighting out"],
    ),
    "no ray yet": ("engine: sequential", "engine: ray", ["engine.name: there is no ray engine in this version"]),
    "unknown key of a router": ("engine: sequential", "router: {knid: lda}", ["router.knid: unknown key; did you mean kind?"]),
    "unknown router": ("engine: sequential", "router: ldaa", ["router.kind: 'ldaa'", "did you mean lda?"]),
    "unknown rule": ("engine: sequential", "router: {rule: consensu}", ["router.rule: 'consensu'", "did you mean consensus?"]),
    "a baseline for a rule": ("engine: sequential", "router: {rule: oracle}", ["router.rule: 'oracle'", "consensus"]),
    "unknown input": ("engine: sequential", "router: {input: [styl]}", ["router.input: no input 'styl'; did you mean 'style'?"]),
    "no input": ("engine: sequential", "router: {input: []}", ["router.input: [] does not fit; give auto, or a list"]),
    "an input twice": ("engine: sequential", "router: {input: [deep, deep]}", ["router.input", "twice; leave one out"]),
    "abstaining always": ("engine: sequential", "router: {abstain: 1}", ["router.abstain: 1 does not fit; give a share above 0 and below 1"]),
    "features by word": ("engine: sequential", "router: {random_features: many}", ["router.random_features: 'many'", "a whole number from 0"]),
    "shares that do not sum to 1": ("engine: sequential", "router: {arrival: {a: 0.5}}", ["router.arrival", "which sum to 1"]),
    "capacity above all": ("engine: sequential", "router: {capacity: {a: 2}}", ["router.capacity", "at most 1"]),
    "a branch without feddrm": ("engine: sequential", "router: drm", ["router: the branch is trained by algorithm feddrm", "take"]),
    "a branch that reads": ("engine: sequential", "router: {kind: drm, input: deep}", ["reads feddrm's branch", "leave `input` out"]),
    "no privacy yet": ("engine: sequential", "privacy: {epsilon: 1}", ["privacy: ", "none is applied", "take"]),
    "part missing": ("algorithm: {name: fedprox, mu: 0.1}\n", "", ["algorithm: missing; write for example `algorithm:"]),
    "part of a wrong kind": ("{rounds: 3, local_steps: 2, lr: 0.1}", "3", ["training: 3 does not fit", "the keys rounds"]),
    "given twice": ("engine: sequential", "seed: 1\nseed: 2", [", line 6: the key 'seed' was given on line 5 already"]),
    "bracket left open": ("lr: 0.1}", "lr: 0.1", [", line 5: "]),
    "variable without quotes": ("name: digits,", "name: ${DIGITS},", [", line 1: ", "in quotes"]),
    "tab": ("engine: sequential", "engine:\n\tname: auto", [", line 6: ", "indent with spaces"]),
    "negative seed": ("engine: sequential", "seed: -1", ["seed: -1 does not fit; give a whole number, at least 0"]),
    "file not there": ("source: bundled, name: digits,", "source: npz, path: no.npz,", ["no.npz"]),
    "variable not set": (
        "source: bundled, name: digits,",
        "source: csv, label: y, path: '${NO_SUCH_FOLDER}/a.csv',",
        ["federation.path", "NO_SUCH_FOLDER is not set", "export NO_SUCH_FOLDER="],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", GALLERY)
def test_the_message_names_file_key_and_mend(tmp_path: Path, fedroute: Fedroute, what: str) -> None:
    old, new, words = GALLERY[what]
    assert old in CONFIG
    file, out = tmp_path / "wrong.yaml", tmp_path / "run"
    file.write_text(CONFIG.replace(old, new))
    said = fedroute("run", file, "--out", out)
    assert said.code == 2, said
    assert said.out == ""
    for word in words:
        assert word in said.err
    assert "Traceback" not in said.err
    assert all(line.startswith("fedroute: ") for line in said.err.splitlines())
    assert not (out / "metrics.jsonl").exists()
    mended = fedroute("run", _right(tmp_path), "--out", out, "--set", "training.rounds=1", "--set", "training.alone=no")
    assert mended.code == 0, mended.err  # what the wrong config left there is in nobody's way


def _right(tmp_path: Path) -> Path:
    file = tmp_path / "right.yaml"
    file.write_text(CONFIG)
    return file


@pytest.mark.parametrize("what", [k for k in GALLERY if k not in ("file not there", "more clients than rows")])
def test_what_the_config_alone_shows_names_the_file(tmp_path: Path, fedroute: Fedroute, what: str) -> None:
    old, new, _ = GALLERY[what]
    file = tmp_path / "wrong.yaml"
    file.write_text(CONFIG.replace(old, new))
    assert str(file) in fedroute("manifest", file).err


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("lr=1", "there is no part lr; did you mean training.lr?"),
        ("trainning.lr=1", "there is no part trainning; did you mean training?"),
        ("training.lr", "give a key and a value, such as --set training.lr=0.1"),
        ("training.lr=[1", "the value is not YAML"),
        ("training.roundz=1", "--set training.roundz: unknown key; did you mean rounds?"),
        ("training.rounds=many", "--set training.rounds: 'many' does not fit; give a whole number"),
        ("algorithm.mu=a", "algorithm.mu"),
        ("router.rule=vote", "--set router.rule: 'vote' does not fit; give one of auto, density"),
        ("router=lda=2", "router.kind: 'lda=2'"),
        ("privacy.epsilon=1", "there is no privacy transform in this version"),
    ],
)
def test_a_wrong_override_is_named(config: Path, fedroute: Fedroute, override: str, words: str) -> None:
    said = fedroute("manifest", config, "--set", override)
    assert said.code == 2
    assert words in said.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "not there: name a config file"),
        (b"", "no config: it has the parts federation, model"),
        (b"- a\n- b\n", "no config: it has the parts"),
        (b"\xff\xfe\x00\x01", "not a text file in UTF-8"),
        (b"a: &x [*x]\n", "a: unknown key"),
        (b"!!python/object/apply:os.system ['true']", "could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, fedroute: Fedroute, content: bytes | None, words: str) -> None:
    file = tmp_path / "c.yaml"
    if content is not None:
        file.write_bytes(content)
    said = fedroute("run", file, "--out", tmp_path / "run")
    assert (said.code, words in said.err) == (2, True), said
    assert not (tmp_path / "run").exists()


def test_every_thing_that_is_wrong_is_told_at_once(tmp_path: Path, fedroute: Fedroute) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.replace("rounds: 3", "rounds: 0").replace("lr: 0.1", "learning_rate: 1"))
    err = fedroute("manifest", file).err.splitlines()
    assert len(err) == 2
    assert "training.rounds: 0" in err[0]
    assert "training.learning_rate: unknown key" in err[1]
