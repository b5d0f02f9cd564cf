/**
 * What runs in the pod: bash with coreutils, findutils and util-linux, which every Debian image has. A program that is
 * started by an exec outlives its connection, and output can be lost on the way without a word. So a command has a
 * directory of its own for what it has written and how it ended, beside the workspace on the volume; it is begun once,
 * however often that is asked for, and its output is read by offset until all is there.
 */

/** How a program refuses. */
export const EXIT = { givenUp: 94, cutInput: 95, noState: 96, locked: 97, fenced: 98 } as const;
/** Of each output, that `RUN` shows by itself. */
export const SHOWN_BYTES = 65_536;
/** Of each output, after which a command that writes without end is ended. */
export const OUTPUT_BYTES_MAX = 33_554_432;

export const MOUNTS = { workspace: '/workspace', state: '/agent-host', tmp: '/tmp' } as const;

/** The first process: it has no children of its own, adopts those of others, and waits. */
export const INIT = "trap 'exit 0' TERM; exec 3<> <(:); while :; do read -r -t 3600 -u 3; done";

const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** Ends the command of the call in `d` for a reason, of which the first counts. */
const END = `
end() {
  [ ! -e "$d/result" ] || return
  (set -C; echo "$1" > "$d/why")
  read -r group < "$d/group" && kill -KILL -- "-$group" "$group"
} 2>/dev/null
`;

/**
 * The leader of a call: holds the pod's lock (9) and that of the call (7) until nothing of its command is left. What a
 * command leaves behind ends up as a child of the pod's first process, and is ended there; where the first process is not
 * the pod's own, by a mark in its environment. @param variables of the command, beside those that all have
 */
export const leaderOf = (variables: Readonly<Record<string, string>>): string => `
${END}
d=calls/$1 call=$1 seconds=$4 most=$6 own=
oom() { local n=0 name value; while read -r name value; do [ "$name" != oom_kill ] || n=$value; done < /sys/fs/cgroup/memory.events; echo "$n"; } 2>/dev/null
keep() { head -c "$most" < "$d/$1.in" > "$d/$1"; [ "$(stat -c %s "$d/$1")" -lt "$most" ] || end output; }
isOrphan() {
  local text
  IFS= read -r -d '' text < "/proc/$1/stat"; set -- \${text##*) }
  [ "$2" = 1 ] && [ "$1" != Z ]
}
sweep() {
  local entry pid found
  while IFS= read -r -d '' entry; do [ "$entry" != "AGENT_HOST_SANDBOX=\${AGENT_HOST_SANDBOX:?}" ] || own=1; done < /proc/1/environ
  for ((round = 0; round < 200; round++)); do
    found=
    if [ -n "$own" ]; then
      # Without a process of its own: there may be no room for one.
      for pid in /proc/[0-9]*; do
        pid=\${pid#/proc/}
        case $pid in 1|$$) continue;; esac
        isOrphan "$pid" && kill -KILL "$pid" && found=1
      done
    else
      for pid in $(grep -slzx "SANDBOX_CALL=$call" /proc/[0-9]*/environ | cut -d / -f 3); do kill -KILL "$pid" && found=1; done
    fi
    [ -n "$found" ] || return 0
  done
} 2>/dev/null
used() { local bytes; read -r bytes _ < <(du -sx -B1 "$AGENT_HOST_WORKSPACE" 2>/dev/null); echo "\${bytes:-0}"; }
read -r before < used || before=$(used)
mkfifo "$d/out.in" "$d/err.in"
keep out 7>&- 9>&- & outKeeper=$!
keep err 7>&- 9>&- & errKeeper=$!
exec 3> "$d/out.in" 4> "$d/err.in"
killed=$(oom)
script=$(< "$d/script")
(
  cd "$AGENT_HOST_WORKSPACE" || exit 126
  export HOME=$AGENT_HOST_TMP TMPDIR=$AGENT_HOST_TMP USER=agent LOGNAME=agent SHELL=/bin/bash SANDBOX_CALL=$call
  : "\${LANG:=C.UTF-8}"; export LANG
  unset AGENT_HOST_WORKSPACE AGENT_HOST_STATE AGENT_HOST_TMP AGENT_HOST_SANDBOX AGENT_HOST_EPOCH
  ${Object.entries(variables)
    .map(([name, value]) => `export ${name}=${quoted(value)};`)
    .join(' ')}
  exec setsid bash -c "$script"
) < /dev/null >&3 2>&4 3>&- 4>&- 7>&- 9>&- & leader=$!
exec 3>&- 4>&-
echo "$leader" > "$d/group"
[ ! -e "$d/why" ] || kill -KILL "$leader"
(
  sleep "$seconds" & sleeper=$!
  trap 'kill "$sleeper"; exit' TERM
  wait "$sleeper"; end timeout
) 7>&- 9>&- & clock=$!
wait "$leader"; code=$?
kill "$clock"; kill -KILL -- "-$leader"
sweep
(sleep 5; kill -KILL "$outKeeper" "$errKeeper") 7>&- 9>&- & late=$!
wait "$outKeeper" "$errKeeper"
kill -KILL "$late"
find "\${AGENT_HOST_TMP:?}" -mindepth 1 -delete
times > "$d/times"
{ read -r; read -r user system; } < "$d/times"
why=-; [ ! -e "$d/why" ] || read -r why < "$d/why"
after=$(used); echo "$after" > used
echo "$code $why $(( $(oom) - killed )) $user $system $((after > before ? after - before : 0))" > "$d/result.new"
mv "$d/result.new" "$d/result"
`;

