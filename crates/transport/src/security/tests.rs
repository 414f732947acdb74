mod authority;
mod certificates;
mod numbers;
mod request_body;
mod revocation;
mod strangers;
mod tokens;

use std::future::pending;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use service::SecuritySection;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::{Response, Status, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::{Credentials, Security, Timing};
use crate::{Channel, channel_with};
use authority::Authority;
use numbers::{Numbers, subscription};

/// Time limit of every wait, far longer than any expected event takes.
const DEADLINE: Duration = Duration::from_secs(30);
/// Maximum number of open connections of a test's server: more than any test opens.
const CONNECTIONS_MAX: usize = 8_192;

/// A certificate of version 1, as `openssl x509 -req` makes without `-extfile`.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBIjCByQIUfm+sixJOWa4C7IkvD8GFOc4QX0YwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MB4XDTI2MTEyOTEzMDI1MloXDTI3MDIyNzEzMDI1Mlow
FDESMBAGA1UEAwwJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
ny9gkXk/m6WmOMFyTFQoKp7gzRmOJ7Gf3o2xyIkt1gj5ntVp0hwjbbYYCzCqPCeX
Q9igqvdi0JyR0MeQfYDbiDAKBggqhkjOPQQDAgNIADBFAiA5d4HvWakWznBksCY0
amTO43rrqI8cMQulqeZ/eLSplAIhAN/pMLbBV1/4YSTqf9DY3FJbNjLWCQY1/ItG
3UVpMAIh
-----END CERTIFICATE-----
";

/// Awaits `future`, and panics if it does not complete before the deadline.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it comes before the deadline")
}

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

/// A server of numbers, health and reflection, which stops when dropped.
struct Server {
    address: SocketAddr,
    numbers: watch::Sender<u64>,
    _task: JoinSet<Result<(), tonic::transport::Error>>,
}

impl Server {
    async fn start(section: &SecuritySection) -> Self {
        Self::start_timed(section, Timing::default()).await
    }

    async fn start_timed(section: &SecuritySection, timing: Timing) -> Self {
        let security = Security { timing, ..Security::open_looking(section, Duration::ZERO).unwrap() };
        let (service, numbers) = Numbers::new();
        let described = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        let reflection = described.build_v1().unwrap();
        let services = Routes::new(health_service()).add_service(reflection).add_service(service);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (server, stopped) = (crate::server(&security), Box::pin(pending::<()>()));
        let mut task = JoinSet::new();
        task.spawn(crate::serve(server, services, listener, CONNECTIONS_MAX, security, stopped));
        Self { address, numbers, _task: task }
    }

    fn publish(&self, number: u64) {
        self.numbers.send_replace(number);
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

/// Returns the health service of a process that is serving.
fn health_service() -> HealthServer<impl Health> {
    tonic_health::server::health_reporter().1
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
    assert!(other_key.ends_with("not the key of the certificate"), "{other_key}");
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = refused(SecuritySection { key: files.write("encrypted", encrypted), ..good.clone() });
    assert!(encrypted.starts_with("security.key: ") && encrypted.contains("without the passphrase"), "{encrypted}");
    let unknown = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
    let unknown = refused(SecuritySection { key: files.write("unknown", unknown), ..good.clone() });
    assert!(unknown.starts_with("security.key: ") && unknown.contains("supported are ECDSA"), "{unknown}");
    let cut =
        refused(SecuritySection { certificate: files.write("cut", "-----BEGIN CERTIFICATE-----\nMA"), ..good.clone() });
    assert!(cut.starts_with("security.certificate: ") && cut.contains("copy the whole file"), "{cut}");
    let first = refused(SecuritySection { certificate: files.write("first.pem", VERSION_1), ..good.clone() });
    assert!(first.starts_with("security.certificate: ") && first.contains("version 1 of X.509"), "{first}");
    let no_token = SecuritySection { token_file: files.write("token", " \n"), ..SecuritySection::default() };
    let no_token = Credentials::open(&no_token).unwrap_err().to_string();
    assert!(no_token.starts_with("security.token_file: ") && no_token.ends_with("contains no token"), "{no_token}");
}
