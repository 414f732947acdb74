use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::caller::ActorIds;

/// A group of methods and pages that a token or certificate allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Inserting trajectories, following weights.
    Act,
    /// Choosing stored trajectories of any actor and replacing their searches.
    Revise,
    /// Drawing samples, updating priorities and reporting trajectories, following weights, training with other
    /// learners.
    Train,
    /// Evaluating positions, also from the console; following weights.
    Infer,
    /// Looking at the pages of the console.
    View,
    /// Changing tables; quarantining and releasing trajectories and actors; changing a run from the console.
    Admin,
}

impl Scope {
    pub(super) const ALL: [Self; 6] = [Self::Act, Self::Revise, Self::Train, Self::Infer, Self::View, Self::Admin];

    fn name(self) -> &'static str {
        match self {
            Self::Act => "act",
            Self::Revise => "revise",
            Self::Train => "train",
            Self::Infer => "infer",
            Self::View => "view",
            Self::Admin => "admin",
        }
    }
}

/// Maximum length of an invalid scope quoted in an error, in bytes.
const QUOTED_BYTES_MAX: usize = 8;

/// A set of scopes, written as a comma-separated list. The default has every scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes(BTreeSet<Scope>);

/// The identity of a client.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credential {
    /// A token, by digest.
    Token([u8; 32]),
    /// A certificate, by the first DNS name.
    Certificate(Option<Arc<str>>),
}

/// Name and scopes of a known token or certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(super) credential: Credential,
    pub(super) name: Arc<str>,
    pub(super) scopes: Scopes,
    /// The actor ids under which a holder with the scope `act` may insert.
    pub(super) actors: ActorIds,
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token(_) => "token",
            Self::Certificate(_) => "certificate",
        })
    }
}

/// Omits digests, because a weak token could be guessed from the digest.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} of {} has {}", self.credential, self.name, self.scopes)
    }
}

impl Scopes {
    pub(super) fn of(scopes: &[Scope]) -> Self {
        Self(scopes.iter().copied().collect())
    }

    /// Returns true if the set has this scope.
    #[must_use]
    pub fn contains(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    fn any_of(&self, wanted: &[Scope]) -> bool {
        wanted.iter().any(|scope| self.0.contains(scope))
    }
}

impl Default for Scopes {
    fn default() -> Self {
        Self::of(&Scope::ALL)
    }
}

impl FromStr for Scopes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |name: &str| {
            let found = Scope::ALL.into_iter().find(|scope| scope.name() == name);
            found.ok_or_else(|| {
                // A longer word is not a misspelt scope, and may be a token in the wrong place.
                let shown = match name.len() {
                    0..=QUOTED_BYTES_MAX => format!("`{name}`"),
                    bytes => format!("of {bytes} bytes"),
                };
                format!("invalid scope {shown}; expected {}", joined(Scope::ALL, ", "))
            })
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&joined(self.0.iter().copied(), ", ")),
        }
    }
}

fn joined(scopes: impl IntoIterator<Item = Scope>, separator: &str) -> String {
    scopes.into_iter().map(Scope::name).collect::<Vec<_>>().join(separator)
}

/// The scopes required for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// No credentials, since orchestrators send none with health probes.
    Nothing,
    /// Any known token or certificate: every process of a fleet may read.
    AnyHolder,
    /// At least one of these scopes.
    OneOf(&'static [Scope]),
    /// This scope.
    One(Scope),
}

impl Need {
    /// Returns the scopes that would allow the call, if `scopes` has none of them; `None` if the call is allowed.
    pub(super) fn missing(self, scopes: &Scopes) -> Option<String> {
        match self {
            Self::Nothing | Self::AnyHolder => None,
            Self::OneOf(wanted) if scopes.any_of(wanted) => None,
            Self::OneOf(wanted) => Some(joined(wanted.iter().copied(), " or ")),
            Self::One(wanted) => (!scopes.contains(wanted)).then(|| wanted.name().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_by_name_and_a_wrong_one_is_named() {
        let scopes: Scopes = "train,act".parse().unwrap();
        assert_eq!(scopes.to_string(), "act, train");
        let error = "act,Train".parse::<Scopes>().unwrap_err();
        assert_eq!(error, "invalid scope `Train`; expected act, revise, train, infer, view, admin");
    }

    #[test]
    fn a_long_word_in_place_of_scopes_is_not_quoted_because_it_may_be_a_token() {
        let error = "0123456789abcdef-a-token".parse::<Scopes>().unwrap_err();
        assert_eq!(error, "invalid scope of 24 bytes; expected act, revise, train, infer, view, admin");
    }
}
