from __future__ import annotations

import pickle

import grpc
import grpc.aio
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

import sage_client
from sage_client._wire.failures import error_from


def rpc_error(
    code: grpc.StatusCode, message: str = "no", *, trailing: tuple[tuple[str, str | bytes], ...] = ()
) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, None, grpc.aio.Metadata(*trailing), details=message)


def named(raised: grpc.RpcError) -> sage_client.SageError:
    return error_from(raised, "127.0.0.1:1")


def packed(*details: Message) -> bytes:
    status = status_pb2.Status()
    for detail in details:
        wrapped = AnyMessage()
        wrapped.Pack(detail)
        status.details.append(wrapped)
    return bytes(status.SerializeToString())


def test_everything_that_the_server_says_is_in_the_error() -> None:
    details = packed(
        error_details_pb2.ErrorInfo(
            domain="sage", reason="ERROR_REASON_INVALID_REQUEST", metadata={"fields": "title"}
        ),
        error_details_pb2.BadRequest(
            field_violations=[
                error_details_pb2.BadRequest.FieldViolation(field="title", description="too long")
            ]
        ),
        error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000)),
    )
    raised = rpc_error(
        grpc.StatusCode.INVALID_ARGUMENT,
        "The request breaks the contract.",
        trailing=(("grpc-status-details-bin", details), ("x-request-id", "r-1")),
    )

    error = named(raised)

    assert type(error) is sage_client.InvalidArgument
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.message == "The request breaks the contract."
    assert error.reason == "INVALID_REQUEST"
    assert error.metadata == {"fields": "title"}
    assert error.field_violations == (sage_client.FieldViolation("title", "too long"),)
    assert error.retry_after == 1.5
    assert error.request_id == "r-1"
    assert str(error) == (
        "INVALID_ARGUMENT: The request breaks the contract.; title: too long"
        " (reason=INVALID_REQUEST, request_id=r-1)"
    )


def test_a_request_that_grpc_itself_refuses_has_the_reason_of_one_that_sage_refuses() -> None:
    said = "SERVER: Received message larger than max (104857600 vs. 38797312)"
    error = error_from(rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, said), "localhost:1")
    assert type(error) is sage_client.ResourceExhausted
    assert error.reason == "REQUEST_TOO_LARGE"


def test_a_violation_that_the_message_names_is_not_said_twice() -> None:
    violation = sage_client.FieldViolation("title", "too long")
    failure = sage_client.Failure(
        grpc.StatusCode.INVALID_ARGUMENT, "title: too long", field_violations=(violation,)
    )

    assert str(sage_client.InvalidArgument(failure)) == "INVALID_ARGUMENT: title: too long"


@pytest.mark.parametrize("trailing", [(), (("grpc-status-details-bin", b"\xff\xff"),)])
def test_an_answer_without_readable_details_is_still_a_typed_error(
    trailing: tuple[tuple[str, str | bytes], ...],
) -> None:
    error = named(rpc_error(grpc.StatusCode.UNAVAILABLE, "connection refused", trailing=trailing))

    assert type(error) is sage_client.Unavailable
    assert (error.reason, error.metadata, error.retry_after, error.request_id) == (None, {}, None, None)
    assert str(error) == "UNAVAILABLE: No Sage server answers at 127.0.0.1:1: connection refused"


def test_a_reason_of_another_domain_is_not_taken_for_ours() -> None:
    details = packed(error_details_pb2.ErrorInfo(domain="envoy", reason="NOT_FOUND", metadata={"a": "b"}))
    error = named(rpc_error(grpc.StatusCode.NOT_FOUND, trailing=(("grpc-status-details-bin", details),)))

    assert (error.reason, error.metadata) == (None, {})


def test_each_status_has_a_class_of_its_own() -> None:
    failed = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
    classes = {type(named(rpc_error(code))) for code in failed}

    assert len(classes) == len(failed)
    assert sage_client.SageError not in classes


def test_an_error_survives_the_way_between_processes() -> None:
    error = named(rpc_error(grpc.StatusCode.ABORTED, trailing=(("x-request-id", "r-2"),)))
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is sage_client.Aborted
    assert (copy.code, copy.request_id, str(copy)) == (error.code, "r-2", str(error))
