"""Replays a Delta log by hand: JSON commits and checkpoints, and nothing but the protocol's rules.

Gives the state that a reader must see, and collects what is wrong with the log itself. The data files
are no concern of it. Deliberately uses no Delta library: it is the second opinion.
"""

import dataclasses
import json
import re
import urllib.parse

import pyarrow.parquet as pq

COMMIT = re.compile(r"^(\d{20})\.json$")
CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-fA-F-]{36}))?\.(parquet|json)$")


class LogError(Exception):
    """A log that cannot be replayed."""


@dataclasses.dataclass
class State:
    """A table's state at one version."""

    version: int = -1
    protocol: dict = None
    metadata: dict = None
    files: dict = dataclasses.field(default_factory=dict)
    tombstones: dict = dataclasses.field(default_factory=dict)
    transactions: dict = dataclasses.field(default_factory=dict)
    domains: dict = dataclasses.field(default_factory=dict)

    def copy(self):
        maps = ("files", "tombstones", "transactions", "domains")
        return dataclasses.replace(self, **{name: dict(getattr(self, name)) for name in maps})


class Log:
    """The log below `store`, which has `list(folder)`, `read(path)` and `open(path)`.

    What is wrong with it is added to `problems`.
    """

    def __init__(self, store, problems):
        self.store, self.problems = store, problems
        names = store.list("_delta_log")
        self.commits = sorted(int(m[1]) for m in map(COMMIT.match, names) if m)
        self.checkpoints = self._complete_checkpoints(names)
        if not self.commits and not self.checkpoints:
            raise LogError("there is no Delta log")

    def replay(self):
        """The newest state. Compares each checkpoint on the way with what the commits before it gave."""
        self._check_versions()
        first = self.commits[0] if self.commits else max(self.checkpoints) + 1
        state = State()
        if first > 0:
            starts = [version for version in self.checkpoints if version >= first - 1]
            if not starts:
                raise LogError(f"the log begins at version {first} and no checkpoint covers what was before")
            state = self._checkpoint_state(min(starts))
        for version in self.commits:
            if version <= state.version:
                continue
            self._apply_commit(state, version, whole=first == 0)
            if version in self.checkpoints:
                self._compare(state, self._checkpoint_state(version))
        if state.protocol is None or state.metadata is None:
            raise LogError("the log has no protocol or no metaData action")
        self._check_last_checkpoint()
        return state

    # -- versions and checkpoints

    def _check_versions(self):
        for before, after in zip(self.commits, self.commits[1:]):
            if after != before + 1:
                self.problems.append(f"versions are not contiguous: {after} follows {before}")

    def _complete_checkpoints(self, names):
        """Version -> the files of one complete checkpoint."""
        found, parts = {}, {}
        for name in sorted(names):
            match = CHECKPOINT.match(name)
            if not match:
                continue
            version = int(match[1])
            if match[2]:
                parts.setdefault((version, int(match[3])), []).append(name)
            else:
                found.setdefault(version, [name])
        for (version, count), files in parts.items():
            if len(files) == count:
                found.setdefault(version, files)
            else:
                self.problems.append(f"checkpoint {version} has {len(files)} of {count} parts")
        return found

    def _checkpoint_state(self, version):
        state = State(version=version)
        for action in self._checkpoint_actions(version):
            _apply(state, action)
        if state.protocol is None or state.metadata is None:
            raise LogError(f"checkpoint {version} has no protocol or no metaData action")
        return state

    def _checkpoint_actions(self, version):
        sidecars = []
        for name in self.checkpoints[version]:
            for action in self._file_actions(f"_delta_log/{name}"):
                if "sidecar" in action:
                    sidecars.append(urllib.parse.unquote(action["sidecar"]["path"]))
                else:
                    yield action
        for path in sidecars:
            yield from self._file_actions(path if "/" in path else f"_delta_log/_sidecars/{path}")

    def _file_actions(self, path):
        if path.endswith(".json"):
            yield from self._json_actions(path)
            return
        for batch in pq.ParquetFile(self.store.open(path)).iter_batches():
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                yield {kind: _without_nulls(value) for kind, value in row.items() if value is not None}

    def _json_actions(self, path):
        for number, line in enumerate(self.store.read(path).decode("utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                action = json.loads(line)
            except ValueError as error:
                raise LogError(f"{path}:{number} is no JSON: {error}") from error
            if len(action) != 1:
                self.problems.append(f"{path}:{number} has {len(action)} actions in one line")
            yield action

    def _check_last_checkpoint(self):
        try:
            hint = json.loads(self.store.read("_delta_log/_last_checkpoint"))
        except FileNotFoundError:
            return
        if hint["version"] not in self.checkpoints:
            self.problems.append(f"_last_checkpoint names version {hint['version']}, which has no checkpoint")

    # -- commits

    def _apply_commit(self, state, version, whole):
        actions = list(self._json_actions(f"_delta_log/{version:020}.json"))
        say = lambda text: self.problems.append(f"version {version}: {text}")
        seen = {}
        for action in actions:
            for kind in ("add", "remove"):
                if kind in action:
                    key = file_key(action[kind])
                    if key in seen:
                        say(f"{key[0]} has two actions, {seen[key]} and {kind}")
                    seen[key] = kind
                    if kind == "remove" and whole and key not in state.files and key not in state.tombstones:
                        say(f"removes {key[0]}, which was never added")
        for kind in ("protocol", "metaData"):
            if sum(kind in action for action in actions) > 1:
                say(f"has more than one {kind} action")
        if version == 0 and not all(any(kind in a for a in actions) for kind in ("protocol", "metaData")):
            say("lacks the protocol or the metaData action")
        applications = [action["txn"]["appId"] for action in actions if "txn" in action]
        if len(set(applications)) != len(applications):
            say("has two txn actions of one application")
        # Removes first: a file may get another deletion vector in one commit, and then both name its path.
        for action in sorted(actions, key=lambda a: "remove" not in a):
            _apply(state, action)
        state.version = version

    def _compare(self, state, checkpoint):
        say = lambda text: self.problems.append(f"checkpoint {state.version} disagrees with the commits: {text}")
        for name in ("protocol", "metadata", "transactions", "domains"):
            ours, theirs = _normal(getattr(state, name)), _normal(getattr(checkpoint, name))
            if ours != theirs:
                say(f"{name} is {theirs}, the commits give {ours}")
        for key in sorted(state.files.keys() - checkpoint.files.keys(), key=str):
            say(f"{key[0]} is missing")
        for key in sorted(checkpoint.files.keys() - state.files.keys(), key=str):
            say(f"{key[0]} is not active")
        for key in state.files.keys() & checkpoint.files.keys():
            ours, theirs = state.files[key], checkpoint.files[key]
            for field in ("partitionValues", "size", "modificationTime", "deletionVector"):
                if _normal(ours.get(field)) != _normal(theirs.get(field)):
                    say(f"{field} of {key[0]} is {theirs.get(field)}, not {ours.get(field)}")
            # A checkpoint may hold the statistics as a struct instead.
            if "stats" in theirs and stats_of(ours) != stats_of(theirs):
                say(f"the statistics of {key[0]} differ")
        for key in sorted(checkpoint.tombstones.keys() - state.tombstones.keys(), key=str):
            say(f"{key[0]} was never removed")


def file_key(action):
    """What tells a logical file from another: its path and its deletion vector."""
    vector = action.get("deletionVector")
    if not vector:
        return (action["path"], None)
    return (action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}")


def stats_of(add):
    """The statistics of an add action as a dictionary, with numbers kept as they are written."""
    text = add.get("stats")
    return json.loads(text, parse_float=lambda number: Number(number)) if text else {}


class Number(str):
    """A number with a fraction, as it was written: its exact digits count for decimals."""


def _apply(state, action):
    if "add" in action:
        key = file_key(action["add"])
        state.files[key] = action["add"]
        state.tombstones.pop(key, None)
    elif "remove" in action:
        key = file_key(action["remove"])
        state.files.pop(key, None)
        state.tombstones[key] = action["remove"]
    elif "protocol" in action:
        state.protocol = action["protocol"]
    elif "metaData" in action:
        state.metadata = action["metaData"]
    elif "txn" in action:
        state.transactions[action["txn"]["appId"]] = action["txn"]["version"]
    elif "domainMetadata" in action:
        domain = action["domainMetadata"]
        if domain.get("removed"):
            state.domains.pop(domain["domain"], None)
        else:
            state.domains[domain["domain"]] = domain.get("configuration")


def _without_nulls(value):
    """Struct fields that are null are as good as absent; null partition values are not."""
    if not isinstance(value, dict):
        return value
    keep = lambda key, inner: inner if key in ("partitionValues", "configuration", "tags") else _without_nulls(inner)
    return {key: keep(key, inner) for key, inner in value.items() if inner is not None}


def _normal(value):
    """Empty maps and lists, nulls and absent fields are one and the same; sets of features have no order."""
    if isinstance(value, dict):
        inner = {key: _normal(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return sorted(map(_normal, value), key=str) if all(isinstance(v, str) for v in value) else value
    return value
