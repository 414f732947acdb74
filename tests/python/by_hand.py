"""Does what the `grpcurl` lines of a page say, with what the servers say of themselves by reflection and with nothing else.

    python by_hand.py PAGE.md GAME=SERVER GAME=SERVER ...

A line goes to the server of the game that it names, or else to the first.
"""

import json
import pathlib
import re
import shlex
import sys

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

DEADLINE_SECONDS = 60


def commands(page):
    """The arguments of each line, without the program."""
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        for command in re.split(r"^(?=\S)", block.replace("\\\n", " "), flags=re.MULTILINE):
            if command.startswith("grpcurl "):
                yield shlex.split(command)[1:]


def run(channel, arguments):
    """What a command prints, as text."""
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    assert arguments.pop(0) == "-plaintext"
    data = "{}"
    if arguments[0] == "-d":
        data = arguments[1]
        del arguments[:2]
    _, verb, *names = arguments
    if verb == "list":
        return "\n".join(database.get_services())
    if verb == "describe":
        (name,) = names
        file = pool.FindFileContainingSymbol(name)
        return f"{name} is in {file.name}"
    service, method = verb.split("/")
    method = pool.FindServiceByName(service).methods_by_name[method]
    request = json_format.ParseDict(json.loads(data), message_factory.GetMessageClass(method.input_type)())
    call = channel.unary_stream if method.server_streaming else channel.unary_unary
    answer = call(
        f"/{verb}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
    )(request, timeout=DEADLINE_SECONDS)
    answers = answer if method.server_streaming else [answer]
    return "\n".join(json_format.MessageToJson(message, descriptor_pool=pool, indent=None) for message in answers)


def main():
    page, *servers = sys.argv[1:]
    channels = {game: grpc.insecure_channel(server) for game, server in (server.split("=") for server in servers)}
    done = 0
    for command in commands(pathlib.Path(page).read_text(encoding="utf-8")):
        named = [game for game in channels if f'"{game}"' in " ".join(command)]
        channel = channels[(named or list(channels))[0]]
        print(f"grpcurl {shlex.join(command)}", flush=True)
        said = run(channel, command)
        assert said, "nothing came back"
        print(f"{said}\n", flush=True)
        done += 1
    print(f"{done} lines were answered")


if __name__ == "__main__":
    main()
