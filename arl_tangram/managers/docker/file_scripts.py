"""Shell text for the files of a container, and what its exit codes mean. Pure.

POSIX sh with `cat`, `chmod`, `head`, `id`, `mkdir`, `readlink` and `rm`, as busybox and coreutils have them. Only the
container can follow its own links, and only as its own user does it see what is permitted. So each operation begins
with `RESOLVE`, which sets `real`: what the path leads to, whether that exists or not.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

from arl_tangram.errors import SandboxPathError

# A shell's own codes are 0 to 2, 126, 127, and from 129 on for signals.
_LEAVES, _LOOP, _OTHER_KIND, _FOLDER, _NO_FOLDER, _MISSING, _EXISTS, _DENIED = range(70, 78)

_ERRNO_OF_CODE = {
    _LOOP: errno.ELOOP,
    _FOLDER: errno.EISDIR,
    _NO_FOLDER: errno.ENOTDIR,
    _MISSING: errno.ENOENT,
    _EXISTS: errno.EEXIST,
    _DENIED: errno.EACCES,
}
_TOLD = (  # what programs say on standard error
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR,
    errno.ETXTBSY, errno.ENOENT, errno.EEXIST, errno.EFBIG,
)  # fmt: skip

_MOST_FOLDERS_BYTES = 1 << 15

# Builtins only, except for links. The last newline of what `readlink` prints is its own, all others are the link's.
RESOLVE = f"""LC_ALL=C
top=$work
cd -P -- "$work" 2>/dev/null && top=$PWD
[ "$top" != / ] || top=
case $path in /*) real= ;; *) real=$top ;; esac
rest=$path/
links=0
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

# Prints the first `most` bytes.
READ = f"""[ -e "$real" ] || exit {_MISSING}
[ -f "$real" ] || exit {_OTHER_KIND}
[ -r "$real" ] || exit {_DENIED}
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


def settings(values: Mapping[str, str]) -> str:
    """Return shell text that sets variables."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def clearing(real: str, folders: Sequence[str]) -> Iterator[str]:
    """Yield scripts that remove the links which are where folders are to be.

    Each fails when something else is in the way, and tells its name.
    """
    words: list[str] = []
    length = 0
    for folder in folders:
        words.append(shlex.quote(folder))
        length += len(words[-1]) + 1
        if length >= _MOST_FOLDERS_BYTES:
            yield _clear(real, words)
            words, length = [], 0
    if words:
        yield _clear(real, words)


def _clear(real: str, words: Sequence[str]) -> str:
    return f"""cd -- {shlex.quote(real)} || exit 1
for folder in {" ".join(words)}; do
    if [ -h "$folder" ]; then
        rm -f -- "$folder" || exit 1
    elif [ -e "$folder" ] && [ ! -d "$folder" ]; then
        printf %s "$folder" >&2
        exit {_EXISTS}
    fi
done
"""


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
    if code == _EXISTS and told:
        path = f"{path}/{told}"
    number = _ERRNO_OF_CODE.get(code)
    if number is None:
        number = next((each for each in _TOLD if os.strerror(each) in told), None)
    if number is not None:
        return OSError(number, os.strerror(number), path)
    return OSError(errno.EIO, f"the container's shell ended with {code}: {told.strip() or 'it said nothing'}", path)
