# test/bench/lib.sh - a private server for the benchmarks
#
# PG_CONFIG chooses the server, in which ttl is installed.  Needs pgbench, and gnuplot (Debian:
# gnuplot-nox) for the plots.  Run as a user whom PostgreSQL accepts: not root.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
export LC_ALL=C
OUT=${OUT:-$TOP/test/bench/results}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
prepare_installed
W=$WORK
export PGDATABASE=postgres

# server_start [LINE OF postgresql.conf...]
server_start() {
    start_server "shared_buffers = 512MB" "max_wal_size = 8GB" "checkpoint_timeout = 1h" "$@"
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
