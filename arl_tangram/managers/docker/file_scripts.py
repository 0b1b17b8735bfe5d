"""Shell text for the files of a container, and what its exit codes mean. Pure.

POSIX sh with `cat`, `chmod`, `head`, `id`, `ln`, `mkdir`, `readlink`, `rm` and, to be quicker, `stat`, as busybox and
coreutils have them. Only the
container can follow its own links, and only as its own user does it see what is permitted. So each operation begins
with `RESOLVE`, which sets `real`: what the path leads to, whether that exists or not.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from arl_tangram.errors import SandboxPathError

# A shell's own codes are 0 to 2, 126, 127, and from 129 on for signals.
_LEAVES, _LOOP, _OTHER_KIND, _FOLDER, _NO_FOLDER, _MISSING, _EXISTS, _DENIED, _LARGE = range(70, 79)

_ERRNO_OF_CODE = {
    _LOOP: errno.ELOOP,
    _FOLDER: errno.EISDIR,
    _NO_FOLDER: errno.ENOTDIR,
    _MISSING: errno.ENOENT,
    _EXISTS: errno.EEXIST,
    _DENIED: errno.EACCES,
    _LARGE: errno.EFBIG,
}
_TOLD = (  # what programs say on standard error
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR,
    errno.ETXTBSY, errno.ENOENT, errno.EEXIST, errno.EFBIG,
)  # fmt: skip

_MOST_WORDS_BYTES = 1 << 15

# Builtins only, except for links. What is in a folder that there is, and no link itself, is found by the system at
# once: walking along `path` takes seconds for one of 2,000 names. A part that does not exist ends the walk, too, unless
# the rest goes up again. The last newline of what `readlink` prints is its own, all others are the link's.
RESOLVE = f"""LC_ALL=C
top=$work
here=
cd -P -- "$work" 2>/dev/null && top=$PWD && here=yes
[ "$top" != / ] || top=
case $path in /*) real= here=yes ;; *) real=$top ;; esac
rest=$path/
links=0
if [ -n "$folder" ] && [ -n "$here" ] && cd -P -- "$folder" 2>/dev/null && [ ! -h "./$part" ]; then
    real=${{PWD%/}}/$part
    rest=
fi
while [ -n "$rest" ]; do
    part=${{rest%%/*}}
    rest=${{rest#*/}}
    case $part in
        '' | .) continue ;;
        ..) real=${{real%/*}}; continue ;;
    esac
    if [ -h "$real/$part" ]; then
        links=$((links + 1))
        [ "$links" -le 40 ] || exit {_LOOP}
        to=$(readlink -- "$real/$part" && echo .) || exit 1
        to=${{to%??}}
        case $to in /*) real= ;; esac
        rest=$to/$rest
    else
        real=$real/$part
        if [ ! -e "$real" ]; then
            case /$rest in
                */../* | */./* | *//*) ;;
                *)
                    real=${{real}}${{rest:+/${{rest%/}}}}
                    rest=
                    ;;
            esac
        fi
    fi
done
case $path in
    /*) ;;
    *) case $real/ in "$top"/*) ;; *) exit {_LEAVES} ;; esac ;;
esac
[ -n "$real" ] || real=/
"""

# Prints nothing. Opened for reading too, so that a pipe that somebody puts there meanwhile does not block.
WRITE = f"""[ ! -d "$real" ] || exit {_FOLDER}
[ ! -e "$real" ] || [ -f "$real" ] || exit {_OTHER_KIND}
folder=${{real%/*}}
[ -d "${{folder:-/}}" ] || mkdir -p -- "$folder" || exit 1
exec 3<>"$real" || exit 1
[ -f /proc/self/fd/3 ] || exit {_OTHER_KIND}
: >/proc/self/fd/3 && cat >&3
"""

# Prints the first `most` bytes, unless there are that many: then it says so, at once if there is a `stat`.
READ = f"""[ -e "$real" ] || exit {_MISSING}
[ -f "$real" ] || exit {_OTHER_KIND}
[ -r "$real" ] || exit {_DENIED}
size=$(stat -c %s -- "$real" 2>/dev/null)
case $size in '' | *[!0-9]*) size=0 ;; esac
[ "$size" -lt "$most" ] || exit {_LARGE}
head -c "$most" <"$real"
"""

# Prints the real path of a folder to run in.
ENTER = f"""[ -e "$real" ] || exit {_MISSING}
[ -d "$real" ] || exit {_NO_FOLDER}
[ -x "$real" ] || exit {_DENIED}
printf %s "$real"
"""

# Prints the real path of a folder to copy.
GET = f"""[ -e "$real" ] || exit {_MISSING}
[ -d "$real" ] || exit {_NO_FOLDER}
printf %s "$real"
"""

# Gives the folder the permissions `mode`; prints user, group, whether it was there before, and the real path.
PUT = f"""[ ! -e "$real" ] || [ -d "$real" ] || exit {_EXISTS}
found=made
if [ -d "$real" ]; then found=found; else mkdir -p -- "$real" || exit 1; fi
chmod "$mode" "$real" 2>/dev/null
printf '%s %s %s %s' "$(id -u)" "$(id -g)" "$found" "$real"
"""


def place(path: str) -> dict[str, str]:
    """Return what `RESOLVE` is told of a path: its names, and the folder of the last one if that is a name."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    top = "/" if path.startswith("/") else ""
    if not names or names[-1] == "..":
        return {"path": top + "/".join(names), "folder": "", "part": ""}
    return {"path": top + "/".join(names), "folder": (top or "./") + "/".join(names[:-1]), "part": names[-1]}


def settings(values: Mapping[str, str]) -> str:
    """Return shell text that sets variables."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def clearing(real: str, folders: Sequence[str]) -> Iterator[str]:
    """Yield scripts that remove the links which are where folders are to be.

    Each fails when something else is in the way, and tells its name.
    """
    for words in _portions((folder,) for folder in folders):
        yield f"""cd -- {shlex.quote(real)} || exit 1
for folder in {words}; do
    if [ -h "$folder" ]; then
        rm -f -- "$folder" || exit 1
    elif [ -e "$folder" ] && [ ! -d "$folder" ]; then
        printf %s "$folder" >&2
        exit {_EXISTS}
    fi
done
"""


def linking(real: str, mode: int, links: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield scripts that make links, in place of what is there, and the folders that they are in.

    Each fails when a folder is in the way of a link. The folders become writable: they get their permissions
    afterwards, all but `real`, which gets its `mode` back. Whether they are is not asked: busybox says so of all to
    user 0, who has no such right in our containers.

    Args:
        real: the folder in which they are.
        mode: its permissions.
        links: names, and where they lead.
    """
    for words in _portions(_with_folders(links)):
        yield f"""cd -- {shlex.quote(real)} || exit 1
chmod u+wx . 2>/dev/null
set -- {words}
while [ "$#" -gt 0 ]; do
    if [ -z "$1" ]; then
        [ -d "$2" ] || mkdir -- "$2" || exit 1
        chmod u+wx "$2" 2>/dev/null
    elif [ -d "$2" ] && [ ! -h "$2" ]; then
        printf %s "${{2#./}}" >&2
        exit {_FOLDER}
    else
        rm -f -- "$2" && ln -s -- "$1" "$2" || exit 1
    fi
    shift 2
done
chmod {mode:o} . 2>/dev/null || :
"""


def _with_folders(links: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield where links lead and their names, each folder before what is in it, as if it led to nothing."""
    known: set[str] = set()
    for name, to in links:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder not in known:
                known.add(folder)
                yield "", f"./{folder}"
        yield to, f"./{name}"


def _portions(items: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the words of items as shell text, as many at a time as one script takes well."""
    words: list[str] = []
    length = 0
    for item in items:
        words.append(" ".join(map(shlex.quote, item)))
        length += len(words[-1]) + 1
        if length >= _MOST_WORDS_BYTES:
            yield " ".join(words)
            words, length = [], 0
    if words:
        yield " ".join(words)


def error(code: int, told: str, path: str, workdir: str) -> Exception:
    """Return what an exit code of a script means.

    Args:
        code: the exit code, not 0.
        told: its standard error.
        path: as the caller gave it.
        workdir: where relative paths start.
    """
    if code == _LEAVES:
        return SandboxPathError(f"{path!r} leaves the sandbox, whose working folder is {workdir}")
    if code == _OTHER_KIND:
        return OSError(errno.EINVAL, "not a regular file", path)
    if code in (_EXISTS, _FOLDER) and told:
        path = f"{path}/{told}"
    number = _ERRNO_OF_CODE.get(code)
    if number is None:
        number = next((each for each in _TOLD if os.strerror(each) in told), None)
    if number is not None:
        return OSError(number, os.strerror(number), path)
    return OSError(errno.EIO, f"the container's shell ended with {code}: {told.strip() or 'it said nothing'}", path)
