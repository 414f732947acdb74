use std::path::PathBuf;

use service::{ConfigError, SecuritySection};

/// The source of weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightsSource {
    /// A learner or an arena at this endpoint, with all later versions.
    Server(String),
    /// A single version: the path of the manifest.
    File(PathBuf),
}

impl WeightsSource {
    /// Returns the server at the endpoint that `key` names.
    ///
    /// # Errors
    /// The endpoint is invalid, or must not be used without TLS.
    pub(crate) fn server(key: &str, endpoint: &str, security: &SecuritySection) -> Result<Self, ConfigError> {
        proto::check_endpoint(endpoint).map_err(|error| ConfigError::invalid(key, error))?;
        security.check_endpoint(key, endpoint)?;
        Ok(Self::Server(endpoint.to_owned()))
    }
}
