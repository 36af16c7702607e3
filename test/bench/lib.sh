# test/bench/lib.sh - a private server for the benchmarks
#
# PG_CONFIG chooses the server, in which ttl is installed.  Needs pgbench, and gnuplot (Debian:
# gnuplot-nox) for the plots.  Run as a user whom PostgreSQL accepts: not root.
set -euo pipefail
export LC_ALL=C
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
OUT=${OUT:-$HERE/results}
BIN=$("${PG_CONFIG:-pg_config}" --bindir)
PATH=$BIN:$PATH
W=$(mktemp -d "${TMPDIR:-/tmp}/ttl-bench-XXXXXX")
export PGHOST=$W PGDATABASE=postgres PGUSER=bench
unset PGPORT
mkdir -p "$OUT"

server_stop() {
    pg_ctl -D "$W/data" -m immediate -w stop > /dev/null 2>&1 || true
    rm -rf "$W"
}
trap server_stop EXIT

# server_start [LINE OF postgresql.conf...]
server_start() {
    initdb -D "$W/data" -U bench -A trust --no-sync > /dev/null
    {
        echo "listen_addresses = ''"
        echo "unix_socket_directories = '$W'"
        echo "shared_preload_libraries = 'ttl'"
        echo "shared_buffers = 512MB"
        echo "max_wal_size = 8GB"
        echo "checkpoint_timeout = 1h"
        printf '%s\n' "$@"
    } >> "$W/data/postgresql.conf"
    pg_ctl -D "$W/data" -l "$W/log" -w start > /dev/null
    q "CREATE EXTENSION ttl"
}

q() { psql -XAtq -v ON_ERROR_STOP=1 -c "$1"; }

# set_conf LINE...: takes effect with a reload
set_conf() {
    printf '%s\n' "$@" >> "$W/data/postgresql.conf"
    pg_ctl -D "$W/data" reload > /dev/null
    sleep 0.3
}

now() { date +%s.%N; }
minus() { awk "BEGIN { printf \"%.3f\", $1 - $2 }"; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
