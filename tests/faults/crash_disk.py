"""What a program asked of the file system, as strace saw it, and the folders that a power cut could leave of it.

The disk of a cautious reader of POSIX: what was written to a file is on it once that file was synced, and a name is in its
folder once that folder was. Of everything else any part may be there, in any order: whole calls, sectors of a write, sizes
without the data. A rename is there or not, and never half."""
import dataclasses
import os
import pathlib
import re

CALLS = ("openat,open,creat,close,write,pwrite64,writev,pwritev,pwritev2,ftruncate,fsync,fdatasync,rename,renameat,renameat2,"
         "unlink,unlinkat,rmdir,mkdir,mkdirat,dup,dup2,dup3,link,linkat,symlink,symlinkat,truncate,fallocate,copy_file_range,"
         "sendfile,chdir")
LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += +(-?\d+|\?)(.*)$", re.S)
UNFINISHED = re.compile(r"^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$", re.S)
RESUMED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$", re.S)
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


@dataclasses.dataclass
class Op:
    kind: str            # write, resize, sync; enter, leave, rename
    inode: int           # of the file; of enter and rename what gets the name; of sync either
    at: int = 0          # write: offset; resize: the size
    data: bytes = b""
    place: tuple = ()    # (folder's inode, name)
    old: tuple = ()      # of a rename
    text: str = ""       # for a person

    def of_entries(self):
        return self.kind in ("enter", "leave", "rename")

    def folders(self):
        return {p[0] for p in (self.place, self.old) if p}


class Tree:
    """Inodes: a bytearray for a file, a dict of names for a folder. 0 is the root."""

    def __init__(self, root=None):
        self.nodes = {0: {}}
        if root is not None:
            self._read(pathlib.Path(root), 0)

    def _read(self, path, inode):
        for entry in sorted(path.iterdir()):
            child = self.add({} if entry.is_dir() else bytearray(entry.read_bytes()))
            self.nodes[inode][entry.name] = child
            if entry.is_dir():
                self._read(entry, child)

    def add(self, node, inode=None):
        inode = len(self.nodes) if inode is None else inode
        self.nodes[inode] = node
        return inode

    def copy(self):
        tree = Tree()
        tree.nodes = {i: dict(n) if isinstance(n, dict) else bytearray(n) for i, n in self.nodes.items()}
        return tree

    def apply(self, op):
        if op.kind == "write":
            node = self.nodes.setdefault(op.inode, bytearray())
            if len(node) < op.at + len(op.data):
                node.extend(bytes(op.at + len(op.data) - len(node)))
            node[op.at:op.at + len(op.data)] = op.data
        elif op.kind == "resize":
            node = self.nodes.setdefault(op.inode, bytearray())
            del node[op.at:]
            node.extend(bytes(op.at - len(node)))
        elif op.of_entries():
            if op.old and self.nodes[op.old[0]].get(op.old[1]) == op.inode:
                del self.nodes[op.old[0]][op.old[1]]
            if op.kind == "leave":
                self.nodes[op.place[0]].pop(op.place[1], None)
            else:
                self.nodes[op.place[0]][op.place[1]] = op.inode

    def files(self, inode=0, path=""):
        """(path, bytes or None for a folder), in order."""
        for name, child in sorted(self.nodes[inode].items()):
            node, here = self.nodes[child], f"{path}{name}"
            if isinstance(node, dict):
                yield here, None
                yield from self.files(child, here + "/")
            else:
                yield here, bytes(node)

    def write_to(self, folder):
        for path, data in self.files():
            place = pathlib.Path(folder) / path
            if data is None:
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)


def calls_of(log):
    """(name, arguments, result) of every call that returned, in the order of their returns."""
    waiting = {}
    for line in pathlib.Path(log).read_text(errors="replace").splitlines():
        if found := UNFINISHED.match(line):
            waiting[found[1]] = (found[2], found[3])
            continue
        if found := RESUMED.match(line):
            name, begun = waiting.pop(found[1], ("", ""))
            line = f"{found[1]} {name}({begun}{found[2]}"
        found = LINE.match(line)
        if found and found[4] != "?":
            yield found[2], found[3], int(found[4])


def texts_in(arguments):
    found = TEXT.findall(arguments)
    if any(cut for _, cut in found):
        raise ValueError("strace has cut a text short")
    return [bytes.fromhex(text.replace("\\x", "")) for text, _ in found]


