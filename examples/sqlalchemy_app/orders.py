"""Orders and their receipts: the job that writes a receipt commits together with the order, or not at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import func, make_url, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tidewheel import Tidewheel
from tidewheel.integrations.starlette import lifespan

queue = Tidewheel()  # $TIDEWHEEL_URL, or sqlite:///tidewheel.db

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
url = make_url(queue.url)  # the jobs are in the same database: that is what makes one transaction possible
engine = create_async_engine(url.set(drivername=DRIVERS[url.get_backend_name()], query={}))
new_session = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    receipt: Mapped[str | None]


class OutOfStock(Exception):
    pass


@queue.task
async def write_receipt(order_id: int) -> None:
    async with new_session.begin() as session:
        order = await session.get_one(Order, order_id)  # it is there: the job would not be, without it
        order.receipt = f"1 {order.item}, paid"


async def place_order(session: AsyncSession, item: str) -> Order:
    """Part of the caller's unit of work: nothing here commits."""
    order = Order(item=item)
    session.add(order)
    await session.flush()  # gives it its id
    await write_receipt.using(session).enqueue(order_id=order.id)
    if item == "unicorn":
        raise OutOfStock  # the order and its job are rolled back together
    return order


async def post_order(request: Request) -> JSONResponse:
    item = request.query_params.get("item")
    if not item:
        raise HTTPException(422, "say which item: /orders?item=rope")
    try:
        async with new_session.begin() as session:
            order = await place_order(session, item)
    except OutOfStock:
        return JSONResponse({"error": "out of stock"}, 409)
    return JSONResponse({"id": order.id}, 202)


async def get_order(request: Request) -> JSONResponse:
    async with new_session() as session:
        order = await session.get(Order, request.path_params["id"])
    if order is None:
        raise HTTPException(404)
    return JSONResponse({"item": order.item, "receipt": order.receipt})


async def get_summary(request: Request) -> JSONResponse:
    async with new_session() as session:
        orders = await session.scalar(select(func.count()).select_from(Order))
    jobs = await queue.count(task="write_receipt")
    return JSONResponse({"orders": orders, "jobs": jobs.total})


@asynccontextmanager
async def database(web: Starlette) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


web = Starlette(
    routes=[
        Route("/orders", post_order, methods=["POST"]),
        Route("/orders/{id:int}", get_order),
        Route("/summary", get_summary),
    ],
    lifespan=lifespan(queue, inner=database),
)
