//! How commands reach a live server: whom they trust and who they are.

use std::path::PathBuf;

use proto::security::use_credentials;
use serde::{Deserialize, Serialize};
use service::SecuritySection;
use service::config::{SECTIONS, Sources};

/// What is said beside `--server`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Trust {
    /// A run file whose section [security] says whom to trust and which token to show.
    #[arg(long, value_name = "FILE", requires = "server")]
    config: Option<PathBuf>,
    /// Overrides a key of it: `--set security.ca=ca.pem`; may be given many times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", requires = "server")]
    sets: Vec<String>,
}

/// What is read of a run file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Read {
    security: SecuritySection,
}

impl Trust {
    /// Makes every channel of this process reach `endpoint` so.
    ///
    /// # Errors
    /// A key that makes no sense, a file that cannot be read, an `https` endpoint with nobody to trust.
    pub(crate) fn reach(&self, endpoint: &str) -> anyhow::Result<()> {
        let sources = Sources { file: self.config.clone(), env: std::env::vars_os(), sets: self.sets.clone() };
        let Read { security } = sources.load(SECTIONS)?;
        security.check_endpoint("--server", endpoint)?;
        Ok(use_credentials(&security)?)
    }
}
