-- What pgbench's scripts read, as they are sent and prepared
SELECT abalance FROM pgbench_accounts WHERE aid = 4711;
PREPARE balance (int) AS SELECT abalance FROM pgbench_accounts WHERE aid = $1;
EXECUTE balance (4711);
SET plan_cache_mode = force_generic_plan;
EXECUTE balance (4711);
RESET plan_cache_mode;
SELECT tbalance FROM pgbench_tellers WHERE tid = 7;
SELECT bbalance FROM pgbench_branches WHERE bid = 1;

-- Its checks, and what one asks of its tables
SELECT count(*) FROM pgbench_branches;
SELECT count(*) FROM pgbench_accounts;
SELECT count(*) FROM pgbench_accounts WHERE aid BETWEEN 100 AND 10000;
SELECT sum(abalance) FROM pgbench_accounts;
SELECT max(aid) FROM pgbench_accounts;
SELECT bid, sum(abalance) FROM pgbench_accounts GROUP BY bid ORDER BY bid;
SELECT aid FROM pgbench_accounts ORDER BY aid DESC LIMIT 10;
SELECT a.bid, sum(h.delta) FROM pgbench_history h JOIN pgbench_accounts a USING (aid) GROUP BY a.bid;
SELECT t.tid, sum(h.delta) FROM pgbench_tellers t LEFT JOIN pgbench_history h USING (tid) GROUP BY t.tid HAVING sum(h.delta) > 0;
SELECT b.bbalance, t.tbalance, a.abalance FROM pgbench_accounts a JOIN pgbench_branches b USING (bid) JOIN pgbench_tellers t USING (bid) WHERE a.aid < 50;
