"""Drives an inference server with clients that were made elsewhere, and holds its answers against expected ones.

    python open_inference.py SERVER EXPECTED.json [--ca ca.pem --cert client.pem --key client.key --token token]

EXPECTED holds, for positions of Connect Four, what the network answers: `moves`, `priors` and `wdl`. Each function below
whose name begins with `check_` is a check; all run, and those that fail are listed at the end.
"""

import argparse
import asyncio
import contextlib
import json
import queue
import sys
import time
import traceback

import grpc
import ml_dtypes
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import connection
from connect_four import Board

MODEL = "connect_four"
SERVICE = "inference.GRPCInferenceService"
# Both sides compute in float32, but may add in a different order.
TOLERANCE = 1e-4
DEADLINE_SECONDS = 60


class Server:
    """The server under test, and what it should answer."""

    def __init__(self, arguments, expected):
        self.arguments = arguments
        self.headers = connection.headers(arguments)
        self.boards = [Board(row["moves"]) for row in expected]
        self.observations = np.stack([board.observation() for board in self.boards])
        self.legal = np.stack([board.legal() for board in self.boards])
        self.priors = np.array([row["priors"] for row in expected], np.float32)
        self.wdl = np.array([row["wdl"] for row in expected], np.float32)
        self.client = self.connect()
        self.channel = channel(arguments)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        config = self.client.get_model_config(MODEL).config
        self.positions_max = config.max_batch_size
        self.version = self.client.get_model_metadata(MODEL).versions[-1]

    def connect(self, library=triton):
        """A client that sends the token with every call."""
        options = self.arguments
        files = {"root_certificates": options.ca, "certificate_chain": options.cert, "private_key": options.key}
        files = {name: str(path) for name, path in files.items() if path}
        client = library.InferenceServerClient(options.server, ssl=options.ca is not None, **files)
        client.register_plugin(Headers(self.headers))
        return client

    def rows(self, count):
        """So many positions, the known ones over and over: their indices."""
        return np.arange(count) % len(self.boards)

    def request(self, rows):
        """The message for some of the known positions, raw."""
        observations, legal = self.observations[rows], self.legal[rows]
        tensor = service_pb2.ModelInferRequest.InferInputTensor
        return service_pb2.ModelInferRequest(
            model_name=MODEL,
            inputs=[
                tensor(name="observations", datatype="FP32", shape=observations.shape),
                tensor(name="legal", datatype="BOOL", shape=legal.shape),
            ],
            raw_input_contents=[observations.tobytes(), legal.tobytes()],
        )

    def inputs(self, rows, dtype=np.float32):
        return [given("observations", self.observations[rows].astype(dtype)), given("legal", self.legal[rows])]

    def hold(self, result, rows, tolerance=TOLERANCE):
        """The answers to these rows are the expected ones."""
        priors, wdl, value = (result.as_numpy(name) for name in ("priors", "wdl", "value"))
        assert (priors.shape, wdl.shape, value.shape) == ((len(rows), 7), (len(rows), 3), (len(rows), 1))
        assert priors.dtype == wdl.dtype == value.dtype == np.float32
        np.testing.assert_allclose(priors, self.priors[rows], atol=tolerance)
        np.testing.assert_allclose(wdl, self.wdl[rows], atol=tolerance)
        np.testing.assert_allclose(value[:, 0], wdl[:, 0] - wdl[:, 2], atol=1e-6)
        assert (priors[~self.legal[rows]] == 0).all(), "what is not legal has no prior"
        np.testing.assert_allclose(priors.sum(1), 1, atol=TOLERANCE)


class Headers(triton.InferenceServerClientPlugin):
    """Adds headers to each call of a client."""

    def __init__(self, headers):
        self.headers = headers

    def __call__(self, request):
        request.headers = {**request.headers, **self.headers}


