mod authority;
mod certificates;
mod request_body;
mod revocation;
mod strangers;
mod tokens;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use service::SecuritySection;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::networks::NEWCOMERS_MAX;
use super::{Credentials, Security, Timing};
use crate::scripted::{version, within};
use crate::weights::v1::weights_client::WeightsClient;
use crate::weights::v1::{Manifest, SubscribeRequest};
use crate::weights::{Publisher, WeightsService, serve};
use crate::{Channel, channel_with};
use authority::Authority;

/// Files in a temporary directory.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Replaces a file atomically: a server reads either the old or the new contents.
    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let (path, new) = (self.path(name), self.path("new"));
        std::fs::write(&new, contents).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A weights server, which stops when dropped.
struct Server {
    address: SocketAddr,
    publisher: Publisher,
    _task: JoinSet<Result<(), tonic::transport::Error>>,
}

impl Server {
    async fn start(section: &SecuritySection) -> Self {
        Self::start_timed(section, Timing::default()).await
    }

    async fn start_timed(section: &SecuritySection, timing: Timing) -> Self {
        let security = Security { timing, ..Security::open_looking(section, Duration::ZERO).unwrap() };
        let (service, publisher) = WeightsService::new(1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(serve(service, security, listener, CancellationToken::new()));
        Self { address, publisher, _task: task }
    }

    fn publish(&self, number: u64) {
        let published = version(number, vec![7; 9]);
        self.publisher.publish(published.manifest, published.bytes).unwrap();
    }

    fn channel(&self, scheme: &str, section: &SecuritySection) -> Channel {
        let credentials = Credentials::open_looking(section, Duration::ZERO).unwrap();
        channel_with(&format!("{scheme}://{}", self.address), credentials).unwrap()
    }
}

async fn health(channel: &Channel) -> Result<Response<HealthCheckResponse>, Status> {
    within(HealthClient::new(channel.clone()).check(HealthCheckRequest::default())).await
}

async fn subscribe(channel: &Channel) -> Result<(), Status> {
    subscription(channel).await.map(drop)
}

async fn subscription(channel: &Channel) -> Result<Streaming<Manifest>, Status> {
    let request = SubscribeRequest { name: "test".to_owned() };
    within(WeightsClient::new(channel.clone()).subscribe(request)).await.map(Response::into_inner)
}

fn trusting(ca: &Path) -> SecuritySection {
    SecuritySection { ca: ca.to_owned(), ..SecuritySection::default() }
}

#[test]
fn a_server_without_authentication_is_not_opened_off_loopback() {
    let error = Security::open(&SecuritySection::default(), "0.0.0.0:7001".parse().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("security.insecure_bind: "), "{error}");
    Security::open(&SecuritySection::default(), "127.0.0.1:7001".parse().unwrap()).unwrap();
}

#[test]
fn a_file_that_cannot_be_used_is_rejected_by_its_key() {
    let (files, authority) = (Files::new(), Authority::new());
    let (certificate, key) = authority.certificate("127.0.0.1");
    let (certificate, key) = (files.write("server.pem", certificate), files.write("server.key", key));
    let good = SecuritySection { certificate, key, ..SecuritySection::default() };
    Security::open_looking(&good, Duration::ZERO).unwrap();

    let refused = |section: SecuritySection| Security::open_looking(&section, Duration::ZERO).unwrap_err().to_string();
    let missing = refused(SecuritySection { certificate: files.path("nothing"), ..good.clone() });
    assert!(missing.starts_with("security.certificate: cannot read "), "{missing}");
    let empty = refused(SecuritySection { certificate: files.write("empty", ""), ..good.clone() });
    assert!(empty.starts_with("security.certificate: ") && empty.ends_with("contains no PEM certificate"), "{empty}");
    let no_key = refused(SecuritySection { key: good.certificate.clone(), ..good.clone() });
    assert!(no_key.starts_with("security.key: ") && no_key.contains("contains no PEM private key"), "{no_key}");
    let other_key =
        refused(SecuritySection { key: files.write("other", authority.certificate("a").1), ..good.clone() });
    assert!(other_key.starts_with("security.key: "), "{other_key}");
    let no_token = SecuritySection { token_file: files.write("token", " \n"), ..SecuritySection::default() };
    let no_token = Credentials::open(&no_token).unwrap_err().to_string();
    assert!(no_token.starts_with("security.token_file: ") && no_token.ends_with("contains no token"), "{no_token}");
}
