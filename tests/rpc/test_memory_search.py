"""Searching memories through the real client and server: what is found, how it is explained, how fresh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

import sage_client
from sage.v1 import memory_service_pb2 as pb
from sage_client import AsyncSageClient, MemorySource, NewItem, NewMemory, Repeat, SearchQuery, SearchResult
from support.memory import MODEL, axis, found, results, said
from support.postgres import TestPostgres
from support.server import RunningServer, running_server

SPRING = datetime(2023, 5, 4, 12, tzinfo=UTC)
PLACES = [
    "Anna moved to Lisbon",
    "The garden needs water in summer",
    "A recipe for bread with rye flour",
    "The violin has two broken strings",
]


@pytest.fixture(scope="module")
async def shared(postgres: TestPostgres) -> AsyncIterator[RunningServer]:
    """One server for all: each test has a user of its own."""
    async with postgres.database() as dsn, running_server(dsn) as running:
        yield running


@pytest.fixture
async def client(shared: RunningServer) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(shared.address, user=f"user-{uuid4()}") as connected:
        yield connected


async def raw(client: AsyncSageClient, **fields: Any) -> pb.SearchMemoriesResponse:
    """A request with what is given and nothing else."""
    request = pb.SearchMemoriesRequest(**fields)
    return await client.transport.unary(client.stubs.memory.SearchMemories, request, repeat=Repeat.SAFE)


async def kept(client: AsyncSageClient, *texts: str) -> None:
    await client.memory.insert_many([NewMemory(text) for text in texts])


def assert_explained(result: SearchResult, vector_weight: float = 0.7, text_weight: float = 0.3) -> None:
    """The score is the sum of its parts, as the contract adds them up."""
    near, said_so = result.normalized_vector_score, result.normalized_text_score
    assert 0 <= near <= 1
    assert 0 <= said_so <= 1
    assert result.hybrid_score == pytest.approx(vector_weight * near + text_weight * said_so)
    added = 0.0
    if result.evidence is not None:
        evidence = result.evidence
        added = evidence.neighbours + evidence.author + evidence.date + evidence.session
    assert result.score == pytest.approx(result.hybrid_score + added)
    assert bool(result.text_score) == bool(result.matched_terms)


async def test_an_empty_memory_has_nothing_to_find(client: AsyncSageClient) -> None:
    answer = await client.memory.search("anything")
    assert (answer.results, answer.candidate_count, answer.embedding_model) == ((), 0, MODEL)
    assert answer.memory_token
    for options in ({"embedding": axis(0)}, {"at_least_as_fresh": answer.memory_token}):
        assert await found(client, "anything", **options) == []
    assert await found(client, "anything", fully_consistent=True) == []
    for wrong, reason in (([1.0], "EMBEDDING_DIMENSION_MISMATCH"), ([0.0] * 256, "EMBEDDING_INVALID")):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await client.memory.search(embedding=wrong)
        assert refused.value.reason == reason


async def test_with_nothing_but_a_query_all_sources_are_searched_with_the_default_weights(
    client: AsyncSageClient,
) -> None:
    await kept(client, *PLACES)
    await said(client, "Anna sent a postcard from Lisbon")
    answer = await raw(client, query="Where did Anna move? Lisbon?")
    spelled_out = await raw(
        client,
        query="Where did Anna move? Lisbon?",
        vector_weight=0.7,
        text_weight=0.3,
        top_k=10,
        context_evidence=True,
    )
    assert list(answer.results) == list(spelled_out.results)
    assert answer.candidate_count == 5
    assert {one.memory.text for one in answer.results[:2]} == {PLACES[0], "Anna sent a postcard from Lisbon"}
    assert [one.rank for one in answer.results] == [1, 2, 3, 4, 5]
    assert answer.embedding_model == MODEL
    assert answer.duration.ToTimedelta() > timedelta(0)


async def test_ten_are_returned_unless_asked_and_a_hundred_at_most(client: AsyncSageClient) -> None:
    await kept(client, *(f"word number{n}" for n in range(120)))
    for asked, got in ((0, 10), (1, 1), (37, 37), (100, 100)):
        answer = await raw(client, query="word", top_k=asked)
        assert (len(answer.results), answer.candidate_count) == (got, 120)
    with pytest.raises(sage_client.InvalidArgument):
        await raw(client, query="word", top_k=101)


async def test_scores_are_explained_and_ordered(client: AsyncSageClient) -> None:
    await kept(client, *PLACES)
    await said(client, "We saw the garden", NewItem.assistant("And the violin?"), "Anna has it", "In Lisbon")
    for weights in ((0.7, 0.3), (1.0, 0.0), (0.0, 1.0), (0.2, 0.9), (1.0, 1.0)):
        options: dict[str, Any] = {"vector_weight": weights[0], "text_weight": weights[1]}
        answer = await results(client, "the violin in the garden", **options)
        assert answer
        for result in answer:
            assert_explained(result, *weights)
            assert (result.evidence is None) == (result.memory.source is not MemorySource.MESSAGE)
            assert (result.vector_score is None) == (weights[0] == 0)
        scores = [result.score for result in answer]
        assert scores == sorted(scores, reverse=True)


async def test_normalised_scores_run_from_the_lowest_to_the_highest_candidate(
    client: AsyncSageClient,
) -> None:
    await kept(client, *PLACES)
    answer = await results(client, "violin strings")
    assert len(answer) == len(PLACES)
    near = {one.vector_score or 0: one.normalized_vector_score for one in answer}
    assert near[max(near)] == 1
    assert near[min(near)] == 0
    for score, normalised in near.items():
        assert normalised == pytest.approx((score - min(near)) / (max(near) - min(near)))
    assert {one.normalized_text_score for one in answer if one.text_score == 0} == {0}
    assert max(one.normalized_text_score for one in answer) == 1


async def test_with_weight_0_a_side_does_not_count(client: AsyncSageClient) -> None:
    await client.memory.insert_many(
        [NewMemory("violin", embedding=axis(1)), NewMemory("garden", embedding=axis(2))]
    )
    assert await found(client, "violin", embedding=axis(2), text_weight=0) == ["garden", "violin"]
    assert (await found(client, "violin", embedding=axis(2), vector_weight=0))[0] == "violin"
    by_words = await results(client, "violin", vector_weight=0)
    assert [one.memory.text for one in by_words] == ["violin"]  # what has no word of it is no result
    assert by_words[0].vector_score is None
    for weights in ({"vector_weight": 0, "text_weight": 0}, {"vector_weight": -0.1}, {"text_weight": 1.1}):
        with pytest.raises(sage_client.InvalidArgument):
            await client.memory.search("violin", **weights)


async def test_a_vector_alone_searches_by_meaning_only(client: AsyncSageClient) -> None:
    await client.memory.insert_many([NewMemory(f"at {n}", embedding=axis(n)) for n in range(4)])
    vector = [0.0, 3.0, 4.0, -1.0] + [0.0] * 252
    answer = await results(client, embedding=vector)
    assert [one.memory.text for one in answer] == ["at 2", "at 1", "at 0", "at 3"]
    assert answer[0].vector_score == pytest.approx(4 / 26**0.5, abs=1e-6)
    assert answer[3].vector_score == pytest.approx(-1 / 26**0.5, abs=1e-6)
    for result in answer:
        assert (result.text_score, result.normalized_text_score, result.matched_terms) == (0, 0, ())
        assert_explained(result)


async def test_words_and_a_given_vector_count_together(client: AsyncSageClient) -> None:
    await client.memory.insert_many(
        [
            NewMemory("violin", embedding=axis(1)),
            NewMemory("garden", embedding=axis(2)),
            NewMemory("violin again", embedding=axis(2)),
        ]
    )
    best = (await results(client, "violin", embedding=axis(2)))[0]
    assert best.memory.text == "violin again"
    assert best.matched_terms == ("violin",)
    assert best.vector_score == pytest.approx(1)


async def test_neither_words_nor_a_vector_is_refused(client: AsyncSageClient) -> None:
    with pytest.raises(sage_client.InvalidArgument):
        await client.memory.search("")


async def test_matched_terms_are_the_querys_own_words(client: AsyncSageClient) -> None:
    await kept(client, "the gardens were flowering", "Anna's violins", "nothing of it")
    answer = await results(client, "Which GARDEN flowered, or the Violin\u2019s strings of ANNA?")
    matched = {one.memory.text: set(one.matched_terms) for one in answer}
    assert matched == {
        "the gardens were flowering": {"GARDEN", "flowered"},
        "Anna's violins": {"Violin\u2019s", "ANNA"},
        "nothing of it": set(),
    }
    for result in answer:
        assert_explained(result)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("我的猫叫什么名字?", "我养了一只猫, 名字叫小白。"),
        ("猫の名前は?", "飼い猫の名前はタマです。"),
        ("टमाटर कब बोए?", "हमने अप्रैल में टमाटर बोए।"),
        ("cafe\u0301", "Anna meets us at the café"),
    ],
)
async def test_words_are_found_whatever_script_they_are_in(
    client: AsyncSageClient, query: str, best: str
) -> None:
    others = ("我喜欢在花园里种豆子。", "庭で豆を育てています。", "मुझे बगीचा पसंद है।", "The garden needs water")
    await kept(client, best, *others)
    (first, *_) = await results(client, query, vector_weight=0)
    assert first.memory.text == best


@pytest.mark.parametrize("query", ["the of and", "?!", "🥜", "x" * 10_000, "    ", "a" * 200 + "\u0301"])
async def test_a_query_without_a_known_word_is_no_fault(client: AsyncSageClient, query: str) -> None:
    await kept(client, *PLACES)
    answer = await client.memory.search(query)
    assert answer.candidate_count == len(PLACES)
    for result in answer.results:
        assert (result.text_score, result.matched_terms) == (0, ())


async def test_min_score_leaves_out_what_scores_less(client: AsyncSageClient) -> None:
    await kept(client, *PLACES)
    everything = await results(client, "violin strings")
    limit = everything[1].score
    some = await client.memory.search("violin strings", min_score=limit)
    assert some.results == tuple(one for one in everything if one.score >= limit)
    assert some.candidate_count == len(PLACES)
    assert 0 < len(some.results) < len(everything)
    assert await found(client, "violin strings", min_score=10) == []
    assert await results(client, "violin strings", min_score=0) == everything


async def test_without_context_evidence_the_score_is_the_plain_weighted_sum(client: AsyncSageClient) -> None:
    await said(client, "We saw the garden", NewItem.user("It was dry", author="Otto"), "Anna was there")
    for result in await results(client, "garden in 2023 with Otto", context_evidence=False):
        assert result.evidence is None
        assert result.score == result.hybrid_score
        assert_explained(result)
    assert any(one.evidence is not None for one in await results(client, "garden"))


async def test_evidence_names_the_author_and_the_date_that_the_query_names(client: AsyncSageClient) -> None:
    later = SPRING + timedelta(days=60)
    await said(
        client,
        NewItem.user("The bread was good", author="Anna Weber", create_time=SPRING),
        NewItem.user("I sold my car", author="Otto", create_time=SPRING),
        NewItem.user("The lake was cold", author="Otto", create_time=later),
    )
    answer = {one.memory.text: one for one in await results(client, "What did Otto say in May 2023?")}
    for result in answer.values():
        assert_explained(result)
    seen = {
        text: (one.evidence.author, one.evidence.matched_author, one.evidence.date, one.evidence.matched_date)
        for text, one in answer.items()
        if one.evidence is not None
    }
    assert seen == {
        "The bread was good": (0, "", 0.3, "2023-05"),
        "I sold my car": (0.4, "Otto", 0.3, "2023-05"),
        "The lake was cold": (0.4, "Otto", 0, ""),
    }


async def test_of_equal_scores_the_newer_comes_first(client: AsyncSageClient) -> None:
    times = [SPRING + timedelta(days=n) for n in (2, 5, 1, 4, 3)]
    await client.memory.insert_many(
        [NewMemory("same", create_time=time, embedding=axis(0)) for time in times]
    )
    for options in ({"embedding": axis(0)}, {"query": "same", "vector_weight": 0.0}):
        answer = (await client.memory.search(**options)).results
        assert len({one.score for one in answer}) == 1
        assert [one.memory.create_time for one in answer] == sorted(times, reverse=True)


async def test_several_searches_are_answered_in_order_and_on_one_state(client: AsyncSageClient) -> None:
    await kept(client, *PLACES)
    queries = [
        SearchQuery("violin strings", top_k=1),
        SearchQuery("bread recipe", top_k=2, vector_weight=0),
        SearchQuery(embedding=axis(0), top_k=3),
        SearchQuery("nothing like it", min_score=9, fully_consistent=True),
    ]
    answers = await client.memory.search_many(queries)
    assert [len(answer.results) for answer in answers] == [1, 1, 3, 0]
    assert [answer.results[0].memory.text for answer in answers[:2]] == [PLACES[3], PLACES[2]]
    for query, answer in zip(queries[:3], answers[:3], strict=True):
        alone = await client.memory.search(
            query.query, embedding=query.embedding, top_k=query.top_k, vector_weight=query.vector_weight
        )
        assert alone.results == answer.results


async def test_a_refused_search_of_several_is_named_and_none_is_answered(client: AsyncSageClient) -> None:
    await kept(client, *PLACES)
    bad: list[tuple[SearchQuery, str]] = [
        (SearchQuery(embedding=[1.0, 2.0]), "EMBEDDING_DIMENSION_MISMATCH"),
        (SearchQuery(embedding=[0.0] * 256), "EMBEDDING_INVALID"),
        (SearchQuery("x", conversation_id=str(uuid4())), "NOT_FOUND"),
        (SearchQuery("x", agent="nobody"), "NOT_FOUND"),
        (SearchQuery("x", at_least_as_fresh="nonsense"), "MEMORY_TOKEN_INVALID"),
        (SearchQuery("x", tags=["  "]), "INVALID_REQUEST"),
    ]
    for query, reason in bad:
        with pytest.raises(sage_client.SageError) as refused:
            await client.memory.search_many([SearchQuery("violin"), SearchQuery("bread"), query])
        assert (refused.value.reason, refused.value.metadata["index"]) == (reason, "2")
    for count in (0, 33):
        with pytest.raises(sage_client.InvalidArgument):
            await client.memory.search_many([SearchQuery("x")] * count)
    assert len(await client.memory.search_many([SearchQuery("violin")] * 32)) == 32


async def test_vectors_of_an_empty_memory_are_named_by_their_place_too(client: AsyncSageClient) -> None:
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.search_many([SearchQuery("x"), SearchQuery(embedding=[1.0])])
    assert refused.value.metadata["index"] == "1"


async def test_a_token_that_is_not_the_users_is_refused(
    shared: RunningServer, client: AsyncSageClient
) -> None:
    written = await client.memory.insert("x")
    token = written.memory_token
    stranger = client.with_options(user=f"stranger-{uuid4()}")
    await stranger.memory.insert("y")
    altered = ("A" if token[-5] != "A" else "B").join((token[:-5], token[-4:]))
    for bad in (altered, token[:-4], token + "AAAA", "x", "💥", "A" * 256):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await client.memory.search("x", at_least_as_fresh=bad)
        assert refused.value.reason == "MEMORY_TOKEN_INVALID"
        assert refused.value.metadata == {"field": "consistency.at_least_as_fresh"}
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await stranger.memory.search("x", at_least_as_fresh=token)
    assert refused.value.reason == "MEMORY_TOKEN_INVALID"
    assert await found(client, "x", at_least_as_fresh=token) == ["x"]


async def test_a_token_of_a_state_that_never_was_is_refused(
    shared: RunningServer, client: AsyncSageClient
) -> None:
    """As after a database was set back to a backup: waiting for it would be for ever."""
    token = (await client.memory.insert_many([NewMemory("x"), NewMemory("y")])).memory_token
    user = UUID((await client.admin.get_user(client.options.user or "")).id)
    shared.application.memory.indexes.forget(user)
    database = await asyncpg.connect(shared.dsn)
    try:
        await database.execute("UPDATE heads SET memory_revision = 0 WHERE user_id = $1", user)
    finally:
        await database.close()
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.search("x", at_least_as_fresh=token)
    assert refused.value.reason == "MEMORY_TOKEN_INVALID"


async def test_every_write_gives_a_token_of_a_state_that_has_it(dsn: str) -> None:
    """The other replica is asked, and is not told anything else."""
    async with (
        running_server(dsn) as one,
        running_server(dsn) as two,
        sage_client.connect_async(one.address, user="maria") as here,
        sage_client.connect_async(two.address, user="maria") as there,
    ):
        await here.memory.insert("seed word")
        assert await found(there, "word") == ["seed word"]

        async def fresh(token: str) -> set[str]:
            return set(await found(there, "word", vector_weight=0, at_least_as_fresh=token))

        inserted = await here.memory.insert("one word")
        assert await fresh(inserted.memory_token) == {"seed word", "one word"}
        batch = await here.memory.insert_many([NewMemory("two word")])
        assert "two word" in await fresh(batch.memory_token)
        changed = await here.memory.update(batch.ids[0], text="three word")
        assert await fresh(changed.memory_token) == {"seed word", "one word", "three word"}
        gone = await here.memory.delete(batch.ids[0])
        assert "three word" not in await fresh(gone.memory_token)
        many = await here.memory.delete_many([inserted.memory.id])
        assert await fresh(many.memory_token) == {"seed word"}
        await here.memory.insert("last word")
        assert await fresh((await here.memory.stats()).memory_token) == {"seed word", "last word"}
        seen = await there.memory.search("word")
        assert await fresh(seen.memory_token) == {"seed word", "last word"}
        await here.memory.insert("newest word")
        assert "newest word" in await found(there, "word", fully_consistent=True)
        batched = await there.memory.search_many(
            [SearchQuery("word"), SearchQuery("word", fully_consistent=True)]
        )
        assert [len(answer.results) for answer in batched] == [3, 3]


async def test_without_a_demand_the_other_replica_follows_by_itself(dsn: str) -> None:
    async with (
        running_server(dsn) as one,
        running_server(dsn) as two,
        sage_client.connect_async(one.address, user="maria") as here,
        sage_client.connect_async(two.address, user="maria") as there,
    ):
        await here.memory.insert("one word")
        assert await found(there, "word") == ["one word"]
        await here.memory.insert("two word")
        async with asyncio.timeout(20):
            while len(await found(there, "word")) < 2:  # noqa: ASYNC110 (another replica does it)
                await asyncio.sleep(0.05)


async def test_writes_and_searches_at_once_never_see_half_a_batch(dsn: str) -> None:
    async with (
        running_server(dsn) as one,
        running_server(dsn) as two,
        sage_client.connect_async(one.address, user="maria") as here,
        sage_client.connect_async(two.address, user="maria") as there,
    ):
        await here.memory.insert("seed", embedding=axis(1))
        done = asyncio.Event()

        async def search(client: AsyncSageClient) -> None:
            while not done.is_set():
                answer = await client.memory.search("seed", fully_consistent=True, vector_weight=0)
                assert answer.candidate_count % 5 == 1

        searches = [asyncio.create_task(search(client)) for client in (here, there) for _ in range(2)]
        for client in (here, there) * 3:
            ids = (
                await client.memory.insert_many([NewMemory("x", embedding=axis(n)) for n in range(10)])
            ).ids
            await client.memory.delete_many(ids[:5])
        done.set()
        await asyncio.gather(*searches)
        for client in (here, there):
            assert (await client.memory.search("seed", fully_consistent=True)).candidate_count == 31
