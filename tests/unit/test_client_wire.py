from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import unquote

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hypothesis import given
from hypothesis import strategies as st

from sage.v1 import admin_pb2, conversation_pb2, conversation_service_pb2, item_pb2
from sage_client import ApiKeyRole, ConversationMemory, FlagScope, ItemKind, NewItem, TlsOptions
from sage_client._wire import enums
from sage_client._wire.conversations import conversation_from, item_from, new_item_to, update_to
from sage_client._wire.times import time_to
from sage_client.options import ClientOptions, channel_credentials, channel_options
from sage_client.unset import UNSET

NOON = datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def test_every_value_of_the_contract_has_its_own_on_our_side() -> None:
    kinds = {enums.kind_from(number) for number in item_pb2.ItemKind.values()[1:]}
    memories = {enums.memory_from(number) for number in conversation_pb2.ConversationMemory.values()[1:]}
    roles = {enums.role_from(number) for number in admin_pb2.ApiKeyRole.values()[1:]}
    scopes = {enums.flag_scope_from(number) for number in admin_pb2.FlagScope.values()[1:]}

    assert kinds == set(ItemKind) - {ItemKind.UNKNOWN}
    assert memories == set(ConversationMemory) - {ConversationMemory.UNKNOWN}
    assert roles == set(ApiKeyRole) - {ApiKeyRole.UNKNOWN}
    assert scopes == set(FlagScope) - {FlagScope.UNKNOWN}
    assert all(enums.kind_from(enums.kind_to(kind)) is kind for kind in kinds)
    assert all(enums.memory_from(enums.memory_to(memory)) is memory for memory in memories)
    assert all(enums.role_from(enums.role_to(role)) is role for role in roles)
    assert all(enums.flag_scope_from(enums.flag_scope_to(scope)) is scope for scope in scopes)


def test_a_value_of_a_newer_server_is_unknown_and_cannot_be_sent() -> None:
    newer = item_pb2.Item.FromString(b"\x20\x63")  # field 4, kind = 99

    assert item_from(newer).kind is ItemKind.UNKNOWN
    with pytest.raises(ValueError, match=r"ItemKind\.UNKNOWN cannot be sent"):
        enums.kind_to(ItemKind.UNKNOWN)


def test_times_are_in_utc_and_absent_ones_are_none() -> None:
    message = conversation_pb2.Conversation(id="c", create_time=time_to(NOON), update_time=time_to(NOON))
    conversation = conversation_from(message)

    assert conversation.create_time == NOON
    assert conversation.create_time.tzinfo is UTC
    assert (conversation.last_item_time, conversation.delete_time) == (None, None)


def test_a_time_keeps_its_moment_and_needs_a_zone() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5)))

    assert time_to(there) == time_to(NOON)
    with pytest.raises(ValueError, match="time zone"):
        time_to(NOON.replace(tzinfo=None))


def test_a_tool_call_and_its_output_carry_the_call() -> None:
    call = new_item_to(NewItem.tool_call("c1", "search", '{"q": 1}'))
    output = new_item_to(NewItem.tool_output("c1", "search", "found"))

    assert (call.kind, call.tool.call_id, call.tool.arguments_json) == (
        item_pb2.ITEM_KIND_TOOL_CALL,
        "c1",
        '{"q": 1}',
    )
    assert (output.kind, output.text, output.tool.call_id) == (item_pb2.ITEM_KIND_TOOL_OUTPUT, "found", "c1")
    assert not new_item_to(NewItem.user("hi")).HasField("tool")


def test_an_update_names_what_is_given_and_nothing_else() -> None:
    request = update_to("c", title="", metadata=UNSET, memory=ConversationMemory.NONE, etag="e")

    assert list(request.update_mask.paths) == ["title", "memory"]
    assert request.memory == conversation_pb2.CONVERSATION_MEMORY_NONE
    assert update_to("c", title=UNSET, metadata={}, memory=UNSET, etag="") == (
        conversation_service_pb2.UpdateConversationRequest(
            conversation_id="c", update_mask=FieldMask(paths=["metadata"])
        )
    )


@pytest.mark.parametrize("wrong", ["", " t", "tök", "a\nb"])
def test_a_token_that_http_cannot_carry_is_refused_without_being_shown(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"^token must be printable ASCII text without spaces around it$"):
        ClientOptions(token=wrong)
    with pytest.raises(ValueError, match=r"^token must be printable ASCII text without spaces around it$"):
        ClientOptions(token=lambda: wrong).metadata()
    assert "secret" not in repr(ClientOptions(token="secret"))


@pytest.mark.parametrize("plain", ["maria", "auth0|5f7c", "maria@example.com", "urn:a/b+c=d~e"])
def test_a_plain_user_id_goes_as_it_is(plain: str) -> None:
    assert ClientOptions(user=plain).metadata() == (("x-sage-user", plain),)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_user_id_fits_into_a_header_and_comes_back(user: str) -> None:
    ((_, sent),) = ClientOptions(user=user).metadata()

    assert re.fullmatch(r"[!-~]+", sent)
    assert unquote(sent) == user


def test_no_user_is_not_an_empty_user() -> None:
    with pytest.raises(ValueError, match="user must not be empty"):
        ClientOptions(user="")


def test_a_channel_is_secure_only_when_asked() -> None:
    assert channel_credentials(tls=False) is None
    assert channel_credentials(tls=True) is not None
    assert ("grpc.ssl_target_name_override", "sage") in channel_options(tls=TlsOptions(server_name="sage"))
