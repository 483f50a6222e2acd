import os

from sqlalchemy import create_engine, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.sql.expression import cast


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


engine = create_engine(os.environ["DATABASE_URL"].replace("postgres://", "postgresql+psycopg://", 1))
with Session(engine) as session, session.begin():
    order = Order(customer="ann")
    session.add(order)
    session.flush()
    data = cast({"order": order.id}, JSONB)
    session.execute(select(func.gatehouse_outbox.publish("order.created", data)))
    session.execute(select(func.gatehouse_outbox.create_job("send-email", data, cast({"priority": 5}, JSONB))))