def channel(arguments):
    """A channel of `grpcio` that sends the token with every call."""
    if not arguments.ca:
        return grpc.insecure_channel(arguments.server)
    authority, key, certificate = (path.read_bytes() for path in (arguments.ca, arguments.key, arguments.cert))
    credentials = grpc.ssl_channel_credentials(authority, private_key=key, certificate_chain=certificate)
    token = grpc.access_token_call_credentials(arguments.token.read_text().strip())
    return grpc.secure_channel(arguments.server, grpc.composite_channel_credentials(credentials, token))


def given(name, array):
    return triton.InferInput(name, array.shape, datatype_of(array)).set_data_from_numpy(array)


def datatype_of(array):
    names = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16", "uint8": "UINT8", "bool": "BOOL", "float64": "FP64"}
    return names[array.dtype.name]


@contextlib.contextmanager
def refused(code, *words):
    """What is done inside ends with this status, or one of these, and the message says all of `words`."""
    codes = [code] if isinstance(code, str) else code
    try:
        yield
    except InferenceServerException as error:
        got, message = error.status(), error.message()
    except grpc.RpcError as error:
        got, message = str(error.code()), error.details()
    else:
        raise AssertionError(f"was not refused, expected {code}")
    assert got in [f"StatusCode.{code}" for code in codes], f"{got}, expected {code}: {message}"
    for word in words:
        assert word in message, f"`{message}` does not say `{word}`"


# Server and model metadata


def check_server_is_live_and_ready(server):
    assert server.client.is_server_live() is True
    assert server.client.is_server_ready() is True


def check_a_model_is_ready_where_it_is_known(server):
    assert server.client.is_model_ready(MODEL) is True
    assert server.client.is_model_ready(MODEL, server.version) is True
    assert server.client.is_model_ready(MODEL, "987654") is False
    assert server.client.is_model_ready("chess") is False


def check_server_metadata(server):
    metadata = server.client.get_server_metadata()
    assert metadata.name == "zerofleet" and metadata.version
    assert list(metadata.extensions) == ["model_configuration", "statistics"]


def check_model_metadata(server):
    metadata = server.client.get_model_metadata(MODEL, server.version, as_json=True)
    assert metadata["name"] == MODEL and metadata["versions"] == [server.version]
    tensors = [(t["name"], t["datatype"], t["shape"]) for t in metadata["inputs"] + metadata["outputs"]]
    assert tensors == [
        ("observations", "FP32", ["-1", "3", "6", "7"]),
        ("legal", "BOOL", ["-1", "7"]),
        ("priors", "FP32", ["-1", "7"]),
        ("wdl", "FP32", ["-1", "3"]),
        ("value", "FP32", ["-1", "1"]),
    ], tensors
    for ask in (server.client.get_model_metadata, server.client.get_model_config, server.client.get_inference_statistics):
        with refused("NOT_FOUND", "chess", MODEL):
            ask("chess")
        with refused("NOT_FOUND", "987654"):
            ask(MODEL, "987654")
        with refused("INVALID_ARGUMENT", "model_version", "newest"):
            ask(MODEL, "newest")


def check_model_config(server):
    config = server.client.get_model_config(MODEL).config
    assert config.name == MODEL and config.max_batch_size >= 1
    inputs = [(i.name, model_config_pb2.DataType.Name(i.data_type), list(i.dims), i.optional) for i in config.input]
    assert inputs == [("observations", "TYPE_FP32", [3, 6, 7], False), ("legal", "TYPE_BOOL", [7], True)], inputs
    outputs = [(o.name, model_config_pb2.DataType.Name(o.data_type), list(o.dims)) for o in config.output]
    assert outputs == [(name, "TYPE_FP32", [width]) for name, width in (("priors", 7), ("wdl", 3), ("value", 1))], outputs
    assert config.WhichOneof("scheduling_choice") == "dynamic_batching"
    assert config.version_policy.WhichOneof("policy_choice") == "latest"
    assert config.model_transaction_policy.decoupled is False
    assert config.parameters["evaluator"].string_value


def check_repository_index(server):
    index = server.client.get_model_repository_index()
    assert [(m.name, m.version, m.state) for m in index.models] == [(MODEL, server.version, "READY")], index
    with refused("UNIMPLEMENTED", "repository_name"):
        server.stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(repository_name="other"))


