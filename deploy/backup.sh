#!/bin/sh
# Dumps the database that PGHOST, PGUSER, PGDATABASE and PGPASSWORD name into BACKUP_DIR, each BACKUP_SECONDS, and keeps
# the newest BACKUP_KEEP dumps. compose.yaml runs it. With the argument `once` it makes one dump.
set -eu
cd "${BACKUP_DIR:-/backups}"

back_up() {
  name="gatehouse-$(date -u +%Y%m%dT%H%M%SZ).dump"
  # A dump has its name when it is complete.
  if pg_dump --format=custom --file=unfinished && mv unfinished "$name"; then
    echo "$name"
    ls -1r gatehouse-*.dump | tail -n "+$((${BACKUP_KEEP:-7} + 1))" | xargs -r rm --
  else
    rm -f unfinished
    return 1
  fi
}

if [ "${1:-}" = once ]; then
  back_up
  exit
fi
while :; do
  if back_up; then sleep "${BACKUP_SECONDS:-86400}"; else sleep 600; fi
done
