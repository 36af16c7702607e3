# psycopg: parameters that the server binds, pipelines, cursors and COPY
from datetime import timedelta

import psycopg
from psycopg.rows import dict_row

from lib import equal, expire, pause, raises, reaped, sql, stored, value

connection = psycopg.connect("", autocommit=True)


def execute(text, *parameters):
    return connection.execute(text, parameters)


def one(text, *parameters):
    return execute(text, *parameters).fetchone()[0]


# parameters have the types that the server gives them; psycopg2, which the others use, sends literals
execute("CREATE TABLE item (id int PRIMARY KEY, note text)")
execute("SELECT ttl.create_container(%s, %s)", "item", 3600)
equal(one("SELECT ttl.default_ttl(%s)", "item"), 3600)
for parameter, seconds in ((60, 60), ("90", 90), (-1, -1), (None, None), (timedelta(hours=1), 3600), ("2 days", 172800), (1800, 1800)):
    for send in execute, lambda text, *parameters: sql(text, parameters):
        send("SELECT ttl.set_default_ttl(%s, 7)", "item")
        send("SELECT ttl.set_default_ttl(%s, %s)", "item", parameter)
        equal(one("SELECT ttl.default_ttl(%s)", "item"), seconds)
with raises(psycopg.errors.InvalidParameterValue):
    execute("SELECT ttl.set_default_ttl(%s, %s)", "item", 0)
execute("CALL ttl.reap(%s)", "item")
pause("item")

# rows as they were read are written back
with connection.cursor(row_factory=dict_row) as cursor:
    row = cursor.execute("INSERT INTO item (id, note, ttl) VALUES (%s, %s, %s) RETURNING *", (1, "x", 60)).fetchone()
    again = cursor.execute("UPDATE item SET id = %(id)s, note = %(note)s, _ts = %(_ts)s, ttl = %(ttl)s RETURNING *", row).fetchone()
    assert again["_ts"] > row["_ts"]
equal(one("SELECT ttl.time_to_live(item) FROM item"), 60)

# COPY stamps, and keeps a _ts that is given
with connection.cursor() as cursor, cursor.copy("COPY item (id, note) FROM STDIN") as copy:
    for id in range(2, 1001):
        copy.write_row((id, "copied"))
with connection.cursor() as cursor, cursor.copy("COPY item (id, _ts) FROM STDIN") as copy:
    copy.write_row((1001, "2020-01-01"))
equal(one("SELECT count(*) FROM item"), 1000)
equal(stored("item"), 1001)

# a prepared statement, with a generic plan, over rows that expire
find = lambda id: connection.execute("SELECT id FROM item WHERE id = %s", (id,), prepare=True).rowcount
assert all(find(id) for id in range(2, 30))
expire("item", "id % 2 = 1")
assert all(find(id) == 1 - id % 2 for id in range(2, 30))

# many statements in one go, on keys that have expired, with one error among them
with connection.pipeline(), connection.cursor() as cursor:
    cursor.executemany("INSERT INTO item (id, note) VALUES (%s, %s) RETURNING id", [(id, "again") for id in range(3, 103, 2)], returning=True)
equal(one("SELECT count(*) FROM item WHERE note = 'again'"), 50)
with raises(psycopg.errors.UniqueViolation), connection.transaction():
    execute("INSERT INTO item (id) VALUES (103)")
    execute("INSERT INTO item (id) VALUES (3)")
equal(one("SELECT count(*) FROM item WHERE id = 103"), 0)

# a cursor WITH HOLD, and one that scrolls, while the worker deletes
with connection.cursor("held", withhold=True) as held:
    held.execute("SELECT id FROM item WHERE id > 102 ORDER BY id")
    equal(held.fetchmany(2), [(104,), (106,)])
    with connection.transaction(), connection.cursor("scrolled", scrollable=True) as scrolled:
        scrolled.execute("SELECT id FROM item WHERE id > 102 ORDER BY id")
        equal(scrolled.fetchmany(3), [(104,), (106,), (108,)])
        expire("item", "id % 4 = 0")
        reaped("item")
        scrolled.scroll(1, mode="absolute")
        equal(scrolled.fetchmany(2), [(106,), (108,)])
    equal(len(held.fetchall()), 447)
equal(stored("item"), one("SELECT count(*) FROM item"))

# two sessions write the same expired key: one waits for the other
pause("item")
expire("item", "id = 3")
with psycopg.connect("", autocommit=True) as other:
    with connection.transaction():
        execute("INSERT INTO item (id, note) VALUES (3, 'first')")
        other.execute("SET lock_timeout = '50ms'")
        with raises(psycopg.errors.LockNotAvailable):
            other.execute("INSERT INTO item (id, note) VALUES (3, 'second')")
    with raises(psycopg.errors.UniqueViolation):
        other.execute("INSERT INTO item (id, note) VALUES (3, 'second')")

# a row that is about to expire, and is renewed by another session meanwhile
execute("UPDATE item SET ttl = 1 WHERE id = 3")
with psycopg.connect("", autocommit=True) as other:
    other.execute("UPDATE item SET ttl = 3600 WHERE id = 3")
reaped("item")
equal(one("SELECT note FROM item WHERE id = 3"), "first")
connection.close()
