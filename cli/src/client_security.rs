//! Loads the credentials with which commands connect to a live server.

use std::path::PathBuf;

use fleet::run_directory::SecurityOnly;
use service::config::Sources;
use transport::security::use_credentials;

/// Arguments with the endpoint of a live server and the client credentials.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LiveServer {
    /// Endpoint of a live server (http or https): `http://127.0.0.1:7001`.
    #[arg(long, value_name = "ENDPOINT")]
    server: String,
    /// Run file with CA, client certificate and token in [security].
    #[arg(long, value_name = "FILE", requires = "server")]
    config: Option<PathBuf>,
    /// Override one key of the --config file: `security.ca=ca.pem`.
    ///
    /// May be repeated.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", requires = "server")]
    sets: Vec<String>,
}

impl LiveServer {
    /// Installs the credentials for all gRPC channels of this process, and returns the server endpoint.
    ///
    /// # Errors
    /// A configuration key is invalid, a file cannot be read, or `security.ca` is missing for an `https` endpoint.
    pub(crate) fn reach(&self) -> anyhow::Result<&str> {
        let sources = Sources { file: self.config.clone(), env: std::env::vars_os(), sets: self.sets.clone() };
        let SecurityOnly { security } = sources.layers()?.load()?;
        security.check_endpoint("--server", &self.server)?;
        use_credentials(&security)?;
        Ok(&self.server)
    }
}
