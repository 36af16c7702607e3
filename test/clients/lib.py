# test/clients/lib.py - what the programs for Python share; as lib.js
#
# Each works as the application would, whose role owns its tables and is no superuser; an exception
# ends it with a non-zero status.
import contextlib
import time

import psycopg2

connection = psycopg2.connect("")
connection.autocommit = True


def sql(text, values=None):
    """A statement, or several; the rows of the last."""
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return cursor.fetchall() if cursor.description else []


def value(text, values=None):
    """The same, of which only the first value counts."""
    rows = sql(text, values)
    return rows[0][0] if rows else None


def expire(table, condition="true", deadline="_ts"):
    """Has these rows expire now: they were last changed long ago, or their deadline is over."""
    sql(f"""
        BEGIN;
        SET LOCAL ttl.touch = off;
        UPDATE {table} SET {deadline} = now() - interval '1 year' WHERE {condition};
        COMMIT""")


def stored(table):
    """The rows that are stored, expired or not: their owner may see them."""
    sql("SET row_security = off")
    rows = value(f"SELECT count(*) FROM {table}")
    sql("RESET row_security")
    return rows


def pause(table):
    """Has the background worker leave the table alone, so that tests can tell what is hidden from what is deleted."""
    sql(f"SELECT ttl.alter_container('{table}', reaping => false)")


def reaped(table):
    """Lets it work, and waits until it has deleted what has expired.  It looks when the policy is set."""
    sql(f"SELECT ttl.alter_container('{table}', reaping => true)")
    sql(f"SELECT ttl.set_default_ttl('{table}', ttl.default_ttl('{table}'))")
    for _ in range(600):
        if value(f"SELECT ttl.expired_count('{table}')") == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"in vain: {table} is reaped")


def equal(got, expected):
    assert got == expected, f"{got!r} instead of {expected!r}"


@contextlib.contextmanager
def raises(error, name=""):
    """What is in the block fails so."""
    try:
        yield
    except error as e:
        assert name in repr(e), repr(e)
    else:
        raise AssertionError(f"no {error.__name__}")
