#!/bin/sh
# Makes the secrets of a new installation, a file each, in the directory that is named. What is there is kept.
#   sh deploy/make-secrets.sh deploy/secrets
# `kek` is the Host's key: keep a copy of it, and of `admin-key`, apart from the backups. `ca.key` signs certificates of
# servers: no container is given it; keep it where you keep such keys. The certificates are good for two years: remove
# `nats-tls.*` and `postgres-tls.*`, run this again, and restart the servers, one at a time.
set -eu
directory=${1:?name the directory of the secrets}
# The directory keeps others out. The files are readable: containers that are given one have accounts of their own.
mkdir -p "$directory"
chmod 700 "$directory"
umask 022
cd "$directory"

# Writes standard input to a file that is not there yet.
put() { [ -e "$1" ] || { cat > "$1.new"; mv "$1.new" "$1"; }; }
random() { openssl rand -hex 24; }

openssl rand -base64 32 | put kek
printf 'hk_%s' "$(random)" | put admin-key
random | put postgres-password
printf 'agent-host' | put s3-access-key
random | put s3-secret-key

# Certificates: one authority, one certificate for the NATS servers, one for Postgres.
[ -e ca.key ] || {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj '/CN=agent-host' \
    -addext 'keyUsage=critical,keyCertSign' -keyout ca.key -out ca.crt 2> /dev/null
  chmod 600 ca.key
}
certificate() {
  [ -e "$1.crt" ] || {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" 2> /dev/null
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$2" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 730 -extfile "$1.ext" -out "$1.crt" 2> /dev/null
    rm "$1.csr" "$1.ext"
    chmod 644 "$1.key"
  }
}
certificate nats-tls DNS:nats,DNS:nats-0.nats,DNS:nats-1.nats,DNS:nats-2.nats,DNS:localhost
certificate postgres-tls DNS:postgres,DNS:localhost

# A user of NATS for each role; what each may do is in kubernetes/base/nats-permissions.conf.
users='api reads projector engine backup operator'
for user in $users; do
  random | put "nats-password-$user"
  password=$(cat "nats-password-$user")
  printf 'tls://%s:%s@nats-0.nats:4222,nats-1.nats:4222,nats-2.nats:4222' "$user" "$password" | put "nats-url-$user"
done
for user in $users; do
  printf 'PASSWORD_%s: "%s"\n' "$(printf %s "$user" | tr a-z A-Z)" "$(cat "nats-password-$user")"
done | put nats-auth.conf
printf 'postgres://host:%s@postgres:5432/host?sslmode=verify-full&sslrootcert=/run/secrets/ca.crt' \
  "$(cat postgres-password)" | put database-url
