//! Opens the gRPC channel that every client uses. A channel connects with the first call, and reconnects after a broken
//! connection.

mod connector;
mod endpoint;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use connector::{Connector, Rejection};
pub(crate) use endpoint::Target;
pub use endpoint::{InvalidEndpoint, check};
use service::security::is_plain_off_loopback;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{Request, Response};
use tonic::transport::Endpoint;

use crate::security::Credentials;
use crate::server::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT};

/// HTTP/2 window of one response, in bytes: room for four weight chunks or thousands of trajectories.
const ANSWER_WINDOW_BYTES: u32 = 4 << 20;
/// HTTP/2 window of all responses on a connection, in bytes. A fixed window, since the adaptive window starts at
/// 64 KiB and limits high-latency links to a tenth of the bandwidth.
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;
/// Largest HTTP/2 response frame, in bytes. With this size a weight chunk takes two frames instead of sixty-four.
const ANSWER_FRAME_BYTES_MAX: u32 = 512 << 10;

/// Time limit for connecting, including name resolution. A server that takes longer counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns a channel to `endpoint` (`http://host:port`, or `https://host:port` with TLS), with the credentials of
/// this process ([`use_credentials`](crate::security::use_credentials)). The first call connects. While the server is
/// unreachable, calls fail with `UNAVAILABLE`; the first call after the server returns reconnects. Calls fail with
/// `UNAUTHENTICATED` while one side rejects the certificate of the other side; the message names the side and the
/// reason.
///
/// # Errors
/// [`InvalidEndpoint`].
pub fn channel(endpoint: &str) -> Result<Channel, InvalidEndpoint> {
    channel_with(endpoint, Credentials::of_process())
}

/// Returns a [`channel`] with `credentials` instead of the credentials of this process.
///
/// # Errors
/// [`InvalidEndpoint`].
pub fn channel_with(endpoint: &str, credentials: Credentials) -> Result<Channel, InvalidEndpoint> {
    let target: Target = endpoint.parse()?;
    if credentials.authorization().is_some() && is_plain_off_loopback(endpoint) {
        return Err(InvalidEndpoint::UnencryptedToken { endpoint: endpoint.to_owned() });
    }
    let settings = settings(target.uri.clone());
    let rejection = Rejection::new(endpoint);
    let inner = settings.connect_with_connector_lazy(Connector::new(target, credentials.clone(), rejection.clone()));
    Ok(Channel { inner, credentials, rejection })
}

fn settings(uri: tonic::transport::Uri) -> Endpoint {
    Endpoint::from(uri)
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(ANSWER_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(ANSWER_FRAME_BYTES_MAX)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
}

/// A connection to a server, opened on demand; every call carries the token of the credentials. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Channel {
    inner: tonic::transport::Channel,
    credentials: Credentials,
    /// The reason of the last rejection, if the last connection was rejected.
    rejection: Rejection,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(|error| self.rejection.explain(error))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(token) = self.credentials.authorization() {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        let response = self.inner.call(request);
        let rejection = self.rejection.clone();
        Box::pin(async move { response.await.map_err(|error| rejection.explain(error)) })
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use super::endpoint::Target;

    #[test]
    fn endpoints_are_http_or_https_with_a_host() {
        for good in [
            "http://127.0.0.1:5000",
            "http://[::1]:5000",
            "http://replay:80",
            "https://replay:443",
            "https://127.0.0.1:5000",
            "https://[::1]:5000",
            "https://replay",
            "https://replay@10.0.0.1:5000",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_malformed_endpoint_is_refused_and_quoted_in_the_error() {
        let bad = [
            "",
            "127.0.0.1:5000",
            "unix:/socket",
            "http://",
            "https://",
            "https://@10.0.0.1:5000",
            "https://replay@",
            "not an endpoint",
        ];
        for bad in bad {
            let error = check(bad).expect_err(bad);
            let expected = format!("`{bad}` is not an endpoint; expected `http://host:port` or `https://host:port`");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn an_endpoint_with_a_name_and_an_address_dials_the_address_and_verifies_the_name() {
        let Target { uri, dial, tls_server } = "https://replay@[::1]:5000".parse().unwrap();
        let tls_server = tls_server.unwrap();
        assert_eq!((uri.to_string().as_str(), tls_server.to_str().as_ref()), ("https://replay:5000/", "replay"));
        assert_eq!((&*dial.0, dial.1), ("::1", 5000));
    }
}
