# Django: sessions, cache, models and migrations
import os
from datetime import timedelta

import django
from django.conf import settings
from django.core.management import call_command

from lib import equal, expire, pause, raises, reaped, sql, stored, value

settings.configure(
    SECRET_KEY="secret",
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["django.contrib.sessions", "shop"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}},
    CACHES={"default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "django_cache"}},
)
django.setup()

from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.db import SessionStore
from django.core.cache import cache
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import Count, F, Sum

from shop.models import Basket, Line


def migrate():
    """Migrations go both ways, and leave nothing to be made."""
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
    call_command("migrate", verbosity=0)
    call_command("migrate", "shop", "0001", verbosity=0)
    equal(sql("SELECT * FROM ttl.containers"), [])
    call_command("migrate", verbosity=0)
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
    equal(value("SELECT container::text FROM ttl.containers"), "shop_basket")


def sessions(clock):
    pause("django_session")
    keys = []
    for name in "abc":
        session = SessionStore()
        session["name"] = name
        session.create()
        keys.append(session.session_key)
    a, b, c = keys
    expire("django_session", f"session_key IN ('{a}', '{b}')", clock)

    # an expired session is none
    equal(SessionStore(c)["name"], "c")
    equal(SessionStore(a).get("name"), None)
    assert not SessionStore().exists(a)
    SessionStore(a).delete()
    equal(stored("django_session"), 3)

    # one that expires between reading and saving
    late = SessionStore(c)
    late["visits"] = 1
    expire("django_session", f"session_key = '{c}'", clock)
    with raises(UpdateError):
        late.save()

    # its key can be used again
    again = SessionStore(a)
    again["name"] = "again"
    again._session_key = a
    again.save(must_create=True)
    equal(SessionStore(a)["name"], "again")
    again.cycle_key()
    equal(SessionStore(a).get("name"), None)
    equal(stored("django_session"), 3)

    # the command that cleans finds nothing to do
    call_command("clearsessions")
    equal(SessionStore(again.session_key)["name"], "again")
    reaped("django_session")
    equal(stored("django_session"), 1)


def caching(clock):
    pause("django_cache")
    cache.set_many({key: key.upper() for key in "abcdef"})
    expire("django_cache", "cache_key IN (':1:a', ':1:b', ':1:c')", clock)

    equal(cache.get_many("abcd"), {"d": "D"})
    assert "a" not in cache
    equal(cache.touch("a"), False)
    equal(cache.delete("a"), False)
    equal(stored("django_cache"), 6)

    # keys that have expired are free
    cache.set("a", 1)
    equal(cache.incr("a"), 2)
    assert cache.add("b", 3)
    assert not cache.add("b", 4)
    equal(cache.get_or_set("c", lambda: 5), 5)
    cache.set("forever", 6, None)
    equal(cache.get_many("abc"), {"a": 2, "b": 3, "c": 5})
    equal(stored("django_cache"), 7)

    # what Django culls when there is too much
    expire("django_cache", "cache_key < ':1:d'", clock)
    cache._max_entries = 3
    cache.set("g", 7)
    cache._max_entries = 300
    assert cache.get("forever") == 6 and cache.get("g") == 7
    reaped("django_cache")
    equal(stored("django_cache"), value("SELECT count(*) FROM django_cache"))
    cache.clear()
    equal(stored("django_cache"), 0)


def models():
    pause("shop_basket")
    Basket.objects.bulk_create([Basket(owner=owner) for owner in "abcdef"])
    a, b, c = Basket.objects.filter(owner__in="abc").order_by("owner")
    Line.objects.bulk_create([Line(basket=basket, item=item) for basket in (a, b, c) for item in "xy"])
    expire("shop_basket", "owner IN ('a', 'b')")

    equal(Basket.objects.count(), 4)
    assert not Basket.objects.filter(owner="a").exists()
    with raises(Basket.DoesNotExist):
        Basket.objects.get(pk=a.pk)
    with raises(Basket.DoesNotExist):
        a.refresh_from_db()
    equal(list(Basket.objects.annotate(n=Count("line")).order_by("owner").values_list("owner", "n")),
          [("c", 2), ("d", 0), ("e", 0), ("f", 0)])
    equal([line.basket.owner for line in Line.objects.select_related("basket")], ["c", "c"])
    equal([len(basket.line_set.all()) for basket in Basket.objects.prefetch_related("line_set").order_by("owner")], [2, 0, 0, 0])
    equal(Basket.objects.filter(owner__in="ac").update(visits=F("visits") + 1), 1)
    equal(Basket.objects.filter(owner="b").delete()[0], 0)
    with raises(IntegrityError), transaction.atomic():
        Line.objects.create(basket=a, item="z")
    equal(stored("shop_basket"), 6)

    # save() updates, and inserts if there is nothing to update
    a.visits = 3
    with raises(DatabaseError, "did not affect any rows"):
        a.save(force_update=True)
    a.save()
    equal(Basket.objects.get(owner="a").visits, 3)
    equal(stored("shop_line"), 4)
    assert Basket.objects.get_or_create(owner="b")[1]
    assert not Basket.objects.get_or_create(owner="b")[1]
    expire("shop_basket", "owner = 'b'")
    assert Basket.objects.update_or_create(owner="b", defaults={"visits": 4})[1]
    assert not Basket.objects.update_or_create(owner="b", defaults={"visits": 5})[1]
    expire("shop_basket", "owner = 'b'")
    Basket.objects.bulk_create([Basket(owner=owner, visits=6) for owner in "abc"], ignore_conflicts=True)
    equal(Basket.objects.aggregate(Sum("visits"))["visits__sum"], 3 + 6 + 1)
    equal(stored("shop_basket"), 6)

    # writing back all columns renews
    sql("""BEGIN; SET LOCAL ttl.touch = off;
        UPDATE shop_basket SET _ts = now() - interval '59 minutes' WHERE owner = 'c'; COMMIT""")
    Basket.objects.get(owner="c").save()
    assert value("SELECT ttl.time_to_live(b) FROM shop_basket b WHERE owner = 'c'") > 3500
    Basket.objects.filter(owner="c").update(ttl=60)
    equal(value("SELECT ttl.time_to_live(b) FROM shop_basket b WHERE owner = 'c'"), 60)

    # transactions
    expire("shop_basket", "owner = 'd'")
    with raises(KeyError), transaction.atomic():
        Basket.objects.create(owner="d")
        equal(Basket.objects.select_for_update().get(owner="d").visits, 0)
        raise KeyError
    assert not Basket.objects.filter(owner="d").exists()

    # a server-side cursor, while the worker deletes
    Basket.objects.bulk_create([Basket(owner=f"s{i}", visits=i) for i in range(1000)])
    expire("shop_basket", "owner LIKE 's%' AND visits % 2 = 1")
    read = 0
    for basket in Basket.objects.filter(owner__startswith="s").iterator(chunk_size=50):
        equal(basket.visits % 2, 0)
        read += 1
        if read == 10:
            reaped("shop_basket")
    equal(read, 500)
    equal(stored("shop_basket"), Basket.objects.count())


migrate()
call_command("createcachetable")
sql("""
    SELECT ttl.create_container('django_session', -1, ts_column => NULL, ttl_column => 'expire_date');
    SELECT ttl.create_container('django_cache', -1, ts_column => NULL, ttl_column => 'expires');
""")
for table in "django_session", "django_cache":
    equal(value(f"SELECT count(*) FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0"), 3)
sessions("expire_date")
caching("expires")
models()
connection.close()
