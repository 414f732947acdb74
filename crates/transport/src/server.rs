//! Creates gRPC servers with common settings: windows, keepalive, deadlines, authorization.

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::Server;
use tower_layer::{Identity, Stack};

use crate::deadline::Deadlines;
use crate::security::{Guard, Security};

/// HTTP/2 window of a request body, in bytes. HTTP/2 stores up to one window of a body before the server reads it, so
/// the windows of all requests bound the memory that clients take with unfinished messages. A client sends one window
/// per round trip: 2.6 MB/s at 50 ms, 250 MB/s inside a data centre.
const REQUEST_WINDOW_BYTES: u32 = 128 << 10;
/// HTTP/2 window of all requests on a connection, in bytes: 64 streams that the server does not read, because a rate
/// limiter blocks inserts, do not block other calls through a proxy.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// Largest HTTP/2 frame of a request, in bytes. A frame that waits for the memory of the message is stored in
/// addition to the window.
const REQUEST_FRAME_BYTES_MAX: u32 = 32 << 10;
/// Time without data after which the server sends a ping to the other side.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Time limit for the response to a ping, after which the server closes the connection. Interval and timeout together
/// are less than TCP's longest retransmission timeout after a cut of the same length, so peers reconnect within seconds
/// after a cut of any length.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum number of concurrent calls and streams on one connection: many times what the busiest client needs. Further
/// calls wait in the client.
const STREAMS_PER_CONNECTION_MAX: u32 = 1024;

/// Age at which a connection accepts no further calls. Calls in progress continue, and the client opens another
/// connection for the next call. Forgotten connections are thus closed, and clients also connect to added servers.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// A server that checks calls against deadlines and the [`Guard`].
pub type GuardedServer = Server<Stack<Guard, Stack<Deadlines, Identity>>>;

/// Returns a server with the settings of this crate, for the connections of [`incoming`](crate::incoming()). It
/// serves the calls that `security` allows, until the deadline of each call. Services added to the server set message
/// limits. A server for large requests sets a larger stream window.
#[must_use]
pub fn server(security: &Security) -> GuardedServer {
    server_aged(security, CONNECTION_AGE_MAX)
}

/// Serves `services` on the connections that `listener` accepts, at most `connections_max` at once, until `stopped`.
/// Calls in progress are finished.
///
/// Everything is boxed, so that the transport is compiled in this crate, and not again in each serving crate.
pub fn serve(
    server: GuardedServer,
    services: Routes,
    listener: TcpListener,
    connections_max: usize,
    security: Security,
    stopped: BoxFuture<'static, ()>,
) -> BoxFuture<'static, Result<(), tonic::transport::Error>> {
    let mut server = server;
    let connections = crate::incoming(listener, connections_max, security).boxed();
    Box::pin(async move { server.add_routes(services).serve_with_incoming_shutdown(connections, stopped).await })
}

/// Returns a [`server`] with another maximum age of connections.
pub(crate) fn server_aged(security: &Security, connection_age_max: Duration) -> GuardedServer {
    Server::builder()
        .max_connection_age(connection_age_max)
        .initial_stream_window_size(REQUEST_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(REQUEST_FRAME_BYTES_MAX)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .layer(Deadlines)
        .layer(security.guard())
}
