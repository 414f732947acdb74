"""The options of all examples for the connection to an inference server: TLS, client certificates and tokens."""

import argparse
import pathlib


def readable(text):
    """Returns the path of a file that can be read."""
    path = pathlib.Path(text)
    try:
        path.read_bytes()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {text}: {error.strerror}") from error
    return path


def add_options(parser):
    """Adds the address of the server and the options of the connection to a command line."""
    parser.add_argument("server", help="address of the inference server: 127.0.0.1:7003")
    group = parser.add_argument_group("connection", "for a server with TLS, client certificates or tokens: docs/security.md")
    group.add_argument("--ca", type=readable, metavar="FILE", help="authority that signed the certificate of the server")
    group.add_argument("--cert", type=readable, metavar="FILE", help="certificate of this client, where the server requires one")
    group.add_argument("--key", type=readable, metavar="FILE", help="key of the certificate of this client")
    group.add_argument("--token", type=readable, metavar="FILE", help="file with the token of this client")


def check(parser, arguments):
    """Ends the program where an option lacks another."""
    if (arguments.cert is None) != (arguments.key is None):
        parser.error("--cert and --key belong together")
    if arguments.cert and not arguments.ca:
        parser.error("--cert needs --ca: client certificates are part of TLS")
    if arguments.token and not arguments.ca and not arguments.server.startswith(("127.", "localhost:", "[::1]:")):
        parser.error("--token needs --ca: without TLS, the token would be sent unencrypted")


def headers(arguments):
    """Returns the headers of every call."""
    return {"authorization": f"Bearer {arguments.token.read_text().strip()}"} if arguments.token else {}


def triton_client(arguments):
    """Returns the client of `tritonclient`; each call also takes the `headers`."""
    import tritonclient.grpc as triton

    files = {"root_certificates": arguments.ca, "certificate_chain": arguments.cert, "private_key": arguments.key}
    files = {name: str(path) for name, path in files.items() if path}
    return triton.InferenceServerClient(arguments.server, ssl=arguments.ca is not None, **files)


def channel(arguments):
    """Returns the channel of `grpcio`; each call also takes the `headers` as metadata."""
    import grpc

    if not arguments.ca:
        return grpc.insecure_channel(arguments.server)
    authority, key, certificate = (path and path.read_bytes() for path in (arguments.ca, arguments.key, arguments.cert))
    credentials = grpc.ssl_channel_credentials(authority, private_key=key, certificate_chain=certificate)
    return grpc.secure_channel(arguments.server, credentials)
