"""EDGE: load the settings from defaults < file < environment < the cluster's section < flags, with each value's origin.

    load(root, file, env, flags, cluster) -> Loaded(settings, origins)   reads the file
    join(root, document, env, flags, own) -> Loaded                      the same, pure

An unknown key is an error that names the nearest known one; a value outside its domain is an error that names the
setting, the value, the domain, the unit and the place. Text is converted by the setting's declared type (msgspec).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from cotenant.base.errors import SettingsError, UsageError
from cotenant.base.settings import clusters
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.catalogue import ENV_PREFIX, Setting, catalogue, mask_secrets, section_of, sections
from cotenant.base.settings.document import SIZE_CAP_BYTES, Tree, parse, plain
from cotenant.base.text import closest_name

_LIST_FIX = "`cotenant config show` lists every setting."
_LEDGER: Final = "actions.ledger"
_API: Final = ("kube.kubeconfig", "kube.context")  # settings that select the cluster to read and write
MANY_CLUSTERS: Final = 2
"""Least number of declared clusters at which one has to be named and each has its own ledger."""


class SettingSource(StrEnum):
    """The source of a setting's value; later members take precedence."""

    DEFAULT = "default"
    FILE = "file"
    ENV = "env"
    CLUSTER = "cluster"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """The source of a value and its position: "settings.yaml line 3", a variable's name; "" for a default."""

    source: SettingSource
    where: str = ""


_OF_ONE_CLUSTER: Final = (SettingSource.CLUSTER, SettingSource.FLAG)

RootT = TypeVar("RootT", bound=msgspec.Struct)
SectionsT = TypeVar("SectionsT", bound=SettingSections)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[RootT]):
    """The effective settings, with the origin of each value by the setting's path."""

    settings: RootT
    origins: Mapping[str, SettingOrigin]
    clusters: tuple[str, ...] = ()
    """Names of the clusters that the file declares."""
    cluster: str | None = None
    """The declared cluster whose own settings are used."""

    def of(self, root: type[SectionsT]) -> Loaded[SectionsT]:
        """Return the same result with its settings typed as this root; raise TypeError if they are of another type."""
        return Loaded(root.of(self.settings), self.origins, self.clusters, self.cluster)

    @property
    def context_by_flag(self) -> bool:
        """True if a flag names the kubeconfig or its context."""
        return any(self.origins[path].source is SettingSource.FLAG for path in _API)

    @property
    def reaches_cluster(self) -> bool:
        """True if the context is of this cluster: at most one is declared, or this one's settings or a flag set it."""
        own = any(self.origins[path].source in _OF_ONE_CLUSTER for path in _API)
        return len(self.clusters) < MANY_CLUSTERS or (self.cluster is not None and own)


@dataclass(frozen=True, slots=True)
class _Override:
    """A value as it was written, before conversion, with its origin."""

    value: Any
    origin: SettingOrigin


def load(
    root: SectionsT, file: Path | None, env: Mapping[str, str], flags: Mapping[str, Any], cluster: str | None = None
) -> Loaded[SectionsT]:
    """Return the effective settings; raise SettingsError, with place and fix, if a source is invalid.

    `root` has the defaults; `flags` maps "section.key" to text or values; `cluster` names the cluster whose section of
    the file applies, None the only declared one. Raise UsageError if a flag has another kubeconfig or context.
    """
    tree = parse(_read(file), str(file)) if file else Tree("", {}, {})
    others, declared = clusters.split_clusters(tree)
    name = next(iter(declared)) if cluster is None and len(declared) == 1 else cluster
    own = declared.get(name or "")
    if own is None or name is None:
        return replace(join(root, others, env, flags), clusters=tuple(declared))
    loaded = replace(join(root, others, env, flags, own), clusters=tuple(declared), cluster=name)
    # UsageError for flags that would ask and act on another cluster than the named one.
    section = own.children.get("kube")
    if isinstance(section, Tree):
        for path in _API:
            require_declared, flag = section.children.get(path.partition(".")[2]), flags.get(path)
            if require_declared is not None and flag is not None and str(flag) != require_declared:
                raise UsageError(
                    f"the settings give cluster {loaded.cluster} {path}={require_declared}, but an option gives {flag}",
                    fix="Leave the option out, or choose the option's cluster by --cluster NAME.",
                )
    if len(declared) < MANY_CLUSTERS or loaded.origins[_LEDGER].source in _OF_ONE_CLUSTER:
        return loaded
    origins = {**loaded.origins, _LEDGER: SettingOrigin(SettingSource.CLUSTER, f"cluster {name}")}
    return replace(loaded, settings=loaded.settings.with_ledger_of(name, env), origins=origins)


