/**
 * Functions of a shell that speak to the proxy of the command, for images without programs that do: `ask METHOD URL` shows
 * a whole answer, `dial HOST:PORT` the first line of one, `use URL` takes another proxy.
 */
export const ASK = String.raw`
use() {
  local proxy=${'$'}{1#http://}
  at=${'$'}{proxy##*@}
  credential=$(printf %s "${'$'}{proxy%@*}" | base64 -w0)
}
begin() { exec 3<>"/dev/tcp/${'$'}{at%:*}/${'$'}{at##*:}"; }
ask() {
  begin || return
  printf '%s %s HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\nConnection: close\r\n\r\n' "$1" "$2" "$credential" >&3
  cat <&3; echo; exec 3>&-
}
dial() {
  begin || return
  printf 'CONNECT %s HTTP/1.1\r\nProxy-Authorization: Basic %s\r\n\r\n' "$1" "$credential" >&3
  read -r line <&3; echo "$line"; exec 3>&-
}
use "$HTTP_PROXY"`.trim();
