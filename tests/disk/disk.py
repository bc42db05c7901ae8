"""A model of a disk: what a file system keeps after a power failure.

It is told of the calls that change files (`Call`). Those that were not flushed may be lost or kept, each for itself:

- `fsync` and `fdatasync` of a file keep its bytes and its length, but not its name.
- `fsync` of a folder keeps the names in it, but not its own name, nor the bytes of files.
- Each name in a folder is, after the failure, what it was at the last flush or after any later change of it. So a
  rename replaces a file or does not, and changes of different names may be lost in any order.
- The bytes of a file are the flushed ones, those that were written, or, in blocks of 512 bytes, any mixture of these
  with zeros and old bytes of the disk.

This is less than POSIX file systems do in practice: ext4 and XFS keep the changes of names in their order.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

BLOCK_BYTES = 512
TEMPORARY = ".tmp"
STRAYS = 40
"""A name in `.tmp` that has not changed for so many calls is what it is. Hundreds of them would look alike."""
SYSTEMATIC_MAX = 48
"""If no more states are possible after a call, all of them are formed."""

Tree: TypeAlias = dict[str, bytes | None]
"""The contents of files, and None for folders, by path."""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call that changes a disk, or flushes something. Files and folders have numbers in the order of their creation.

    `path` is that of a name. `number` is that of the file or folder that is flushed or written to.
    """

    kind: str
    path: str = ""
    number: int = 0
    offset: int = 0
    data: bytes = b""
    source: str = ""
    """The former path, of a rename, or that of the file which gets another name, of a link."""
    place: str = ""
    """Of a flush: the functions of the store that asked for it."""


class File:
    """A file: what a program reads, and what the disk has for certain."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.content = b""
        self.flushed = b""
        self.changed = 0
        """The number of the call that changed it last; 0 if that is flushed."""


class Change(NamedTuple):
    """A change of a name: the number of the call, and what has the name afterwards."""

    call: int
    node: File | Folder | None


class Folder:
    """A folder: its names as programs see them, and the changes since the last flush."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, File | Folder] = {}
        self.flushed: dict[str, File | Folder] = {}
        self.changes: dict[str, list[Change]] = {}

    def change(self, call: int, name: str, node: File | Folder | None) -> None:
        if node is None:
            del self.names[name]
        else:
            self.names[name] = node
        self.changes.setdefault(name, []).append(Change(call, node))

    def flush(self) -> None:
        self.flushed = dict(self.names)
        self.changes.clear()


class Name(NamedTuple):
    """A name that was changed and not flushed. Its options are the flushed state and those after each change."""

    folder: Folder
    name: str


Doubt: TypeAlias = Name | File
"""What is not flushed."""
State: TypeAlias = Mapping[Doubt, int]
"""A number for everything in doubt: of a name how many of its changes are kept, of a file one of `DATA`."""
LOST, KEPT, ZEROS, OLD, TORN = DATA = range(5)
"""What is left of the bytes of a file: those that were flushed, all, zeros, old bytes of the disk, or a mixture."""