def default_config(env: Mapping[str, str]) -> Path | None:
    """Return the path in COTENANT_CONFIG, else the user's configuration file if it exists.

    The working directory is not searched: a file in a foreign checkout must not choose where a token is sent.
    """
    if configured := env.get("COTENANT_CONFIG"):
        return Path(configured)
    home = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    path = Path(home) / "cotenant" / "settings.yaml"
    return path if home and path.is_file() else None


def join(
    root: RootT, tree: Tree, env: Mapping[str, str], flags: Mapping[str, Any], own: Tree | None = None
) -> Loaded[RootT]:
    """Return `root` with the values of a parsed settings file, the environment, `own` and the flags; the last one wins.

    `own` is the file's section of the chosen cluster; the entries of its maps are added to the common ones.
    """
    known_keys = _known_keys(type(root))
    settings = known_keys.settings
    overrides = dict(_from_file(tree, "", known_keys))
    # Names without a double underscore are not settings (such as COTENANT_CONFIG).
    by_name = {setting.env: path for path, setting in settings.items()}
    for name, text in env.items():
        if name.startswith(ENV_PREFIX) and "__" in name:
            if name not in by_name:
                raise _unknown_setting_error(name, "the environment", by_name)
            overrides[by_name[name]] = _Override(text, SettingOrigin(SettingSource.ENV, name))
    for path, override in _from_file(own, "", known_keys) if own else ():
        of_all, value = overrides.get(path), override.value
        merged = (
            {**_existing_entries(of_all, settings[path]), **value} if of_all and isinstance(value, Mapping) else value
        )
        overrides[path] = _Override(merged, SettingOrigin(SettingSource.CLUSTER, override.origin.where))
    for path, value in flags.items():
        setting, key = _find(path, settings)
        flag_value = {**_existing_entries(overrides.get(setting.path), setting), key: value} if key else value
        overrides[setting.path] = _Override(flag_value, SettingOrigin(SettingSource.FLAG, f"flag {path}"))
    values = {path: _convert(settings[path], g) for path, g in overrides.items()}
    origins = {
        path: overrides[path].origin if path in overrides else SettingOrigin(SettingSource.DEFAULT) for path in settings
    }
    return Loaded(_build(root, "", values, overrides), origins)


def value_at(settings: msgspec.Struct, path: str) -> Any:
    """Return the value of one setting by its path."""
    value: Any = settings
    for key in path.split("."):
        value = getattr(value, next(f.name for f in msgspec.structs.fields(value) if f.encode_name == key))
    return value


def _read(file: Path) -> str:
    """Return the text of the settings file, at most SIZE_CAP_BYTES + 1 bytes, so that a larger file is recognised.

    Raise SettingsError if it is missing, unreadable or not UTF-8.
    """
    try:
        with file.open("rb") as stream:
            return stream.read(SIZE_CAP_BYTES + 1).decode("utf-8")
    except FileNotFoundError as error:
        raise SettingsError(f"settings file {file} does not exist", fix="Name a file with --config FILE.") from error
    except OSError as error:
        raise SettingsError(f"settings file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings file {file} is not UTF-8: byte {error.start}") from error


@dataclass(frozen=True, slots=True)
class _Known:
    """The keys that a settings file may have: settings and their sections."""

    settings: Mapping[str, Setting]
    sections: Set[str]


@cache
def _known_keys(root: type[msgspec.Struct]) -> _Known:
    settings = catalogue(root)
    groups = {path for path, _ in sections(root) if any(key.startswith(f"{path}.") for key in settings)}
    return _Known(settings, groups)