class Watched:
    """Turns calls into operations on the inodes below `root`, which was as `before` at first."""

    def __init__(self, root, before):
        self.root, self.live, self.ops, self.open = os.path.abspath(root), before.copy(), [], {}

    def find(self, path, arguments=""):
        """(folder's inode, name, inode or None) of a path below the root; None elsewhere."""
        path = path.decode()
        if not path.startswith("/"):
            base = self.open.get(int(arguments.split(",")[0])) if arguments[:1].isdigit() else None
            if base is None:
                return None
            folder, parts = base[0], path.split("/")
        elif path == self.root or path.startswith(self.root + "/"):
            folder, parts = 0, path[len(self.root):].split("/")
        else:
            return None
        parts = [p for p in parts if p not in ("", ".")]
        if not parts:
            return (None, "", folder)
        for part in parts[:-1]:
            folder = self.live.nodes[folder][part]
        return (folder, parts[-1], self.live.nodes[folder].get(parts[-1]))

    def do(self, op):
        self.ops.append(op)
        self.live.apply(op)

    def take(self, name, arguments, result):
        if result < 0:
            return
        if name in ("open", "openat", "creat"):
            self.take_open(name, arguments, result)
        elif name == "close":
            self.open.pop(int(arguments), None)
        elif name in ("mkdir", "mkdirat"):
            if found := self.find(texts_in(arguments)[0], arguments):
                inode = self.live.add({})
                self.do(Op("enter", inode, place=found[:2], text=f"mkdir {found[1]}"))
        elif name in ("unlink", "unlinkat", "rmdir"):
            if found := self.find(texts_in(arguments)[0], arguments):
                self.do(Op("leave", found[2], place=found[:2], text=f"remove {found[1]}"))
        elif name in ("rename", "renameat", "renameat2"):
            old, new = (self.find(p) for p in texts_in(arguments))
            if old or new:
                self.do(Op("rename", old[2], place=new[:2], old=old[:2], text=f"rename {old[1]} {new[1]}"))
        else:
            self.take_file(name, arguments, result)

    def take_open(self, name, arguments, result):
        found = self.find(texts_in(arguments)[0], arguments)
        if not found:
            return
        folder, base, inode = found
        if inode is None:
            inode = self.live.add(bytearray())
            self.do(Op("enter", inode, place=(folder, base), text=f"create {base}"))
        elif "O_TRUNC" in arguments or name == "creat":
            self.do(Op("resize", inode, 0, text=f"empty {base}"))
        self.open[result] = [inode, 0, "O_APPEND" in arguments, base]

    def take_file(self, name, arguments, result):
        file = int(arguments.split(",")[0]) if arguments[:1].isdigit() else -1
        if file not in self.open:
            return
        inode, position, append, base = self.open[file]
        if name in ("fsync", "fdatasync"):
            self.do(Op("sync", inode, text=f"sync {base}"))
        elif name == "ftruncate":
            self.do(Op("resize", inode, int(arguments.split(",")[1]), text=f"resize {base}"))
        elif name in ("write", "pwrite64", "writev"):
            data = b"".join(texts_in(arguments))[:result]
            if len(data) != result:
                raise ValueError(f"{name} of {base}: {len(data)} of {result} bytes are in the log")
            at = int(arguments.rsplit(",", 1)[1]) if name == "pwrite64" else len(self.live.nodes[inode]) if append else position
            if name != "pwrite64":
                self.open[file][1] = at + result
            self.do(Op("write", inode, at, data, text=f"write {base} {at}+{result}"))
        else:
            raise ValueError(f"{name} of {base}: not known here")


def ops_of(log, root, before):
    watched = Watched(root, before)
    for call in calls_of(log):
        watched.take(*call)
    return watched.ops, watched.live


def synced(ops, crash):
    """Of the first `crash` operations, those that the disk must have."""
    last, done = {}, set()
    for i in range(crash - 1, -1, -1):
        op = ops[i]
        if op.kind == "sync":
            last.setdefault(op.inode, i)
        elif op.of_entries():
            if any(folder in last for folder in op.folders()):
                done.add(i)
        elif op.inode in last:
            done.add(i)
    return done


def torn(op, random, sector):
    """Some sectors of a write, and perhaps the size of all of it."""
    parts = [op] if random.random() < 0.5 else []
    if parts:
        parts = [dataclasses.replace(op, data=b"\0" * len(op.data))] if random.random() < 0.5 else []
    at, end = op.at, op.at + len(op.data)
    while at < end:
        stop = min(end, (at // sector + 1) * sector)
        if random.random() < 0.5:
            parts.append(dataclasses.replace(op, at=at, data=op.data[at - op.at:stop - op.at]))
        at = stop
    return parts


MODES = ("dropped", "all", "prefix", "entries", "data", "torn", "random")


def crash_state(before, ops, crash, mode, random):
    """What a disk could hold after a power cut that came when `crash` operations had been asked for."""
    must = synced(ops, crash)
    prefix = random.randrange(crash + 1)
    likely, sector = random.choice((0.1, 0.5, 0.9)), random.choice((512, 4096))
    tree = before.copy()
    for i in range(crash):  # every inode there could be; what no name leads to is not seen
        op = ops[i]
        if op.kind in ("enter", "rename") and op.inode not in tree.nodes:
            tree.add({} if op.text.startswith("mkdir") else bytearray(), op.inode)
    for i, op in enumerate(ops[:crash]):
        if op.kind == "sync":
            continue
        keep = i in must or mode == "all" or (mode == "prefix" and i < prefix) or \
            (mode == "entries" and op.of_entries()) or (mode == "data" and not op.of_entries()) or \
            (mode == "torn" and op.kind != "write") or (mode == "random" and random.random() < likely)
        if keep and not (mode == "random" and op.kind == "write" and i not in must and random.random() < 0.3):
            tree.apply(op)
        elif op.kind == "write" and mode in ("torn", "random") and op.data and (mode == "torn" or keep):
            for part in torn(op, random, sector):
                tree.apply(part)
    return tree
