use std::fmt;
use std::str::FromStr;

use crate::channel::{self, InvalidEndpoint};

/// One or several endpoints, as a configuration writes them: `http://a:7001,https://b:7001`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints(Vec<String>);

impl Endpoints {
    /// Each of them, as it was written; at least one.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for Endpoints {
    type Err = InvalidEndpoint;

    /// # Errors
    /// The first that is not an endpoint; an empty one too.
    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let one = |endpoint: &str| channel::check(endpoint).map(|()| endpoint.to_owned());
        text.split(',').map(str::trim).map(one).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}
