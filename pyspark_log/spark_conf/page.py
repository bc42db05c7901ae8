"""The files spark-defaults.conf in spark-conf/, made with `python -m pyspark_log.spark_conf.page spark-conf`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from pyspark_log.spark_conf.profiles import PROFILES, TESTS, Profile

FILE = "spark-defaults.conf"
_WIDTH = 118


def files() -> dict[str, str]:
    """Return the text of each file by its path. That of the profile `tests` is at the top, for SPARK_CONF_DIR."""
    return {
        FILE if profile is TESTS else f"{profile.name}/{FILE}": "\n".join(_lines(profile)) + "\n"
        for profile in PROFILES.values()
    }


def _lines(profile: Profile) -> Iterator[str]:
    about = profile.about[0].upper() + profile.about[1:]
    yield from _comment(f"{about}.")
    yield from _comment("Made with `python -m pyspark_log.spark_conf.page spark-conf`. Do not edit.")
    for setting in profile.settings:
        yield ""
        yield from _comment(setting.why)
        yield f"{'# ' * setting.example}{setting.name}  {setting.value}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def main() -> None:
    """Write the files into the folder that the argument names."""
    folder = Path(sys.argv[1])
    for path, text in files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


if __name__ == "__main__":
    main()
