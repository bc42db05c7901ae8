"""Names of columns as Spark's SQL and its functions take them."""


def quoted(name: str) -> str:
    """Return a name so that no character of it has a meaning, such as the dot of a nested field."""
    return "`" + name.replace("`", "``") + "`"