class Disk:
    """One disk. `root` is its topmost folder, which is there from the beginning."""

    def __init__(self) -> None:
        self.calls = 0
        self._nodes: list[File | Folder] = [Folder(0)]
        self._doubtful: dict[int, File | Folder] = {}
        """Files and folders with something that is not flushed, by number."""
        self._temporary: set[Folder] = set()

    @property
    def root(self) -> Folder:
        folder = self._nodes[0]
        assert isinstance(folder, Folder)
        return folder

    def find(self, path: str) -> File | Folder | None:
        """Return what programs find at a path."""
        node: File | Folder | None = self.root
        for part in filter(None, path.split("/")):
            node = node.names.get(part) if isinstance(node, Folder) else None
        return node

    def apply(self, call: Call) -> None:
        """Make a call. Raises `AssertionError` if it could not have succeeded."""
        self.calls += 1
        match call.kind:
            case "create" | "mkdir":
                node = File(len(self._nodes)) if call.kind == "create" else Folder(len(self._nodes))
                self._nodes.append(node)
                self._change(call.path, node)
            case "write":
                self._write(call.number, call.offset, call.data)
            case "truncate":
                file = self._file(call.number)
                file.content = file.content[: call.offset].ljust(call.offset, b"\0")
                self._touched(file)
            case "flush":
                node = self._nodes[call.number]
                self._doubtful.pop(node.number, None)
                if isinstance(node, File):
                    node.flushed, node.changed = node.content, 0
                else:
                    node.flush()
            case "link":
                self._change(call.path, self.find(call.source))
            case "rename":
                node = self.find(call.source)
                self._change(call.path, node)
                self._change(call.source, None)
            case "unlink" | "rmdir":
                self._change(call.path, None)
            case _:
                raise AssertionError(f"the model does not know the call {call.kind!r}")

    def _write(self, number: int, offset: int, data: bytes) -> None:
        file = self._file(number)
        before = file.content.ljust(offset, b"\0")
        file.content = before[:offset] + data + before[offset + len(data) :]
        self._touched(file)

    def _touched(self, file: File) -> None:
        file.changed = self.calls
        self._doubtful[file.number] = file

    def _file(self, number: int) -> File:
        file = self._nodes[number]
        assert isinstance(file, File)
        return file

    def _change(self, path: str, node: File | Folder | None) -> None:
        above, _, name = path.rpartition("/")
        folder = self.find(above)
        assert isinstance(folder, Folder), f"{above} is no folder"
        if name == TEMPORARY and isinstance(node, Folder):
            self._temporary.add(node)
        folder.change(self.calls, name, node)
        self._doubtful[folder.number] = folder

    def doubts(self) -> dict[Doubt, int]:
        """Return what is not flushed, each with the number of its options."""
        found: dict[Doubt, int] = {}
        for node in self._doubtful.values():
            if isinstance(node, File):
                found[node] = len(DATA)
                continue
            for name, changes in node.changes.items():
                if node not in self._temporary or changes[-1].call > self.calls - STRAYS:
                    found[Name(node, name)] = len(changes) + 1
        return found

    def as_seen(self) -> dict[Doubt, int]:
        """Return the state that programs see: everything is kept."""
        return {each: KEPT if isinstance(each, File) else options - 1 for each, options in self.doubts().items()}

    def states(self, chance: random.Random, samples: int, *, in_order: bool = False) -> Iterator[dict[Doubt, int]]:
        """Yield states after a power failure, some of them twice if the names of a folder are to change `in_order`."""
        for state in self._states(chance, samples):
            yield _in_order(state) if in_order else state

    def _states(self, chance: random.Random, samples: int) -> Iterator[dict[Doubt, int]]:
        """Yield states: all if there are few, else those at the edges and some by chance.

        At the edges everything is lost or kept but for one of the newest, and the newest changes are kept without any
        older one.
        """
        doubts = self.doubts()
        number = 1
        for options in doubts.values():
            number *= options
            if number > SYSTEMATIC_MAX:
                break
        else:
            for chosen in itertools.product(*map(range, doubts.values())):
                yield dict(zip(doubts, chosen, strict=True))
            return
        kept = self.as_seen()
        lost = dict.fromkeys(doubts, 0)
        yield from (kept, lost)
        newest = sorted(doubts, key=self._newest_call, reverse=True)[:3]
        for each in newest:
            yield {**kept, each: 0}
            yield {**lost, each: kept[each]}
        for _ in range(samples):
            likely = chance.choice((0.1, 0.5, 0.9))
            yield {
                each: kept[each] if chance.random() < likely else chance.randrange(options)
                for each, options in doubts.items()
            }

    @staticmethod
    def _newest_call(doubt: Doubt) -> int:
        return doubt.changed if isinstance(doubt, File) else doubt.folder.changes[doubt.name][-1].call

    def tree(self, state: State | None = None, chance: random.Random | None = None) -> Tree:
        """Return the files and folders in a state, or as programs see them."""
        found: Tree = {}
        state = self.as_seen() if state is None else state
        self._add(found, self.root, "", state, chance or random.Random(0))
        return found

    def _add(self, found: Tree, folder: Folder, path: str, state: State, chance: random.Random) -> None:
        for name, node in self._names(folder, state).items():
            if isinstance(node, Folder):
                found[path + name] = None
                self._add(found, node, f"{path}{name}/", state, chance)
            else:
                found[path + name] = self._content(node, state, chance)

    def _names(self, folder: Folder, state: State) -> dict[str, File | Folder]:
        names = dict(folder.flushed)
        for name, changes in folder.changes.items():
            kept = state.get(Name(folder, name), len(changes))
            if kept:
                names.pop(name, None)
                if (node := changes[kept - 1].node) is not None:
                    names[name] = node
        return names

    @staticmethod
    def _content(file: File, state: State, chance: random.Random) -> bytes:
        how = state.get(file, KEPT) if file.changed else KEPT
        if how in {LOST, KEPT}:
            return file.content if how == KEPT else file.flushed
        size = len(file.content)
        at = range(0, size, BLOCK_BYTES)
        old = file.flushed.ljust(size, b"\0")
        if how == ZEROS:
            return old
        stale = chance.randbytes(BLOCK_BYTES)
        if how == OLD:
            return b"".join(old[each : each + BLOCK_BYTES] if each < len(file.flushed) else stale for each in at)[:size]
        blocks = (chance.choice((file.content, file.content, old)) for _ in at)
        mixed = b"".join(block[each : each + BLOCK_BYTES] for each, block in zip(at, blocks, strict=True))
        return mixed[: chance.choice((size, BLOCK_BYTES * chance.randint(0, size // BLOCK_BYTES)))]


def _in_order(state: State) -> dict[Doubt, int]:
    """Return the state without the changes of names that come after one in their folder which is lost."""
    first_lost: dict[Folder, int] = {}
    for doubt, kept in state.items():
        if isinstance(doubt, Name) and kept < len(changes := doubt.folder.changes[doubt.name]):
            first_lost[doubt.folder] = min(first_lost.get(doubt.folder, changes[kept].call), changes[kept].call)
    return {
        doubt: sum(
            each.call < first_lost.get(doubt.folder, each.call + 1) for each in doubt.folder.changes[doubt.name][:kept]
        )
        if isinstance(doubt, Name)
        else kept
        for doubt, kept in state.items()
    }


def digest(trees: Mapping[str, Tree]) -> bytes:
    """Return a hash of disks, without what is in `.tmp`: states that differ only there count once."""
    found = hashlib.blake2b(digest_size=16)
    for disk, tree in sorted(trees.items()):
        for path, content in sorted(tree.items()):
            if f"/{TEMPORARY}/" not in f"/{path}":
                found.update(f"{disk} {path} {content is None} {len(content or b'')}\n".encode())
                found.update(content or b"")
    return found.digest()
