"""What a stack has only so much of: all at once or not at all, and nobody waits for what he does not need."""

from __future__ import annotations

import asyncio

import pytest

from harness.stack import StackError
from harness.stack.room import PLENTY, Needs, Room


def test_no_more_is_given_than_there_is_and_everybody_gets_it() -> None:
    async def many() -> tuple[int, int]:
        room, now, most, done = Room(Needs(proxies=5, servers=2, databases=99)), 0, 0, 0

        async def experiment(proxies: int) -> None:
            nonlocal now, most, done
            async with room.taken(Needs(proxies)):
                now += proxies
                most = max(most, now)
                await asyncio.sleep(0.001)
                now -= proxies
            done += 1

        async with asyncio.timeout(10):
            await asyncio.gather(*(experiment(1 + number % 2) for number in range(60)))
        assert room.idle
        return most, done

    assert asyncio.run(many()) == (5, 60)


def test_who_needs_something_else_does_not_wait_in_the_same_line() -> None:
    async def pass_by() -> None:
        room = Room(Needs(proxies=1, servers=0, databases=2))
        async with room.taken(Needs(proxies=1)):
            waits = asyncio.ensure_future(hold(room, Needs(proxies=1)))
            await asyncio.sleep(0)
            async with asyncio.timeout(1), room.taken(Needs()):
                assert not waits.done()
        await asyncio.wait_for(waits, 1)

    asyncio.run(pass_by())


async def hold(room: Room, needs: Needs) -> None:
    async with room.taken(needs):
        pass


def test_who_gives_up_waiting_takes_nothing() -> None:
    async def give_up() -> None:
        room = Room(Needs(proxies=2, servers=0, databases=9))
        async with room.taken(Needs(proxies=1)):
            waits = asyncio.ensure_future(hold(room, Needs(proxies=2)))
            await asyncio.sleep(0)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            async with asyncio.timeout(1), room.taken(Needs(proxies=1)):
                assert room.waiting == 0
        assert room.idle

    asyncio.run(give_up())


def test_whose_turn_came_as_he_gave_up_gives_it_back() -> None:
    async def give_up() -> None:
        room = Room(Needs(proxies=1, servers=0, databases=9))
        async with room.taken(Needs(proxies=1)):
            waits = asyncio.ensure_future(hold(room, Needs(proxies=1)))
            await asyncio.sleep(0)
        waits.cancel()  # it has its turn by now, and has not run since
        await asyncio.gather(waits, return_exceptions=True)
        assert room.idle

    asyncio.run(give_up())


def test_what_can_never_be_is_refused_with_the_remedy() -> None:
    room = Room(Needs(proxies=1, servers=1, databases=9))
    with pytest.raises(StackError, match=r"needs 2 listeners of Toxiproxy .*TOXIPROXY_PORTS.* has 1"):
        asyncio.run(hold(room, Needs(proxies=2)))


def test_a_stack_without_bounds_lets_everybody_in() -> None:
    async def thousand() -> None:
        room = Room(PLENTY)
        async with asyncio.timeout(10):
            await asyncio.gather(*(hold(room, Needs(2, 2, 1)) for _ in range(1000)))
        assert room.idle

    asyncio.run(thousand())
