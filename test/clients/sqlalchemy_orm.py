# SQLAlchemy: the ORM, and what Alembic makes of a container
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, DateTime, FetchedValue, ForeignKey, Integer, Text, create_engine, func, select, text, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, declarative_base, joinedload, relationship
from sqlalchemy.orm.exc import ObjectDeletedError, StaleDataError

from lib import equal, expire, pause, raises, reaped, sql, stored, value

engine = create_engine("postgresql+psycopg2://", future=True)
Base = declarative_base()


class Basket(Base):
    __tablename__ = "basket"

    id = Column(Integer, primary_key=True)
    owner = Column(Text, nullable=False, unique=True)
    data = Column(JSONB)
    ts = Column("_ts", DateTime(timezone=True), FetchedValue(), nullable=False, server_onupdate=FetchedValue())
    ttl = Column(Integer)
    lines = relationship("Line", back_populates="basket", passive_deletes=True)


class Line(Base):
    __tablename__ = "line"

    id = Column(Integer, primary_key=True)
    basket_id = Column(ForeignKey("basket.id", ondelete="CASCADE"), nullable=False)
    basket = relationship("Basket", back_populates="lines")


def include_object(object, name, type_, reflected, compare_to):
    return not (type_ == "index" and reflected and name in ("basket__ts_idx", "basket_item_expiry_idx"))


def differences():
    with engine.connect() as connection:
        return compare_metadata(
            MigrationContext.configure(connection, opts={"include_object": include_object, "compare_type": True}), Base.metadata)


# Alembic finds nothing to change, whoever makes the columns
Base.metadata.create_all(engine)
sql("SELECT ttl.create_container('basket', 3600)")
equal(differences(), [])
Base.metadata.create_all(engine)
pause("basket")

with Session(engine) as session:
    # _ts comes back from the server
    baskets = {owner: Basket(owner=owner, data={}) for owner in "abcdef"}
    session.add_all(baskets.values())
    session.flush()
    for owner in "abc":
        baskets[owner].lines = [Line(), Line()]
    session.commit()
    a, b, c = (baskets[owner] for owner in "abc")
    before = c.ts
    c.data = {"n": 1}
    session.commit()
    assert c.ts > before

    # what has expired isn't there
    expire("basket", "owner IN ('a', 'b')")
    equal(session.execute(select(func.count()).select_from(Basket)).scalar_one(), 4)
    session.expire_all()
    with raises(ObjectDeletedError):
        a.owner
    session.expunge_all()
    equal(session.get(Basket, 1), None)
    equal([(x.owner, len(x.lines)) for x in session.execute(
        select(Basket).options(joinedload(Basket.lines)).order_by(Basket.owner)).unique().scalars()],
        [("c", 2), ("d", 0), ("e", 0), ("f", 0)])
    equal([x.basket.owner if x.basket else None for x in session.execute(select(Line).order_by(Line.id)).scalars()],
          [None] * 4 + ["c"] * 2)
    with raises(IntegrityError):
        session.add(Line(basket_id=1))
        session.flush()
    session.rollback()

    # nor is what expires between reading and writing
    d = session.execute(select(Basket).where(Basket.owner == "d")).scalar_one()
    expire("basket", "owner = 'd'")
    d.data = {"late": True}
    with raises(StaleDataError):
        session.flush()
    session.rollback()
    session.expunge_all()
    equal(stored("basket"), 6)

    # keys that have expired are free
    session.add(Basket(id=1, owner="a"))
    session.commit()
    equal(stored("line"), 4)
    upsert = insert(Basket).values([{"owner": owner, "data": {"n": 1}} for owner in "bc"])
    upsert = upsert.on_conflict_do_update(index_elements=["owner"], set_={"data": {"n": 2}}).returning(Basket.owner, Basket.data["n"])
    equal(session.execute(upsert).all(), [("b", 1), ("c", 2)])
    equal(session.execute(insert(Basket).values(owner="a").on_conflict_do_nothing()).rowcount, 0)
    session.commit()
    equal(stored("basket"), 6)
    merged = session.merge(Basket(id=4, owner="d", data={"merged": True}))
    session.commit()
    equal(merged.data, {"merged": True})

    # a row's own TTL, and writing all of a row back
    c = session.execute(select(Basket).where(Basket.owner == "c")).scalar_one()
    c.ttl = 60
    session.commit()
    equal(value("SELECT ttl.time_to_live(b) FROM basket b WHERE owner = 'c'"), 60)
    sql("BEGIN; SET LOCAL ttl.touch = off; UPDATE basket SET _ts = now() - interval '59 seconds' WHERE owner = 'c'; COMMIT")
    session.refresh(c)
    row = {column.key: getattr(c, column.key) for column in Basket.__mapper__.column_attrs}
    session.execute(update(Basket).where(Basket.id == c.id).values(row))
    session.commit()
    equal(value("SELECT ttl.time_to_live(b) FROM basket b WHERE owner = 'c'"), 60)

    # transactions
    expire("basket", "owner = 'e'")
    with session.begin_nested() as savepoint:
        session.execute(insert(Basket).values(owner="e"))
        assert session.execute(select(Basket).where(Basket.owner == "e").with_for_update()).scalar_one()
        savepoint.rollback()
    equal(session.execute(select(Basket).where(Basket.owner == "e")).scalar_one_or_none(), None)
    session.commit()
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
        owners = connection.execute(text("SELECT owner FROM basket ORDER BY 1")).all()
        expire("basket", "owner = 'f'")
        equal(connection.execute(text("SELECT owner FROM basket ORDER BY 1")).all(), owners)
        connection.commit()
        equal(connection.execute(text("SELECT count(*) FROM basket WHERE owner = 'f'")).scalar(), 0)

    # a server-side cursor, while the worker deletes
    session.add_all([Basket(owner=f"s{i}", data=i) for i in range(1000)])
    session.commit()
    expire("basket", "owner LIKE 's%' AND data::int % 2 = 1")
    read = 0
    for x in session.execute(select(Basket).where(Basket.owner.startswith("s")).execution_options(yield_per=50, stream_results=True)).scalars():
        equal(x.data % 2, 0)
        read += 1
        if read == 10:
            reaped("basket")
    equal(read, 500)
    session.commit()
    equal(stored("basket"), session.execute(select(func.count()).select_from(Basket)).scalar_one())
equal(differences(), [])
engine.dispose()
