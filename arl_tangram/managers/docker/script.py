"""Shell text for what runs inside containers: the first process, the sessions, and their commands. Pure.

POSIX sh as dash, busybox and bash have it, and nothing but builtins on the way of an ordinary command; `cat` and
`sleep` stand beside it, `head`, `tail`, `wc`, `mkdir` and `rm` serve long input and spilled output.

A session is five processes, all of one process group: an outer shell, a guard that copies standard input (with its
`cat`), a wrapper, and the shell that reads commands. When standard input ends without notice, the trainer or its
daemon is gone, and the guard kills everything in the container; when the inner shell ends, the wrapper ends the
session. None of them ends by a signal that a script sends to its process group, as `trap 'kill 0' EXIT` does.

What a session reports begins with `MARK`, its secret, a space and a letter, and ends with a newline:

    C PID..              (cleaned) what could not be killed
    R SID bytes|blocks   (ready) session id of all its processes; how it reads its text
    T                    it waits for bytes of standard input
    U                    it has got them
    V                    it cannot keep them, and ends
    S UPTIME             a command begins
    F ERRNO SUBJECT      it could not be started: `program`, `cwd`, `spill`, or `env`, which is needed and missing
    E CODE UPTIME PIDS   it ended; PIDS are children of process 1 (`?` if not known); then the two lines of `times`
    e                    the same on standard error
    Z SIZE               the end of what is read back of a spilled stream
    X                    the shell itself cannot go on
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MARK = b"\x1e"
HELLO = b"arl_tangram\n"
GUARD_NAME = "arl_tangram-guard"
GUARD_FILES = "/dev/shm/.arl_tangram."  # in the container: every one has it
LEASE_S = 60
EXEC_VARIABLE = "ARL_TANGRAM_EXEC"
MAX_WORD_BYTES = (128 << 10) - 1  # MAX_ARG_STRLEN of Linux counts the zero byte
INLINE_STDIN_BYTES = 4096  # a pipe takes it at once, whether or not anybody reads
CLEAN_LIMIT_S = 2

# Reports the end of what stands before it, on a line of its own: bash gives up a line when it cannot fork.
END = b"arl_end $?\n"

_TRAPPED = "HUP INT QUIT ALRM TERM USR1 USR2"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# What a shell sets, reads or protects itself: `export` would fail, or change what it does.
_SHELLS_OWN = re.compile(
    "(_|BASH[A-Z_0-9]*|COLUMNS|COMP_WORDBREAKS|DIRSTACK|ENV|EPOCH[A-Z]*|EUID|FUNCNAME|GROUPS|HISTCMD|IFS|LINENO|LINES"
    r"|OLDPWD|OPT[A-Z]*|PIPESTATUS|PPID|PS\d|PWD|S?RANDOM|SECONDS|SHELLOPTS|SHLVL|UID)\Z"
)

# Reaps orphans, and ends the container when no session has had a guard for the time of the lease. A look right after
# everything was killed, its own `sleep` too, tells nothing: the next session has not begun. No signal from
# inside ends it: process 1 is spared those that it does not handle. Without a `sleep`, which a command may have
# removed, it reaps for ever beside a process that has stopped itself, until the next owner removes the container.
PID1 = f"""\
arl_uptime() {{ read -r arl_now arl_rest </proc/uptime; arl_now=${{arl_now%%.*}}; }}
arl_uptime
arl_seen=$arl_now
while :; do
  sleep {LEASE_S // 2} &
  wait $!
  arl_slept=$?
  case $arl_slept in 126 | 127)
    {{ read -r arl_pid arl_rest </proc/self/stat; kill -STOP "$arl_pid"; }} &
    wait $!
    ;;
  esac
  arl_uptime
  for arl_file in /proc/[0-9]*/cmdline; do
    arl_line=
    read -r arl_line <"$arl_file"
    case $arl_line in *'kill -9 0{GUARD_NAME}') arl_seen=$arl_now ;; esac
  done 2>/dev/null
  if [ $arl_slept != 137 ] && [ $((arl_now - arl_seen)) -ge {LEASE_S} ]; then
    kill -9 -1
    exit 98
  fi