def _from_file(tree: Tree, prefix: str, known_keys: _Known) -> Iterator[tuple[str, _Override]]:
    """Yield the path and the value, with its line, of every setting in a file."""
    for key, value in tree.children.items():
        path, where = f"{prefix}{key}", f"{tree.file} line {tree.lines[key]}"
        if "." in key:
            raise SettingsError(
                f"{where}: the key {key!r} has a dot", fix="Nest the keys: `section:`, below it `key:`."
            )
        if path in known_keys.settings:
            yield path, _Override(plain(value), SettingOrigin(SettingSource.FILE, where))
        elif path not in known_keys.sections:
            raise _unknown_setting_error(path, where, [*known_keys.settings, *known_keys.sections])
        elif isinstance(value, Tree):
            yield from _from_file(value, f"{path}.", known_keys)
        elif value is not None:
            raise SettingsError(f"{where}: {path} is a group of settings, not a value", fix=_LIST_FIX)


def _find(path: str, settings: Mapping[str, Setting]) -> tuple[Setting, str]:
    """Return the setting that a flag names, and the key if it names one entry of a map ("section.headers.X-Scope")."""
    if path in settings:
        return settings[path], ""
    for setting in settings.values():
        if setting.container is dict and path.startswith(f"{setting.path}."):
            return setting, path.removeprefix(f"{setting.path}.")
    raise _unknown_setting_error(path, "a flag", settings)


def _unknown_setting_error(name: str, where: str, names: Iterable[str]) -> SettingsError:
    near = closest_name(name, names)
    hint = f"; did you mean {near!r}?" if near else ""
    return SettingsError(f"{where}: unknown setting {name!r}{hint}", fix=_LIST_FIX)


def _convert(setting: Setting, override: _Override) -> Any:
    value = _split(setting, override)
    try:
        converted = msgspec.convert(value, setting.type, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        why = f": {error}" if setting.container else ""  # which of its parts, and what is wrong with that
        raise _domain_error(setting, override, why) from error
    if not _is_finite(converted):
        raise _domain_error(setting, override)
    return converted


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _split(setting: Setting, override: _Override) -> Any:
    """Return the value as written; if the setting is a list or map, split a text: "a,b", or YAML "[a, b]", "{k: v}"."""
    value = override.value
    if not isinstance(value, str) or setting.container is None:
        return value
    if value.lstrip().startswith(("[", "{")):
        try:
            tree = parse(f"value: {value}", override.origin.where)
        except SettingsError as error:  # it says what is wrong with the text, and not which setting it is of
            raise _domain_error(setting, override) from error
        return plain(tree.children["value"]) if set(tree.children) == {"value"} else value
    return [part.strip() for part in value.split(",") if part.strip()] if setting.container is list else value


def _existing_entries(override: _Override | None, setting: Setting) -> dict[str, Any]:
    """Return the entries that a map has before a flag adds one."""
    value = setting.default if override is None else _split(setting, override)
    return dict(value) if isinstance(value, Mapping) else {}


def _domain_error(setting: Setting, override: _Override, why: str = "") -> SettingsError:
    shown = repr(mask_secrets(setting.path, override.value))
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    unit = f" ({setting.unit})" if setting.unit else ""
    return SettingsError(f"{override.origin.where}: {setting.path} is {shown}, it must be {setting.domain}{unit}{why}")


def _build(default: Any, prefix: str, values: Mapping[str, Any], overrides: Mapping[str, _Override]) -> Any:
    """Return the section with the given values in place of its defaults; an unchanged subsection is returned as is."""
    changed: dict[str, Any] = {}
    for info in msgspec.structs.fields(default):
        path = f"{prefix}{info.encode_name}"
        if path in values:
            changed[info.name] = values[path]
        elif section_of(info.type) and any(p.startswith(f"{path}.") for p in values):
            changed[info.name] = _build(getattr(default, info.name), f"{path}.", values, overrides)
    try:
        return msgspec.structs.replace(default, **changed)
    except (ValueError, TypeError) as error:  # a section's own check of values that do not fit together
        places = ", ".join(
            sorted({o.origin.where for path, o in overrides.items() if path.rpartition(".")[0] == prefix.rstrip(".")})
        )
        raise SettingsError(f"{places}: {prefix.rstrip('.')} settings do not fit together: {error}") from error
