"""The file of `--command-config`: settings of Kafka's Java clients, in the names of librdkafka.

Kafka's tools take such a file with the settings of a secured cluster (`security.protocol`, `sasl.*`, `ssl.*`). Most
names are the same in both. Those that are not are translated; a setting that librdkafka does not know is an error.
Values of passwords appear in no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark_log_storage.errors import InvalidOption

OWN = (
    "bootstrap.servers",
    "group.id",
    "transactional.id",
    "enable.auto.commit",
    "isolation.level",
    "auto.offset.reset",
)
"""Settings that the commands choose themselves."""
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_STORES = {"ssl.truststore", "ssl.keystore"}
_JAAS_MODULES = ("PlainLoginModule", "ScramLoginModule")
_SECRET = re.compile(r"password|secret|jaas|\.key|\.pem|token")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
"""Java's blanks between names and values. Other characters that Python counts as blanks are part of a value."""
_PAIR = re.compile(r"((?:\\.|[^=: \t\f\\])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def read(path: Path) -> dict[str, str]:
    """Return the settings in a file of Java properties, by librdkafka's names.

    Raises `InvalidOption` for a setting that only Java can use, and `OSError`.
    """
    return translated(parse(path.read_text(encoding="utf-8-sig", errors="replace")))


def parse(text: str) -> dict[str, str]:
    """Return the pairs in a text of Java properties: `name=value`, `name: value`, comments, continued lines."""
    found = {}
    lines = iter(_LINE_END.split(text))
    for first in lines:
        line = first.lstrip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1] + next(lines, "").lstrip(_BLANKS)
        name, value = _PAIR.fullmatch(line).groups()  # type: ignore[union-attr] # any text matches
        found[_unescaped(name)] = _unescaped(value).strip(_BLANKS + "\r\n")
    return found


def translated(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings of Java clients by librdkafka's names. Raises `InvalidOption`."""
    left = dict(given)
    for name in OWN:
        if name in left:
            raise InvalidOption(name, f"the command chooses {name} itself; remove it from the file of --command-config")
    found = _login(left.pop("sasl.jaas.config", ""))
    for store in sorted(_STORES):
        found |= _store(store, left)
    if left.get("ssl.endpoint.identification.algorithm") == "":
        left["ssl.endpoint.identification.algorithm"] = "none"
    return found | {_RENAMED.get(name, name): value for name, value in left.items()}


def without_secrets(text: str, settings: Mapping[str, str]) -> str:
    """Return a message in which the values of secret settings are replaced by ***."""
    for value in sorted(secrets(settings), key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def secrets(settings: Mapping[str, str]) -> Iterable[str]:
    """Return the values of settings that nobody should see."""
    return {value for name, value in settings.items() if value and _SECRET.search(name)}


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    return re.sub(
        r"\\(u[0-9a-fA-F]{4}|.)",
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _ESCAPES.get(found[1], found[1]),
        text,
    )


def _login(jaas: str) -> dict[str, str]:
    """Return user and password of a JAAS configuration."""
    if not jaas:
        return {}
    options = dict(re.findall(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"', jaas))
    if not any(module in jaas for module in _JAAS_MODULES) or not {"username", "password"} <= options.keys():
        raise InvalidOption(
            "sasl.jaas.config",
            f"sasl.jaas.config of --command-config is not one of {' or '.join(_JAAS_MODULES)} with a username and a "
            "password, and only Java can use others; set sasl.username and sasl.password, or librdkafka's settings of "
            "Kerberos (sasl.kerberos.*) or OAuth (sasl.oauthbearer.*)",
        )
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", options[name]) for name in ("username", "password")}


def _store(store: str, left: dict[str, str]) -> dict[str, str]:
    """Take the settings of a key store or trust store out of `left`, and return librdkafka's."""
    location, kind = left.pop(f"{store}.location", ""), left.pop(f"{store}.type", "").upper()
    if not location:
        return {}
    kind = kind or {".pem": "PEM", ".crt": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}.get(Path(location).suffix, "JKS")
    is_trust = store == "ssl.truststore"
    if kind == "PEM":
        if is_trust:
            left.pop(f"{store}.password", None)
            return {"ssl.ca.location": location}
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    if kind == "PKCS12" and not is_trust:
        return {f"{store}.location": location}  # its password has the same name
    target = "the certificates (-nokeys)" if is_trust else "the key and its certificates (-nodes)"
    raise InvalidOption(
        f"{store}.location",
        f"{store}.location of --command-config is a store of type {kind}, which only Java can read; write {target} to "
        f"a PEM file with keytool -importkeystore -deststoretype PKCS12 and openssl pkcs12, and name that with "
        f"{store}.type=PEM",
    )
