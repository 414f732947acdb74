//! What all our clients share: a channel that connects when it is used, and again after it broke.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use crate::server::{
    CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, STREAM_WINDOW_BYTES,
};

/// A server that does not take a connection within that is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// An endpoint that is not the address of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{endpoint}` is not an endpoint, write it as `http://host:port`")]
pub struct InvalidEndpoint {
    /// What was given.
    pub endpoint: String,
}

/// A channel to `endpoint` (`http://host:port`). It connects with its first call; calls fail with `UNAVAILABLE` while
/// the server is away, and the first after it is back connects again.
///
/// # Errors
/// [`InvalidEndpoint`].
pub fn channel(endpoint: &str) -> Result<Channel, InvalidEndpoint> {
    Ok(settings(endpoint)?.connect_lazy())
}

/// Checks `endpoint` without connecting, so that a configuration can be refused before anything starts.
///
/// # Errors
/// [`InvalidEndpoint`].
pub fn check(endpoint: &str) -> Result<(), InvalidEndpoint> {
    settings(endpoint).map(drop)
}

fn settings(endpoint: &str) -> Result<Endpoint, InvalidEndpoint> {
    let invalid = || InvalidEndpoint { endpoint: endpoint.to_owned() };
    let settings = Endpoint::from_shared(endpoint.to_owned()).map_err(|_| invalid())?;
    // The text, not only what was parsed: tonic reads `unix:` paths as sockets behind a made-up address.
    if !endpoint.starts_with("http://") || settings.uri().host().is_none_or(str::is_empty) {
        return Err(invalid());
    }
    Ok(settings
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true))
}

#[cfg(test)]
mod tests;
