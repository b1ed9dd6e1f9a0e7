"""The field MESSAGE of a journal entry in JSON, as bytes: of a journal that is followed, and of an exported one."""


def message(field: object) -> bytes:
    """Return the text of MESSAGE as one line; empty where it is null, or what no journal writes.

    It is an array of byte values where it is not UTF-8 or holds control characters, and a list of these where the entry
    has several. What stands behind a newline in it is not a line of the log, whatever it looks like.
    """
    several = field if isinstance(field, list) and not _are_bytes(field) else [field]
    return b" ".join(map(_bytes, several)).replace(b"\n", b" ")


def _bytes(field: object) -> bytes:
    if isinstance(field, str):
        return field.encode(errors="replace")  # JSON may hold half a surrogate pair
    return bytes(field) if isinstance(field, list) and _are_bytes(field) else b""


def _are_bytes(values: list[object]) -> bool:
    return all(isinstance(value, int) and 0 <= value <= 255 for value in values)
