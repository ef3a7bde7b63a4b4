"""Lines come out of a stream whole and in order, however their bytes were cut, and are bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.kube import api, errors, stream_lines
from tests.kube import scripted_server, things

LINE = st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" "))


@given(st.lists(LINE), st.lists(st.integers(min_value=0, max_value=60)))
def test_cuts_make_no_difference(written: list[bytes], cuts: list[int]) -> None:
    """Any way to cut a text into chunks gives the same lines; empty ones are left out."""
    text = b"".join(line + b"\n" for line in written)
    cutter, read = stream_lines.Cutter(), list[bytes]()
    for size in cuts:
        read += cutter.feed(text[:size])
        text = text[size:]
    read += cutter.feed(text)

    assert read == [line for line in written if line.strip()]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_line_without_end_is_an_error(size: int) -> None:
    """Memory is bounded, whether it comes in small pieces or in one."""
    cutter = stream_lines.Cutter(longest=10)
    for _ in range(10 // size):
        assert cutter.feed(b"x" * size) == []
    with pytest.raises(errors.BadAnswer, match="more than 10 bytes"):
        cutter.feed(b"x" * size)


def test_the_bound_is_for_a_line_and_not_for_a_stream() -> None:
    """What was handed out counts no more."""
    cutter = stream_lines.Cutter(longest=10)
    for _ in range(5):
        assert cutter.feed(b"x" * 10) == []
        assert cutter.feed(b"\n") == [b"x" * 10]


async def test_a_line_that_was_cut_off_is_not_handed_out() -> None:
    """It ends with the stream and not with a newline."""

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (b"on", b"e\ntwo\nthr", b"ee"):
            yield chunk

    assert [line async for line in stream_lines.Lines(chunks())] == [b"one", b"two"]


async def test_lines_much_longer_than_a_buffer(
    server: scripted_server.Server, client: api.Api
) -> None:
    """An object may be larger than what aiohttp would read as a line."""
    large = b'"' + b"x" * 3_000_000 + b'"'
    server.script(scripted_server.Watch().send_bytes(large + b"\n").send_bytes(large + b"\n").end())
    async with client.stream(things.PATH) as stream:
        assert [line async for line in stream] == [large, large]


async def test_a_line_without_end_from_a_server(
    server: scripted_server.Server, client: api.Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error for the one who reads the stream."""
    monkeypatch.setattr(stream_lines.Cutter.__init__, "__defaults__", (1000,))
    server.script(scripted_server.Watch().send_bytes(b"x" * 2000))
    async with client.stream(things.PATH) as stream:
        with pytest.raises(errors.BadAnswer, match="more than 1000 bytes"):
            await anext(stream)
