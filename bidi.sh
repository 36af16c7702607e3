set -e
B=/usr/lib/postgresql/17/bin; W=/tmp/bidi; rm -rf $W; mkdir -p $W
for n in 1 2; do
$B/initdb -D $W/d$n -A trust -U dev >/dev/null
cat >> $W/d$n/postgresql.conf <<X
shared_preload_libraries = 'ttl'
port = 562$n
listen_addresses = '127.0.0.1'
unix_socket_directories = '$W'
wal_level = logical
ttl.naptime = 100ms
ttl.grace = 0
X
$B/pg_ctl -w -D $W/d$n -l $W/log$n start >/dev/null
done
q() { echo "-- $1: $2"; $B/psql -XAtq -h $W -p 562$1 -U dev postgres -c "$2" 2>&1; }
for n in 1 2; do q $n "CREATE EXTENSION ttl" ; q $n "CREATE TABLE session (id int PRIMARY KEY, note text)"; q $n "SELECT ttl.create_container('session', '1 hour')"; q $n "CREATE PUBLICATION p FOR TABLE session"; done
q 1 "CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1 port=5622 user=dev dbname=postgres' PUBLICATION p WITH (origin = none, copy_data = false)"
q 2 "CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1 port=5621 user=dev dbname=postgres' PUBLICATION p WITH (origin = none, copy_data = false)"
q 1 "SELECT * FROM ttl.status"; q 2 "SELECT * FROM ttl.status"
q 1 "INSERT INTO session (id, note, _ts) SELECT g, '1', '2020-01-01' FROM generate_series(1, 100) g"
q 2 "INSERT INTO session (id, note, _ts) SELECT g, '2', '2020-01-01' FROM generate_series(101, 200) g"
q 1 "INSERT INTO session (id, note) VALUES (1001, 'live 1')"; q 2 "INSERT INTO session (id, note) VALUES (1002, 'live 2')"
sleep 2
for n in 1 2; do q $n "SELECT ttl.expired_count('session'), count(*) FROM session"; done
sleep 3; echo "nothing deletes:"; for n in 1 2; do q $n "SELECT ttl.expired_count('session')"; done
q 1 "SELECT ttl.alter_container('session', reaping => true, reap_delay => '5 minutes')"
sleep 4
for n in 1 2; do q $n "SELECT ttl.expired_count('session'), count(*) FROM session"; q $n "SELECT container, rows_deleted, rows_evicted FROM ttl.stat_containers"; q $n "SELECT * FROM ttl.status"; done
echo "renewal on 2 of a row that has expired on 1 in the delay"
q 2 "INSERT INTO session (id, note, _ts) VALUES (5, 'anew', now() - interval '3599 s')"; sleep 1.5; for n in 1 2; do q $n "SELECT ttl.expired_count('session')"; done
q 2 "INSERT INTO session (id, note) VALUES (5, 'evicts')"; sleep 1.5; for n in 1 2; do q $n "SELECT * FROM session ORDER BY id"; done
grep -E "ERROR|conflict" $W/log1 $W/log2 | head
for n in 1 2; do $B/pg_ctl -w -D $W/d$n stop -m fast >/dev/null; done
