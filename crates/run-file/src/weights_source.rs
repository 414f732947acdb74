use std::path::PathBuf;

use service::{ConfigError, SecuritySection};

/// Where network weights come from: a server or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightsSource {
    /// A learner or an arena at this endpoint; all later versions are loaded as well.
    Server(String),
    /// A single weights version, given by the path of a manifest or a model folder.
    File(PathBuf),
}

impl WeightsSource {
    /// Returns a server source for `endpoint`. Errors name `key`, the run file key of the endpoint.
    ///
    /// # Errors
    /// The endpoint is invalid, is `https` without `security.ca`, or would receive a token unencrypted.
    pub(crate) fn server(key: &str, endpoint: &str, security: &SecuritySection) -> Result<Self, ConfigError> {
        transport::check_endpoint(endpoint).map_err(|error| ConfigError::invalid(key, error))?;
        security.check_endpoint(key, endpoint)?;
        Ok(Self::Server(endpoint.to_owned()))
    }
}