done
"""

# Its first line names the file in which it leaves the time before it kills everything. `cat` inherits what is ignored.
# If it fails, which is not the end of standard input, only the session is over. This must be one line, and end like
# this: process 1 looks for it.
_GUARD = (
    f"trap '' {_TRAPPED} PIPE; read -r arl_f; cat && {{ read -r arl_u arl_v </proc/uptime; "
    r"echo \$arl_u >\$arl_f; kill -9 -1; }; kill -9 0"
)

_SESSION = f"""\
trap : {_TRAPPED}; echo {HELLO.decode().strip()}; read -r arl_line || exit 125; eval "$arl_line"
"""

# What a session does first is one line, so that it does not stand in the list of processes. `clean` is `kill` and a
# look at what is left, for some seconds.
_CLEAN = f"""\
arl_uptime() {{ read -r arl_now arl_rest </proc/uptime; arl_now=${{arl_now%%.*}}; }};
kill -9 -1;
arl_uptime;
arl_end=$((arl_now + {CLEAN_LIMIT_S}));
while :; do
  arl_left=;
  for arl_pid in /proc/[0-9]*; do
    arl_line=;
    read -r arl_line <"$arl_pid/stat" || continue;
    set -- ${{arl_line##*) }};
    case "$1 ${{arl_pid#/proc/}} $4" in
    [ZX]* | *" 1 "* | *" $$ "* | *" 1") ;;
    *) arl_left="$arl_left ${{arl_pid#/proc/}}" ;;
    esac;
  done 2>/dev/null;
  arl_uptime;
  [ "$arl_left" ] && [ "$arl_now" -lt $arl_end ] || break;
  kill -9 -1;
