//! One request to a collector: OTLP over HTTP/1.1 with a connection for each, since a batch leaves once a second at
//! most.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The default port of OTLP over HTTP.
const PORT: u16 = 4318;
/// The default path of traces.
const PATH: &str = "/v1/traces";

/// The collector that receives spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collector {
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) path: String,
}

/// The reason that a batch was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    /// A retry may succeed.
    #[error("{0}")]
    Away(String),
    /// A retry cannot succeed.
    #[error("the collector answers {0}")]
    Refused(StatusCode),
}

impl Collector {
    /// Parses an endpoint as OpenTelemetry's exporters do: without a path, traces go to `/v1/traces`.
    ///
    /// # Errors
    /// Describes the invalid part.
    pub(crate) fn parse(endpoint: &str) -> Result<Self, String> {
        let uri: Uri = endpoint.parse().map_err(|_| "is no address: write it like http://127.0.0.1:4318".to_owned())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                let reason =
                    "is https: send to a collector on this machine or in this network, which sends on over TLS";
                return Err(reason.to_owned());
            }
            _ => return Err("must begin with http://".to_owned()),
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or("names no host")?;
        // User information would be printed wherever the endpoint is.
        if authority.as_str().contains('@') {
            return Err("must hold no user and no password".to_owned());
        }
        let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(PORT));
        let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
            "/" => PATH.to_owned(),
            path => path.to_owned(),
        };
        Ok(Self { address, path })
    }

    /// Sends an encoded request.
    pub(crate) async fn post(&self, body: Bytes) -> Result<(), NotTaken> {
        let away = |error: &dyn std::error::Error| NotTaken::Away(format!("{}: {error}", self.address));
        let socket = TcpStream::connect(&self.address).await.map_err(|error| away(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(|error| away(&error))?;
        let request = Request::post(&self.path)
            .header(HOST, &self.address)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(CONNECTION, "close")
            .body(Full::new(body))
            .map_err(|error| away(&error))?;
        // However this returns, the connection ends with it.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let status = sender.send_request(request).await.map_err(|error| away(&error))?.status();
        match status {
            status if status.is_success() => Ok(()),
            // The statuses that OTLP allows to be retried.
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(NotTaken::Away(format!("{} answers {status}", self.address))),
            status => Err(NotTaken::Refused(status)),
        }
    }
}