# Evaluation


def check_every_batch_size_up_to_the_limit(server):
    largest = server.positions_max
    for count in [*range(1, 130), 255, 256, 257, 1000, largest // 2, largest - 1, largest]:
        rows = server.rows(count)
        server.hold(server.client.infer(MODEL, server.inputs(rows)), rows)


def check_every_datatype_of_observations(server):
    rows = server.rows(5)
    for dtype in (np.float16, ml_dtypes.bfloat16, np.uint8, np.bool_):
        server.hold(server.client.infer(MODEL, server.inputs(rows, dtype)), rows)


def check_without_the_legal_tensor_every_action_counts(server):
    result = server.client.infer(MODEL, [given("observations", server.observations)])
    priors = result.as_numpy("priors")
    assert (priors > 0).all()
    # The priors of the legal actions, divided by their sum, equal the priors with the legal tensor.
    legal = np.where(server.legal, priors, 0)
    np.testing.assert_allclose(legal / legal.sum(1, keepdims=True), server.priors, atol=TOLERANCE)


def check_inputs_in_any_order_and_outputs_as_requested(server):
    outputs = [triton.InferRequestedOutput(name) for name in ("value", "priors")]
    inputs = server.inputs(server.rows(2))[::-1]
    result = server.client.infer(MODEL, inputs, outputs=outputs, request_id="seven", model_version=server.version)
    response = result.get_response()
    assert [output.name for output in response.outputs] == ["value", "priors"]
    assert len(response.raw_output_contents) == 2 and result.as_numpy("wdl") is None
    assert (response.id, response.model_name, response.model_version) == ("seven", MODEL, server.version)
    np.testing.assert_allclose(result.as_numpy("priors"), server.priors[server.rows(2)], atol=TOLERANCE)


def check_unknown_parameters_are_ignored(server):
    rows = server.rows(1)
    parameters = {"one": 1, "two": "2", "three": True, "four": 4.5}
    server.hold(server.client.infer(MODEL, server.inputs(rows), parameters=parameters, priority=3, sequence_id=9), rows)


def check_typed_contents_are_answered_typed(server):
    rows = server.rows(3)
    request = server.request(rows)
    del request.raw_input_contents[:]
    request.inputs[0].contents.fp32_contents.extend(server.observations[rows].ravel().tolist())
    request.inputs[1].contents.bool_contents.extend(server.legal[rows].ravel().tolist())
    response = server.stub.ModelInfer(request)
    assert not response.raw_output_contents
    for output, expected in zip(response.outputs, (server.priors, server.wdl)):
        got = np.array(output.contents.fp32_contents, np.float32).reshape(output.shape)
        np.testing.assert_allclose(got, expected[rows], atol=TOLERANCE)


def check_many_requests_at_once(server):
    answers = queue.Queue()
    for index in range(40):
        rows = server.rows(1 + index % 7)
        done = lambda result, error, rows=rows: answers.put((result, error, rows))
        server.client.async_infer(MODEL, server.inputs(rows), done)
    for _ in range(40):
        result, error, rows = answers.get(timeout=DEADLINE_SECONDS)
        assert error is None, error
        server.hold(result, rows)


def check_the_asyncio_client(server):
    async def all_of_it():
        async with server.connect(triton_aio) as client:
            assert await client.is_server_ready() and await client.is_model_ready(MODEL)
            rows = server.rows(3)
            asks = [client.infer(MODEL, server.inputs(rows)) for _ in range(10)]
            for result in await asyncio.gather(*asks):
                server.hold(result, rows)

            async def requests():
                for index in range(5):
                    yield {"model_name": MODEL, "inputs": server.inputs(rows), "request_id": str(index)}

            ids = []
            async for result, error in client.stream_infer(requests()):
                assert error is None, error
                server.hold(result, rows)
                ids.append(result.get_response().id)
            assert ids == ["0", "1", "2", "3", "4"], ids

    asyncio.run(asyncio.wait_for(all_of_it(), DEADLINE_SECONDS))


# Streams


@contextlib.contextmanager
def stream(server, headers=None):
    """A stream of a client of its own, and the queue of its answers."""
    answers = queue.Queue()
    client = server.connect()
    client.start_stream(lambda result, error: answers.put((result, error)), headers=headers)
    try:
        yield client, answers
    finally:
        client.stop_stream()
        client.close()


def check_a_stream_answers_in_order_and_marks_final_answers(server):
    sizes = [1 + index % 64 for index in range(100)]
    with stream(server) as (client, answers):
        for index, size in enumerate(sizes):
            inputs = server.inputs(server.rows(size))
            client.async_stream_infer(MODEL, inputs, request_id=str(index), enable_empty_final_response=True)
        for index, size in enumerate(sizes):
            result, error = answers.get(timeout=DEADLINE_SECONDS)
            assert error is None, error
            response = result.get_response()
            assert response.id == str(index)
            assert response.parameters["triton_final_response"].bool_param is True
            server.hold(result, server.rows(size))
    assert answers.empty(), "one answer to each request"


def check_a_stream_goes_on_after_an_error(server):
    with stream(server) as (client, answers):
        good = server.inputs(server.rows(1))
        for name, inputs in ((MODEL, good), ("chess", good), (MODEL, good[1:]), (MODEL, good)):
            client.async_stream_infer(name, inputs)
        got = [answers.get(timeout=DEADLINE_SECONDS) for _ in range(4)]
    assert [error is None for _, error in got] == [True, False, False, True], got
    assert "chess" in got[1][1].message() and "observations" in got[2][1].message()
    server.hold(got[3][0], server.rows(1))


def check_an_error_in_a_stream_has_the_id_of_its_request(server):
    bad = service_pb2.ModelInferRequest(model_name="chess", id="which")
    responses = list(server.stub.ModelStreamInfer(iter([bad]), timeout=DEADLINE_SECONDS))
    assert [r.infer_response.id for r in responses] == ["which"] and "chess" in responses[0].error_message


def check_a_stream_with_the_error_header_ends_with_a_status(server):
    good, bad = server.request(server.rows(1)), service_pb2.ModelInferRequest(model_name="chess")
    metadata = [("triton_grpc_error", "true")]
    answers = server.stub.ModelStreamInfer(iter([good, bad, good]), metadata=metadata, timeout=DEADLINE_SECONDS)
    assert next(answers).infer_response.outputs
    with refused("NOT_FOUND", "chess"):
        next(answers)
    with stream(server, headers={"triton_grpc_error": "true"}) as (client, got):
        client.async_stream_infer("chess", server.inputs(server.rows(1)))
        _, error = got.get(timeout=DEADLINE_SECONDS)
        assert error.status() == "StatusCode.NOT_FOUND", error


def check_a_cancelled_stream_does_not_affect_other_requests(server):
    client = server.connect()
    client.start_stream(lambda result, error: None)
    for _ in range(20):
        client.async_stream_infer(MODEL, server.inputs(server.rows(256)))
    client.stop_stream(cancel_requests=True)
    client.close()
    rows = server.rows(2)
    server.hold(server.client.infer(MODEL, server.inputs(rows)), rows)


# Rejected requests


def check_wrong_names_and_versions(server):
    good = server.inputs(server.rows(1))
    with refused("NOT_FOUND", "chess", MODEL):
        server.client.infer("chess", good)
    with refused("NOT_FOUND", "987654", server.version):
        server.client.infer(MODEL, good, model_version="987654")
    with refused("INVALID_ARGUMENT", "model_version", "first"):
        server.client.infer(MODEL, good, model_version="first")
    with refused("INVALID_ARGUMENT", "board", "observations"):
        server.client.infer(MODEL, [given("board", server.observations)])
    with refused("INVALID_ARGUMENT", "policy", "priors"):
        server.client.infer(MODEL, good, outputs=[triton.InferRequestedOutput("policy")])
    with refused("INVALID_ARGUMENT", "observations", "missing"):
        server.client.infer(MODEL, good[1:])
    with refused("INVALID_ARGUMENT", "observations", "twice"):
        server.client.infer(MODEL, [good[0], good[0]])
    with refused("INVALID_ARGUMENT", "inputs", "3 tensors"):
        server.client.infer(MODEL, good + good[:1])


def check_wrong_shapes(server):
    observations, legal = server.observations, server.legal
    for wrong in (observations[0], observations[:, :2], observations[:, :, :, :6], observations.reshape(-1, 126), observations[:0]):
        with refused("INVALID_ARGUMENT", "observations.shape"):
            server.client.infer(MODEL, [given("observations", np.ascontiguousarray(wrong))])
    for wrong in (legal[:1], legal[:, :6], legal.ravel()):
        with refused("INVALID_ARGUMENT", "legal.shape"):
            server.client.infer(MODEL, [given("observations", observations), given("legal", np.ascontiguousarray(wrong))])
    many = server.rows(server.positions_max + 1)
    with refused("INVALID_ARGUMENT", "observations.shape", str(server.positions_max)):
        server.client.infer(MODEL, server.inputs(many))


def check_wrong_datatypes(server):
    with refused("INVALID_ARGUMENT", "observations.datatype", "FP64"):
        server.client.infer(MODEL, [given("observations", server.observations.astype(np.float64))])
    with refused("INVALID_ARGUMENT", "legal.datatype", "UINT8"):
        server.client.infer(MODEL, [given("observations", server.observations), given("legal", server.legal.astype(np.uint8))])


def check_wrong_numbers(server):
    for bad in (np.nan, np.inf, -np.inf):
        observations = server.observations.copy()
        observations[1, 0, 0, 3] = bad
        with refused("INVALID_ARGUMENT", "observations[129]", "not finite"):
            server.client.infer(MODEL, [given("observations", observations)])
    with refused("INVALID_ARGUMENT", "observations[0]", "between 0 and 1"):
        server.client.infer(MODEL, [given("observations", server.observations + 2)])
    legal = server.legal.copy()
    legal[2] = False
    with refused("INVALID_ARGUMENT", "legal", "position 2"):
        server.client.infer(MODEL, [given("observations", server.observations), given("legal", legal)])


def check_wrong_contents(server):
    def spoilt(spoil):
        request = server.request(server.rows(2))
        spoil(request)
        server.stub.ModelInfer(request)

    with refused("INVALID_ARGUMENT", "observations", "in addition to raw_input_contents"):
        spoilt(lambda request: request.inputs[0].contents.fp32_contents.append(0.5))
    with refused("INVALID_ARGUMENT", "observations", "neither"):
        spoilt(lambda request: request.ClearField("raw_input_contents"))
    with refused("INVALID_ARGUMENT", "raw_input_contents", "1 entries"):
        spoilt(lambda request: request.raw_input_contents.pop())
    with refused("INVALID_ARGUMENT", "observations", "1004 bytes"):
        spoilt(lambda request: request.raw_input_contents.__setitem__(0, request.raw_input_contents[0][4:]))
    with refused("INVALID_ARGUMENT", "legal[3]", "0 or 1"):
        spoilt(lambda request: request.raw_input_contents.__setitem__(1, b"\1\1\1\2" + request.raw_input_contents[1][4:]))


def check_unsupported_features_are_refused_and_not_ignored(server):
    shared = triton.InferInput("observations", [1, 3, 6, 7], "FP32")
    shared.set_shared_memory("region", 504)
    with refused("INVALID_ARGUMENT", "observations", "shared memory"):
        server.client.infer(MODEL, [shared])
    with refused("INVALID_ARGUMENT", "wdl", "classes"):
        server.client.infer(MODEL, server.inputs(server.rows(1)), outputs=[triton.InferRequestedOutput("wdl", class_count=2)])
    for call in (
        lambda: server.client.load_model(MODEL),
        lambda: server.client.unload_model(MODEL),
        lambda: server.client.get_system_shared_memory_status(),
        lambda: server.client.get_cuda_shared_memory_status(),
        lambda: server.client.get_trace_settings(),
        lambda: server.client.get_log_settings(),
    ):
        with refused("UNIMPLEMENTED"):
            call()


def check_messages_over_four_mebibytes_are_read_and_over_the_limit_refused(server):
    with refused("INVALID_ARGUMENT", "observations.shape"):
        server.client.infer(MODEL, [given("observations", np.zeros((12_000, 3, 6, 7), np.float32))])
    with refused("OUT_OF_RANGE"):
        server.client.infer(MODEL, [given("observations", np.zeros((40_000, 3, 6, 7), np.float32))])


def check_deadlines(server):
    inputs = server.inputs(server.rows(server.positions_max))
    # The server may reject the request at once because it cannot meet the deadline, or fail it when the deadline has
    # passed.
    late = ("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
    with refused(late):
        server.client.infer(MODEL, inputs, client_timeout=1e-6)
    with refused(late):
        server.client.infer(MODEL, inputs, timeout=1)
    rows = server.rows(1)
    server.hold(server.client.infer(MODEL, server.inputs(rows), client_timeout=DEADLINE_SECONDS, timeout=10**7), rows)
    with refused("INVALID_ARGUMENT", "parameters.timeout"):
        server.client.infer(MODEL, inputs, timeout=-1)


# Statistics


def check_statistics_count_requests_and_positions(server):
    def so_far():
        (statistics,) = server.client.get_inference_statistics(MODEL).model_stats
        return statistics

    before = so_far()
    for count in (1, 2, 3):
        server.client.infer(MODEL, server.inputs(server.rows(count)))
    after = so_far()
    assert after.name == MODEL and after.version == server.version
    assert after.inference_count - before.inference_count == 6
    assert after.execution_count - before.execution_count == 3
    success = after.inference_stats.success.count - before.inference_stats.success.count
    assert success == 3, success
    for part in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert getattr(after.inference_stats, part).count - getattr(before.inference_stats, part).count == 3, part
    assert after.inference_stats.compute_infer.ns > before.inference_stats.compute_infer.ns
    assert abs(after.last_inference / 1000 - time.time()) < DEADLINE_SECONDS
    assert sum(batch.compute_infer.count for batch in after.batch_stats) == after.execution_count
    (unnamed,) = server.client.get_inference_statistics().model_stats
    assert unnamed.name == MODEL


def check_the_calls_of_perf_analyzer(server):
    """As in the source of `perf_analyzer`: what the model takes, then statistics before and after a window of requests."""
    concurrency, requests = 4, 60
    metadata, config = server.client.get_model_metadata(MODEL, ""), server.client.get_model_config(MODEL, "").config
    assert [tensor.name for tensor in metadata.inputs] == [tensor.name for tensor in config.input]
    # An input is sent if the file of the data has it, or if it is not optional.
    rows = server.rows(1)
    inputs = [tensor for tensor in server.inputs(rows) if tensor.name() == "observations"]
    answers = queue.Queue()

    def send(index):
        done = lambda result, error: answers.put((result, error))
        server.client.async_infer(MODEL, inputs, done, model_version="", request_id=str(index))

    (before,) = server.client.get_inference_statistics(MODEL, "").model_stats
    for index in range(concurrency):
        send(index)
    for index in range(requests):
        result, error = answers.get(timeout=DEADLINE_SECONDS)
        assert error is None and result.as_numpy("priors").shape == (1, 7), error
        if index + concurrency < requests:
            send(index + concurrency)
    (after,) = server.client.get_inference_statistics(MODEL, "").model_stats
    assert after.inference_count - before.inference_count == requests
    for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        old, new = (getattr(statistics.inference_stats, part) for statistics in (before, after))
        assert new.count - old.count == requests and new.ns >= old.ns, part
    # Without a file of data, the tensors are zeros or random bytes.
    zeros = [given("observations", np.zeros((1, 3, 6, 7), np.float32)), given("legal", np.zeros((1, 7), np.bool_))]
    with refused("INVALID_ARGUMENT", "legal", "position 0"):
        server.client.infer(MODEL, zeros)


# Connections


def check_a_call_over_tls_needs_the_token_and_a_call_without_tls_fails(server):
    if not server.headers:
        return
    rows = server.rows(2)
    with connection.triton_client(server.arguments) as client:
        server.hold(client.infer(MODEL, server.inputs(rows), headers=server.headers), rows)
        with refused("UNAUTHENTICATED", "token"):
            client.infer(MODEL, server.inputs(rows))
        with refused("UNAUTHENTICATED", "unknown token"):
            client.infer(MODEL, server.inputs(rows), headers={"authorization": "Bearer " + "0" * 64})
    with triton.InferenceServerClient(server.arguments.server) as client, refused("UNAVAILABLE"):
        client.infer(MODEL, server.inputs(rows), headers=server.headers, client_timeout=DEADLINE_SECONDS)


# Health and reflection


def check_health(server):
    health = health_pb2_grpc.HealthStub(server.channel)
    for service in ("", SERVICE):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
        watched = health.Watch(health_pb2.HealthCheckRequest(service=service))
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        watched.cancel()
    with refused("NOT_FOUND"):
        health.Check(health_pb2.HealthCheckRequest(service="chess"))


def check_reflection_lists_and_describes_the_service(server):
    database = ProtoReflectionDescriptorDatabase(server.channel)
    assert {SERVICE, "grpc.health.v1.Health"} <= set(database.get_services())
    service = DescriptorPool(database).FindServiceByName(SERVICE)
    published = {method.name: method for method in service.methods}
    assert len(published) == 10, sorted(published)
    stock = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    for name, method in published.items():
        assert method.input_type.full_name == stock[name].input_type.full_name
        assert method.output_type.full_name == stock[name].output_type.full_name


def check_every_published_field_is_that_of_the_stock_client(server):
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(server.channel))
    file = pool.FindFileContainingSymbol(SERVICE)
    stock = {**service_pb2.DESCRIPTOR.message_types_by_name, **model_config_pb2.DESCRIPTOR.message_types_by_name}
    compared = sum(compare(message, stock[name]) for name, message in file.message_types_by_name.items())
    assert compared > 120, compared
    ours, theirs = file.enum_types_by_name["DataType"], model_config_pb2.DataType.DESCRIPTOR
    assert {v.name: v.number for v in ours.values} == {v.name: v.number for v in theirs.values}


def compare(ours, theirs):
    """How many fields of a message were compared, with those of the messages inside."""
    for field in ours.fields:
        other = theirs.fields_by_name[field.name]
        for fact in ("number", "type", "is_repeated", "is_packed"):
            assert getattr(field, fact) == getattr(other, fact), f"{field.full_name}: {fact}"
        for kind in ("message_type", "enum_type", "containing_oneof"):
            mine, its = getattr(field, kind), getattr(other, kind)
            assert (mine and mine.full_name) == (its and its.full_name), f"{field.full_name}: {kind}"
    nested = theirs.nested_types_by_name
    return len(ours.fields) + sum(compare(inner, nested[inner.name]) for inner in ours.nested_types)


def check_both_names_of_reflection_answer(server):
    for version in ("v1", "v1alpha"):
        ask = server.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        (answer,) = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=DEADLINE_SECONDS)
        names = {service.name for service in answer.list_services_response.service}
        assert {SERVICE, "grpc.health.v1.Health"} <= names, names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    connection.add_options(parser)
    parser.add_argument("expected", help="file of the expected answers")
    arguments = parser.parse_args()
    with open(arguments.expected, encoding="utf-8") as file:
        server = Server(arguments, json.load(file))
    checks = [(name, check) for name, check in globals().items() if name.startswith("check_")]
    failed = []
    for name, check in checks:
        start = time.monotonic()
        try:
            check(server)
        except Exception:
            failed.append(name)
            traceback.print_exc()
        print(f"{'FAILED' if name in failed else 'ok':6} {name} ({time.monotonic() - start:.2f} s)", flush=True)
    print(f"{len(checks) - len(failed)} checks passed, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
