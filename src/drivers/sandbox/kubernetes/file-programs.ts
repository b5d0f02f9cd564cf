import { EXIT } from './programs.ts';

/**
 * Programs in the pod that look at its files. They follow no link: not because it would lead to anything of the Host's, but
 * because the pods of every driver show the same files.
 */
const PATHS = `
cd "\${AGENT_HOST_WORKSPACE:?}" || exit ${EXIT.noState}
umask 022
hasNoLink() {
  local at=. part parts
  IFS=/ read -r -a parts <<< "$1"
  for part in "\${parts[@]}"; do at=$at/$part; [ ! -L "$at" ] || return 1; done
}
`;

/** `ENTRY <path> [hash]`: `none`, `directory`, or `file <size> <mode> <sha256 or ->`. */
export const ENTRY = `
${PATHS}
hasNoLink "$1" || { echo none; exit; }
if [ -d "./$1" ]; then echo directory
elif [ -f "./$1" ] && [ -r "./$1" ]; then
  hash=-; [ -z "$2" ] || read -r hash _ < <(sha256sum < "./$1")
  echo "file $(stat -c '%s %a' "./$1") $hash"
else echo none; fi
`;

/** `READ <path> <offset> <bytes>`: \`none\`, or \`file <bytes that follow>\` and a part of a file. */
export const READ = `
${PATHS}
hasNoLink "$1" && [ -f "./$1" ] && [ -r "./$1" ] || { echo none; exit; }
left=$(( $(stat -c %s "./$1") - $2 ))
((left > 0)) || left=0
((left < $3)) || left=$3
echo "file $left"
tail -c "+$(($2 + 1))" "./$1" | head -c "$left"
`;

/** `READ_ALL <bytes>`, paths on its input, each with a NUL after it: for each what `READ` shows of the whole. */
export const READ_ALL = `
${PATHS}
head -c "$1" | while IFS= read -r -d '' path; do
  hasNoLink "$path" && [ -f "./$path" ] && [ -r "./$path" ] || { echo none; continue; }
  size=$(stat -c %s "./$path")
  echo "file $size"
  head -c "$size" "./$path"
done
echo end
`;

/** `LIST <path> <entries> [hash]`: files and empty directories with NULs after them, then `end`. */
export const LIST = `
${PATHS}
show() { find "./$1" -xdev \\( -type f -readable -o -type d -empty \\) -printf '%y %s %m %p\\0' 2>/dev/null | head -z -n "$2"; }
if hasNoLink "$1" && [ -e "./$1" ]; then
  show "$1" "$2"
  if [ -n "$3" ]; then find "./$1" -xdev -type f -readable -print0 2>/dev/null | head -z -n "$2" | xargs -0 -r sha256sum -z -- 2>/dev/null; fi
fi
printf 'end\\0'
`;

/** `WRITE <path> <mode> <bytes> <name>`, the bytes on its input: `written`, `refused` or `full`. */
export const WRITE = `
${PATHS}
at=. name=\${1##*/}
IFS=/ read -r -a parts <<< "\${1%"$name"}"
for part in "\${parts[@]}"; do
  at=$at/$part
  if [ -L "$at" ]; then echo refused; exit; fi
  [ -d "$at" ] || mkdir "$at" 2>/dev/null || { echo refused; exit; }
done
if [ -d "./$1" ] && [ ! -L "./$1" ]; then echo refused; exit; fi
if ! head -c "$3" > "$at/.$4" 2>/dev/null; then rm -f "$at/.$4"; echo full; exit; fi
if [ "$(stat -c %s "$at/.$4")" != "$3" ]; then rm -f "$at/.$4"; exit ${EXIT.cutInput}; fi
chmod "$2" "$at/.$4" && mv -Tf "$at/.$4" "$at/$name" 2>/dev/null || { rm -f "$at/.$4"; echo refused; exit; }
echo written
`;

/** `MAKE_DIRECTORY <path>` */
export const MAKE_DIRECTORY = `
${PATHS}
hasNoLink "$1" && mkdir -p "./$1" 2>/dev/null
echo done
`;

/** `REMOVE <path>`: `removed`, or `none`. */
export const REMOVE = `
${PATHS}
case $1 in */*) hasNoLink "\${1%/*}" || { echo none; exit; };; esac
[ -e "./$1" ] || [ -L "./$1" ] || { echo none; exit; }
rm -rf -- "./$1" 2>/dev/null || { [ ! -L "./$1" ] && chmod -R u+rwX -- "./$1" && rm -rf -- "./$1"; } || exit ${EXIT.noState}
echo removed
`;

/** `USED`: bytes of the disk that the workspace takes. */
export const USED = `
${PATHS}
du -sx -B1 . 2>/dev/null | cut -f 1
`;
