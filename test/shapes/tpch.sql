-- Tables like those of TPC-H with made-up contents, few enough that ANALYZE reads
-- them all
CREATE TABLE region (r_regionkey int PRIMARY KEY, r_name char(25) NOT NULL, r_comment varchar(152));
CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name char(25) NOT NULL, n_regionkey int NOT NULL, n_comment varchar(152));
CREATE TABLE supplier (s_suppkey int PRIMARY KEY, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, s_nationkey int NOT NULL, s_phone char(15) NOT NULL, s_acctbal numeric(15, 2) NOT NULL, s_comment varchar(101) NOT NULL);
CREATE TABLE part (p_partkey int PRIMARY KEY, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, p_brand char(10) NOT NULL, p_type varchar(25) NOT NULL, p_size int NOT NULL, p_container char(10) NOT NULL, p_retailprice numeric(15, 2) NOT NULL, p_comment varchar(23) NOT NULL);
CREATE TABLE partsupp (ps_partkey int, ps_suppkey int, ps_availqty int NOT NULL, ps_supplycost numeric(15, 2) NOT NULL, ps_comment varchar(199) NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey));
CREATE TABLE customer (c_custkey int PRIMARY KEY, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, c_nationkey int NOT NULL, c_phone char(15) NOT NULL, c_acctbal numeric(15, 2) NOT NULL, c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL);
CREATE TABLE orders (o_orderkey int PRIMARY KEY, o_custkey int NOT NULL, o_orderstatus char(1) NOT NULL, o_totalprice numeric(15, 2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL, o_clerk char(15) NOT NULL, o_shippriority int NOT NULL, o_comment varchar(79) NOT NULL);
CREATE TABLE lineitem (l_orderkey int, l_partkey int NOT NULL, l_suppkey int NOT NULL, l_linenumber int, l_quantity numeric(15, 2) NOT NULL, l_extendedprice numeric(15, 2) NOT NULL, l_discount numeric(15, 2) NOT NULL, l_tax numeric(15, 2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, l_comment varchar(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber));

-- 0 to n - 1, like chance but the same each time
CREATE FUNCTION one_of(seed int, salt int, n int) RETURNS int IMMUTABLE LANGUAGE sql AS $$ SELECT (hashint8extended(seed, salt) & 1048575)::int % n $$;

INSERT INTO region SELECT i, (ARRAY['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'])[i + 1], 'region ' || i FROM generate_series(0, 4) i;
INSERT INTO nation SELECT i, CASE i WHEN 2 THEN 'BRAZIL' WHEN 3 THEN 'CANADA' WHEN 6 THEN 'FRANCE' WHEN 7 THEN 'GERMANY' WHEN 20 THEN 'SAUDI ARABIA' ELSE 'NATION ' || i END, i % 5, 'nation ' || i FROM generate_series(0, 24) i;
INSERT INTO supplier SELECT i, 'Supplier#' || i, 'address ' || i, one_of(i, 1, 25), 10 + one_of(i, 1, 25) || '-555', one_of(i, 2, 100000) / 10.0, CASE i % 20 WHEN 0 THEN 'Customer has Complaints' ELSE 'comment' END FROM generate_series(1, 100) i;
INSERT INTO part SELECT i, (ARRAY['forest', 'green', 'ivory', 'linen'])[1 + i % 4] || ' ' || i, 'Manufacturer#' || 1 + i % 5, 'Brand#' || 1 + i % 5 || 1 + one_of(i, 3, 5), (ARRAY['STANDARD', 'SMALL', 'MEDIUM', 'PROMO', 'ECONOMY'])[1 + one_of(i, 4, 5)] || ' ' || (ARRAY['ANODIZED', 'PLATED', 'POLISHED'])[1 + one_of(i, 5, 3)] || ' ' || (ARRAY['TIN', 'STEEL', 'BRASS'])[1 + one_of(i, 6, 3)], 1 + one_of(i, 7, 50), (ARRAY['SM', 'MED', 'LG'])[1 + i % 3] || ' ' || (ARRAY['CASE', 'BOX', 'PACK', 'BAG'])[1 + one_of(i, 8, 4)], 900 + i % 1000, 'comment' FROM generate_series(1, 2000) i;
INSERT INTO partsupp SELECT i, 1 + (i + j * 25) % 100, one_of(i, 10 + j, 10000), 1 + one_of(i, 20 + j, 1000), 'comment' FROM generate_series(1, 2000) i, generate_series(0, 3) j;
INSERT INTO customer SELECT i, 'Customer#' || i, 'address ' || i, one_of(i, 30, 25), 10 + one_of(i, 30, 25) || '-555', one_of(i, 31, 110000) / 10.0 - 1000, (ARRAY['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'])[1 + one_of(i, 32, 5)], 'comment' FROM generate_series(1, 1500) i;
INSERT INTO orders SELECT i, 1 + one_of(i, 40, 1000), (ARRAY['F', 'O', 'P'])[1 + one_of(i, 41, 3)], one_of(i, 42, 500000), date '1992-01-01' + one_of(i, 43, 2400), (ARRAY['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'])[1 + one_of(i, 44, 5)], 'Clerk#' || i % 10, 0, CASE i % 50 WHEN 0 THEN 'some special requests' ELSE 'comment' END FROM generate_series(1, 7000) i;
INSERT INTO lineitem SELECT o_orderkey, 1 + one_of(o_orderkey, 50 + j, 2000), 1 + one_of(o_orderkey, 60 + j, 100), j, 1 + one_of(o_orderkey, 70 + j, 50), one_of(o_orderkey, 80 + j, 90000), one_of(o_orderkey, 90 + j, 11) / 100.0, one_of(o_orderkey, 100 + j, 9) / 100.0, (ARRAY['A', 'N', 'R'])[1 + one_of(o_orderkey, 110 + j, 3)], (ARRAY['F', 'O'])[1 + j % 2], o_orderdate + 1 + one_of(o_orderkey, 120 + j, 120), o_orderdate + 30 + one_of(o_orderkey, 130 + j, 60), o_orderdate + 5 + one_of(o_orderkey, 140 + j, 150), (ARRAY['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'])[1 + one_of(o_orderkey, 150 + j, 4)], (ARRAY['AIR', 'AIR REG', 'FOB', 'MAIL', 'RAIL', 'SHIP', 'TRUCK'])[1 + one_of(o_orderkey, 160 + j, 7)], 'comment' FROM orders, generate_series(1, 4) j;

CREATE INDEX ON nation (n_regionkey);
CREATE INDEX ON supplier (s_nationkey);
CREATE INDEX ON partsupp (ps_suppkey);
CREATE INDEX ON customer (c_nationkey);
CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON orders (o_orderdate);
CREATE INDEX ON lineitem (l_partkey, l_suppkey) INCLUDE (l_quantity);
CREATE INDEX ON lineitem (l_shipdate);
CREATE INDEX ON lineitem (l_receiptdate) WHERE l_receiptdate > l_commitdate;
