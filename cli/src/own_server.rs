//! Starts an inference server for a command that needs an engine with libtorch.
//!
//! `zerofleet` does not link libtorch, and therefore starts on machines without libtorch. For a command on an
//! accelerator, [`start`] runs the program `inference-server` from the same directory with the command's weights.
//! Evaluation then works as with the inference server of a fleet ([`remote`]). The server stops when the command stops.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fleet::child::{self, Child};
use fleet::wiring::arguments;
use fleet::{Role, beside_this_binary, exposition};
use game::Game;
use inference::Evaluator;
use service::net::{ReservedPort, reserve_ports};
use tempfile::TempDir;
use version_store::{Retention, VersionStore};
use weights::{Manifest, Model};

use crate::remote;

/// Maximum time for the server to load libtorch and the weights, and to select kernels for the device.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Timeout of a readiness request.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between checks of the starting server.
const START_POLL: Duration = Duration::from_millis(100);

/// Weights and settings for the server.
pub(crate) struct Served<'a> {
    /// Text of the run file, with security and search settings.
    pub config: String,
    /// Manifest of the weights.
    pub manifest: &'a Manifest,
    /// Bytes of the weights.
    pub bytes: &'a [u8],
    /// Settings that override the run file: `inference.device=cuda`.
    pub sets: Vec<String>,
    /// URL scheme of the endpoint by the security settings: `http` or `https`.
    pub scheme: &'static str,
}

/// Starts the server and returns an evaluator for each thread.
///
/// # Errors
/// The program is missing, the server does not support the network, or the server exits before it is ready; the error
/// then contains the last log line.
pub(crate) fn start<G: Game>(served: Served<'_>, game: &G, threads: usize) -> anyhow::Result<Vec<Box<dyn Evaluator>>> {
    ensure!(
        served.manifest.architecture.model == Model::Alphazero,
        "an inference server supports only networks of wins, draws and losses; use zerofleet-torch (cargo build \
         --release --package cli --features torch)"
    );
    let program = beside_this_binary(Role::Inference.program(), "inference-server --features torch")?;
    let server = Server::start(program, &served).context("start an inference server")?.ready()?;
    let endpoint = format!("{}://{}", served.scheme, server.ports[0].address());
    remote::evaluators(&endpoint, game, threads, Some(Arc::new(server)))
}

/// A running inference server. Dropping the value kills the process and removes the files.
struct Server {
    child: Child,
    /// The ports for requests and for administration, in this order.
    ports: [ReservedPort; 2],
    /// Temporary directory for run file, weights and log. It is removed as soon as the server is ready, because a
    /// signal after that would leave the files behind.
    folder: Option<TempDir>,
}

impl Server {
    fn start(program: PathBuf, served: &Served<'_>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("create a directory for the weights")?;
        let store = VersionStore::new(folder.path().to_owned());
        store.write(served.manifest, served.bytes, Retention::All)?;
        let weights = store.manifest_path(served.manifest.version);
        let ports: [ReservedPort; 2] = reserve_ports().context("find free ports")?;
        let [listen, admin] = ports.each_ref().map(|port| port.address().to_string());
        let sets = [format!("inference.weights={}", weights.display())].into_iter().chain(served.sets.iter().cloned());
        let config = folder.path().join("config.toml");
        std::fs::write(&config, &served.config).context("write the run file")?;
        let mut arguments = arguments(&config, Some(&listen), sets);
        arguments.extend(["--admin".into(), admin.into(), "--exit-with-parent".into()]);
        let settings = child::Settings {
            name: Role::Inference.program().to_owned(),
            program,
            arguments,
            environment: Vec::new(),
            log: folder.path().join("inference-server.log"),
        };
        Ok(Self { child: Child::start(settings, Instant::now())?, ports, folder: Some(folder) })
    }

    /// Waits until the server accepts connections.
    fn ready(mut self) -> anyhow::Result<Self> {
        let deadline = Instant::now() + START_TIMEOUT;
        let agent = exposition::agent(PROBE_TIMEOUT);
        let admin = self.ports[1].address();
        while exposition::get(&agent, admin, "readyz").is_none_or(|(status, _)| status != 200) {
            if let Some(exit) = self.child.exit()? {
                bail!("the inference server {}: {}", exit.how, exit.last_log_line);
            }
            if Instant::now() > deadline {
                let last = self.child.last_log_line();
                bail!("the inference server is not ready after {} s: {last}", START_TIMEOUT.as_secs());
            }
            std::thread::sleep(START_POLL);
        }
        drop(self.folder.take());
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use games::GameKind;
    use weights::WeightsVersion;

    use super::*;
    use crate::trained::tests::architecture;

    #[test]
    fn a_server_that_ends_before_it_answers_is_reported_with_its_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("inference-server");
        std::fs::write(&program, "#!/bin/sh\necho 'error: inference.device: no driver'\nexit 1\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let bytes = b"weights";
        let manifest = Manifest::of(bytes, WeightsVersion(3), 10, architecture(&GameKind::TicTacToe));
        let config = String::new();
        let served = Served { config, manifest: &manifest, bytes, sets: Vec::new(), scheme: "http" };
        let server = Server::start(program, &served).unwrap();
        let error = server.ready().err().unwrap().to_string();
        assert_eq!(error, "the inference server ended with status 1: error: inference.device: no driver");
    }
}
