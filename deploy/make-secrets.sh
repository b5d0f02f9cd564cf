#!/bin/sh
# Makes the secrets of a new installation, a file each, in the directory that is named. What is there is kept.
#   sh deploy/make-secrets.sh deploy/secrets
# `kek` is the Host's key: keep a copy of it, and of `admin-key`, apart from the backups.
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
random | put nats-password
random | put postgres-password
printf 'agent-host' | put s3-access-key
random | put s3-secret-key
printf 'authorization { user: "host", password: "%s" }\n' "$(cat nats-password)" | put nats-auth.conf
printf 'nats://host:%s@nats-0.nats:4222,nats-1.nats:4222,nats-2.nats:4222' "$(cat nats-password)" | put nats-url
printf 'postgres://host:%s@postgres:5432/host' "$(cat postgres-password)" | put database-url
