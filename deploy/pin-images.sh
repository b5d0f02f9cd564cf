#!/bin/sh
# Asks the registries for the digests of the images and writes them down, for Kubernetes and for compose. Needs docker with
# buildx, or crane. Run it when a version changes, and look at the difference before you apply it.
#   sh deploy/pin-images.sh                                        for compose
#   sh deploy/pin-images.sh registry.example.com/agent-host        for Kubernetes too, with the Host's image there
set -eu
cd "$(dirname "$0")"
host=${1:-}

NATS=nats:2.15.1-alpine
POSTGRES=postgres:18.4
OBJECTS=versity/versitygw:v1.0.16
BALANCER=haproxy:3.2.1-alpine
NODE=node:26.10.0-slim
HOST_TAG=0.13.0-beta

digest() {
  if command -v crane > /dev/null; then found=$(crane digest "$1"); else found=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$1"); fi
  printf %s "$found" | grep -Eq '^sha256:[0-9a-f]{64}$' || { echo "no digest of $1: $found" >&2; exit 1; }
  printf %s "$found"
}
# A failure in the middle leaves what was there.
nats=$(digest "$NATS")
if [ -n "$host" ]; then
  own=$(digest "$host:$HOST_TAG")
  {
    printf 'apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nimages:\n'
    printf '  - { name: nats, digest: "%s" }\n' "$nats"
    printf '  - { name: agent-host, newName: "%s", digest: "%s" }\n' "$host" "$own"
  } > images.new
fi
postgres=$(digest "$POSTGRES")
objects=$(digest "$OBJECTS")
balancer=$(digest "$BALANCER")
node=$(digest "$NODE")
{
  printf 'services:\n'
  for server in nats-0 nats-1 nats-2; do printf '  %s: { image: "%s@%s" }\n' "$server" "$NATS" "$nats"; done
  printf '  postgres: { image: "%s@%s" }\n' "$POSTGRES" "$postgres"
  printf '  objects: { image: "%s@%s" }\n' "$OBJECTS" "$objects"
  printf '  balancer: { image: "%s@%s" }\n' "$BALANCER" "$balancer"
  for role in migrate api projector engine; do printf '  %s: { build: { args: { NODE: "%s@%s" } } }\n' "$role" "$NODE" "$node"; done
} > compose.images.new
if [ -n "$host" ]; then
  mkdir -p kubernetes/example/images
  mv images.new kubernetes/example/images/kustomization.yaml
fi
mv compose.images.new compose.images.yaml
