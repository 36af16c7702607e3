-- pgbench's tables, smaller, and its queries
CREATE TABLE pgbench_branches (bid int NOT NULL, bbalance int, filler char(88)) WITH (fillfactor = 100);
CREATE TABLE pgbench_tellers (tid int NOT NULL, bid int, tbalance int, filler char(84)) WITH (fillfactor = 100);
CREATE TABLE pgbench_accounts (aid int NOT NULL, bid int, abalance int, filler char(84)) WITH (fillfactor = 100);
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
INSERT INTO pgbench_branches SELECT i, 0 FROM generate_series(1, 2) i;
INSERT INTO pgbench_tellers SELECT i, (i - 1) / 10 + 1, 0 FROM generate_series(1, 20) i;
INSERT INTO pgbench_accounts SELECT i, (i - 1) / 10000 + 1, 0, '' FROM generate_series(1, 20000) i;
INSERT INTO pgbench_history SELECT i % 20 + 1, i % 2 + 1, i * 7 % 20000 + 1, i % 5000, '2026-01-01' FROM generate_series(1, 2000) i;
ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid);
ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid);
ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid);
