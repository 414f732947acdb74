//! A single inference server, with weights from a file.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use service::net::reserve_ports;
use tempfile::TempDir;

use crate::cluster::print_log;
use crate::process::Process;

/// Reading weights on a busy machine takes a while.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// An inference server, in a directory that is deleted at the end. The log is printed if the test panics.
#[derive(Debug)]
pub struct InferenceServer {
    // Fields are dropped in this order: the process stops before the directory is removed.
    process: Process,
    directory: TempDir,
    port: u16,
}

impl InferenceServer {
    /// Creates a server of `game` with settings such as `inference.batch_max=64`, without starting it.
    ///
    /// # Errors
    /// The binary is missing, or the directory cannot be made.
    pub fn new(game: &str, sets: &[&str]) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("make the folder of the server")?;
        let [listen, admin] = reserve_ports().context("find free ports")?;
        let [port, admin_port] = [&listen, &admin].map(|port| port.address().port());
        let run = [format!("run.game={game}"), format!("run.directory={}", directory.path().display())];
        let sets = run.into_iter().chain(sets.iter().map(|&set| set.to_owned()));
        let mut arguments: Vec<OsString> = vec!["--listen".into(), format!("127.0.0.1:{port}").into()];
        arguments.extend(sets.flat_map(|set| ["--set".into(), set.into()]));
        let mut process =
            Process::new("inference-server", "inference-server", arguments, admin_port, directory.path())?;
        process.keep([listen, admin]);
        Ok(Self { directory, process, port })
    }

    /// Starts the server with the weights of the manifest `weights`, and waits until it is ready.
    ///
    /// # Errors
    /// The server cannot be started or does not become ready.
    pub fn start(&mut self, weights: &Path) -> anyhow::Result<()> {
        self.process.argue(&["--set", &format!("inference.weights={}", weights.display())]);
        self.process.start()?;
        self.process.ready(START_DEADLINE)
    }

    /// Returns the directory in which the server and the test may write.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the address of the server: `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the process of the server.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Drop for InferenceServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_log(&self.process);
        }
    }
}