/**
 * `RUN <call> <hostEpoch> <epoch> <seconds> <bytes> <most> <leader bytes>`, the leader and the script on its input: begins
 * the call unless it was, and waits for its end. Shows `ended <code> <why> <oom> <user> <system> <written> <out> <err>` (the last three in bytes) and the
 * beginning of both outputs; `none` when it has ended without saying how.
 * That a call was begun stays noted for as long as its turn has the pod, while what it wrote goes with the next one: an exec
 * whose connection was cut may begin when its call has long ended and another is under way.
 */
export const RUN = `
${END}
umask 022
cd "\${AGENT_HOST_STATE:?}" || exit ${EXIT.noState}
[ "$2" = "$AGENT_HOST_EPOCH" ] || exit ${EXIT.fenced}
d=calls/$1 turn=begun/$2.$3 go=begun/$2.$3/$1
isNewer() { read -r host hold other < fence && (( host > $1 || (host == $1 && hold > $2) )); } 2>/dev/null
if [ ! -e "$go" ]; then
  mkdir -p "$d" && head -c "$7" > "$d/leader.$$" && head -c "$5" > "$d/script.$$"
  [ "$(stat -c %s "$d/script.$$")" = "$5" ] || exit ${EXIT.cutInput}
  exec 9>> turn 7>> "$d/lock"
  for ((n = 0; ; n++)); do
    ! flock -w 0.5 9 || break
    [ ! -e "$go" ] || break
    ! isNewer "$2" "$3" || exit ${EXIT.fenced}
    ((n < 40)) || exit ${EXIT.locked}
    read -r host hold other < fence && d=calls/$other end fenced
  done
  if [ ! -e "$go" ]; then
    ! isNewer "$2" "$3" || exit ${EXIT.fenced}
    [ ! -e "$d/why" ] || exit ${EXIT.givenUp}
    flock 7
    mv "$d/script.$$" "$d/script" || exit ${EXIT.locked}
    echo "$2 $3 $1" > fence.new && mv fence.new fence && mkdir -p "$turn" && mkdir "$go" || exit ${EXIT.noState}
    for other in calls/*; do [ "$other" = "$d" ] || flock -n "$other/lock" rm -rf "$other"; done
    for other in begun/*; do [ "$other" = "$turn" ] || rm -rf "$other"; done
    leader=$(< "$d/leader.$$")
    (setsid bash -c "$leader" agent-host "$@" < /dev/null > /dev/null 2>&1 &)
  fi
  exec 9>&- 7>&-
fi
flock -s "$d/lock" true
read -r line < "$d/result" || { echo none; exit 0; }
echo "ended $line $(stat -c %s "$d/out") $(stat -c %s "$d/err")"
head -c ${SHOWN_BYTES} "$d/out"
head -c ${SHOWN_BYTES} "$d/err"
`;

/** `OUTPUT <call> out|err <offset> <bytes>`: a part of what a call has written. */
export const OUTPUT = `
cd "\${AGENT_HOST_STATE:?}" || exit ${EXIT.noState}
tail -c "+$(($3 + 1))" "calls/$1/$2" | head -c "$4"
`;

/** `KILL <call> <hostEpoch> <epoch>`: ends a call, also one that is only about to begin, whenever that is. */
export const KILL = `
${END}
cd "\${AGENT_HOST_STATE:?}" || exit ${EXIT.noState}
d=calls/$1
mkdir -p "$d" "begun/$2.$3/$1"
end aborted
[ ! -e "$d/lock" ] || flock -s -w 15 "$d/lock" true
`;