done;
for arl_file in GUARD_FILES*; do [ -e "$arl_file" ] && rm -f GUARD_FILES* </dev/null 2>&1; break; done;
printf '\\036%s C%s\\n' SECRET "$arl_left";
""".replace("GUARD_FILES", GUARD_FILES)

_BECOME = f"""\
/bin/sh -c "{_GUARD}" {GUARD_NAME} |
{{ trap : {_TRAPPED}; exec 6>&2 2>/dev/null; (exec /bin/sh 2>&6 6>&-); kill -9 0; }}
"""

# Standard output and error of the shell itself lead nowhere, so that what it says of jobs mixes with nothing.
# 3 and 4 are those of commands, 5 is for reports from a command's own subshell; none of them is handed to a program.
_PRELUDE = r"""exec 3>&1 4>&2 5>&1 >/dev/null 2>&1
trap : SIGNALS
arl_say() { printf '\036%s %s\n' "$arl_n" "$*" >&3; }
trap 'arl_say X; kill -9 0' EXIT
arl_fail() { printf '\036%s F %s %s\n' "$arl_n" "$1" "$2" >&5; trap - EXIT; exit 0; }
arl_start() {
  echo 1000 >/proc/self/oom_score_adj
  read -r arl_u arl_v </proc/uptime
  printf '\036%s S %s\n' "$arl_n" "$arl_u" >&3
}
arl_end() {
  arl_k=?
  read -r arl_u arl_v </proc/uptime
  [ "$arl_l" ] && read -r arl_k </proc/1/task/1/children
  printf '\036%s e\n' "$arl_n" >&4
  printf '\036%s E %s %s %s\n' "$arl_n" "$1" "$arl_u" "$arl_k" >&3
  times >&3
}
arl_cd() {
  cd -P -- "$1" && return
  [ -e "$1" ] || arl_fail 2 cwd
  [ -d "$1" ] || arl_fail 20 cwd
  arl_fail 13 cwd
}
arl_find() {
  case $1 in
  */*)
    arl_p=$1
    [ -e "$1" ] || arl_fail 2 "$2"
    [ -f "$1" ] && [ -x "$1" ] || arl_fail 13 "$2"
    ;;
  *)
    arl_q=2
    IFS=:
    set -f
    for arl_d in ${PATH-/usr/local/bin:/usr/bin:/bin}; do
      arl_p=${arl_d:-.}/$1
      [ -f "$arl_p" ] && [ -x "$arl_p" ] && return
      [ -e "$arl_p" ] && arl_q=13
    done
    arl_fail $arl_q "$2"
    ;;
  esac
}
arl_refused() { case $1 in 126) arl_fail 13 program ;; *) arl_fail 2 program ;; esac; }
arl_exec() {
  arl_find "$1" program
  trap 'arl_refused $?' EXIT
  if [ "$arl_a" ]; then
    arl_q=$1
    shift
    exec -a "$arl_q" "$arl_p" "$@" >&3 2>&4 3>&- 4>&- 5>&-
  fi
  exec "$@" >&3 2>&4 3>&- 4>&- 5>&-
}
arl_exec_env() {
  arl_i=$(($1 + 1))
  shift
  eval "arl_find \"\${$arl_i}\" program"
  arl_find env env
  trap 'arl_refused $?' EXIT
  exec "$arl_p" "$@" >&3 2>&4 3>&- 4>&- 5>&-
}
arl_spill() {
  [ -d "${1%/*}" ] || mkdir -p "${1%/*}"
  true >>"$1" && true >>"$2" || arl_fail 28 spill
  exec 3>>"$1" 4>>"$2"
}
arl_take() {
  [ -d "${2%/*}" ] || mkdir -p -m 700 "${2%/*}" </dev/null
  arl_say T
  head -c "$1" >"$2" || { arl_say V; kill -9 0; }
  arl_say U
}
arl_back() {
  arl_v=$(wc -c <"$2")
  if [ "$((arl_v))" -le "$1" ]; then
    cat "$2"
  else
    head -c $(($1 / 2)) "$2"
    tail -c $(($1 - $1 / 2)) "$2"
  fi </dev/null
  printf '\036%s Z %s\n' "$arl_n" "$((arl_v))"
}
arl_a=
(exec -a sh sh -c :) </dev/null && arl_a=a
read -r arl_u </proc/$$/stat
set -- ${arl_u##*) }
if [ "$BASH_VERSION" ]; then arl_say R $4 bytes; else arl_say R $4 blocks; fi
""".replace("SIGNALS", _TRAPPED)


@dataclass(frozen=True, slots=True)
class Redirection:
    """Where a command reads from and writes to.

    Attributes:
        stdin: what it reads, at most `INLINE_STDIN_BYTES`.
        stdin_file: a file to read instead, which is removed as the command begins.
        spill: the files that it writes its output and errors to, instead of the session's streams.
    """

    stdin: bytes = b""
    stdin_file: str | None = None
    spill: tuple[str, str] | None = None


def session_argv() -> list[str]:
    """Return the program of a session; it prints `HELLO` and waits for `opening` on standard input."""
    return ["/bin/sh", "-c", _SESSION, "arl_tangram-session"]


def opening(secret: str, guard_file: str, *, clean: bool = False, tells_children: bool = False) -> bytes:
    """Return what opens a session, which then reports that it is ready.

    Args:
        secret: lower-case hexadecimal digits that nothing in the container can guess.
        guard_file: what its guard leaves if it kills everything; nothing in the container can guess it, either.
        clean: kill everything else in the container first, and report what is left.
        tells_children: let the end of each command tell the children of process 1.
    """
    first = f"{_CLEAN.replace('SECRET', secret) if clean else ''}{_BECOME}".replace("\n", " ")
    return f"{first}\n{guard_file}\narl_n={secret}\narl_l={'1' if tells_children else ''}\n{_PRELUDE}".encode()


def quoted(word: str) -> bytes:
    """Return a word of shell text that means exactly this."""
    return b"'" + os.fsencode(word).replace(b"'", b"'\\''") + b"'"


def is_plain(name: str) -> bool:
    """Return whether the shell itself can hand a variable of this name to a program."""
    return _NAME.match(name) is not None and _SHELLS_OWN.match(name) is None


def command(argv: Sequence[str], *, cwd: str, env: Mapping[str, str], redirection: Redirection) -> bytes:
    """Return the text that runs a command; `END` follows it.

    Variables that the shell cannot set are set by the program `env`, which takes no program with '=' in its name.
    """
    odd = [f"{name}={value}" for name, value in env.items() if not is_plain(name)]
    steps = [b"rm -f " + quoted(redirection.stdin_file)] if redirection.stdin_file is not None else []
    steps.append(b"arl_start")
    if redirection.spill is not None:
        steps.append(b"arl_spill " + _words(redirection.spill))
    steps.append(b"arl_cd " + quoted(cwd))
    exports = [name.encode() + b"=" + quoted(value) for name, value in env.items() if is_plain(name)]
    if exports:
        steps.append(b"export " + b" ".join(exports))
    run = b"arl_exec_env %d " % len(odd) if odd else b"arl_exec "
    steps.append(run + _words([*odd, *argv]))
    return _subshell(b"\n".join(steps), redirection)


def read_back(spill: tuple[str, str], limit: int) -> bytes:
    """Return the text that prints head and tail of spilled streams, at most `limit` bytes of each."""
    first, second = map(quoted, spill)
    return b"arl_back %d %s >&3\narl_back %d %s >&4\n" % (limit, first, limit, second)


def own(script: str, redirection: Redirection) -> bytes:
    """Return the text that runs a script of ours in a subshell, and sees nothing of the session; `END` follows it."""
    body = b"arl_start\nexec >&3 2>&4 3>&- 4>&- 5>&-\n" + os.fsencode(script)
    return _subshell(body, redirection)


def from_file(path: str) -> bytes:
    """Return the text that runs the text in a file, once; `END` follows it."""
    return b". %s\n" % quoted(path)


def in_file(text: bytes, path: str) -> bytes:
    """Return what is to be in that file: bash reads files, but not streams, in one go."""
    return b"rm -f %s </dev/null\n%s" % (quoted(path), text)


def left_by_guards(paths: Iterable[str]) -> str:
    """Return a script of ours that prints the times that guards have left in these files, and removes those."""
    return (
        "read -r arl_now arl_rest </proc/uptime\n"
        f"for arl_f in {os.fsdecode(_words(paths))}; do\n"
        '  [ -e "$arl_f" ] || continue\n'
        "  arl_u=\n"
        '  read -r arl_u <"$arl_f"\n'
        '  echo "${arl_u:-$arl_now}"\n'  # where there was no room for it
        '  rm -f "$arl_f"\n'
        "done\nexit 0\n"
    )


def make_folder(name: str, places: Iterable[str]) -> str:
    """Return a script of ours that makes a folder in the first place that permits it, and prints its path."""
    return (
        f'for arl_d in "${{TMPDIR:-/tmp}}" {os.fsdecode(_words(places))}; do\n'
        f'  mkdir -p -m 700 "$arl_d/{name}" && printf %s "$arl_d/{name}" && exit\n'
        "done\nexit 1\n"
    )


def take(size: int, path: str, stale: Iterable[str] = ()) -> bytes:
    """Return the text that writes the next `size` bytes of standard input to a file, between reporting `T` and `U`.

    Nothing else may be sent meanwhile: either reader could take what is the other's. If it fails, the session ends.
    """
    removal = b"rm -f %s </dev/null\n" % _words(stale) if stale else b""
    return removal + b"arl_take %d %s\n" % (size, quoted(path))


def end() -> bytes:
    """Return the text that ends a session and nothing else."""
    return b"kill -9 0\n"


def _subshell(body: bytes, redirection: Redirection) -> bytes:
    before, after = b"", b" </dev/null"
    if redirection.stdin_file is not None:
        after = b" <" + quoted(redirection.stdin_file)
    elif redirection.stdin:
        before, after = b"printf '" + _escaped(redirection.stdin) + b"' | ", b""
    return b"%s(\n%s\n)%s\n" % (before, body, after)


def _words(words: Iterable[str]) -> bytes:
    return b" ".join(map(quoted, words))


_ESCAPES = [b"%c" % code if 32 <= code < 127 and code not in b"%\\'-" else b"\\%03o" % code for code in range(256)]
_ESCAPES[10] = b"\n"


def _escaped(data: bytes) -> bytes:
    return b"".join(map(_ESCAPES.__getitem__, data))


def sweep(kept_sessions: Sequence[int], kept_marks: Sequence[str], victims: Sequence[int], limit_s: int) -> str:
    """Return a script of ours that kills what no kept session has started, until nothing is left of it.

    It exits with 0 when nothing is left, and prints what is otherwise. Kept is what has a kept session among its
    ancestors or is of it, and what carries a kept mark in its environment.

    Args:
        kept_sessions: session ids; that which runs this script among them.
        kept_marks: values of `EXEC_VARIABLE`.
        victims: session ids that end as a whole, at once: killed one by one, a guard would kill everything.
        limit_s: whole seconds until it gives up.
    """
    keep = " ".join(map(str, [1, *kept_sessions]))
    marks = "|".join(f"*{EXEC_VARIABLE}={mark}*" for mark in kept_marks)
    spare = f"case $arl_line in {marks}) return 0 ;; esac" if marks else ":"
    groups = "\n".join(f"kill -9 -{number}" for number in victims)
    return f"""\
arl_keep=' {keep} '
arl_marked() {{
  while arl_line=; read -r arl_line || [ "$arl_line" ]; do {spare}; done <"/proc/$1/environ"
  return 1
}}
arl_kept() {{
  arl_p=$1
  while [ "${{arl_p:-0}}" -gt 1 ]; do
    eval "arl_s=\\${{arl_s_$arl_p-}}"
    case $arl_keep in *" $arl_s "*) return 0 ;; esac
    eval "arl_p=\\${{arl_p_$arl_p-}}"
  done
  arl_marked "$1"
}}
read -r arl_now arl_rest </proc/uptime
arl_end=$((${{arl_now%%.*}} + {limit_s}))
while :; do
  {groups}
  arl_all=
  for arl_d in /proc/[0-9]*; do
    arl_line=
    read -r arl_line <"$arl_d/stat" || continue
    set -- ${{arl_line##*) }}
    case $1 in [ZX]) continue ;; esac
    arl_d=${{arl_d#/proc/}}
    [ "$arl_d" = 1 ] && continue
    eval "arl_p_$arl_d=$2 arl_s_$arl_d=$4"
    arl_all="$arl_all $arl_d"
  done
  arl_left=
  for arl_d in $arl_all; do
    arl_kept "$arl_d" || {{ kill -9 "$arl_d"; arl_left="$arl_left $arl_d"; }}
  done
  [ "$arl_left" ] || exit 0
  read -r arl_now arl_rest </proc/uptime
  [ "${{arl_now%%.*}}" -lt $arl_end ] || break
done 2>/dev/null
printf %s "$arl_left"
exit 1
"""
