//! Identifies the client of a call, for a service that needs more than the scope check.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use tonic::{Request, Status};

use super::scope::{Holder, Scope};

/// Prefix of the actor ids in a line of the token file or scope file.
const ACTORS: &str = "actors=";

/// The actor ids that a token or certificate may insert as.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum ActorIds {
    /// Every id.
    #[default]
    Any,
    /// Any id in one of these ranges.
    In(Vec<RangeInclusive<u64>>),
}

/// The client of a call, for services that serve clients differently.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The client's token or certificate; `None` if the server requires no credentials.
    holder: Option<Arc<Holder>>,
}

impl ActorIds {
    /// Parses the actor ids from the optional last word of a line.
    pub(super) fn of_word(word: Option<&str>) -> Result<Self, String> {
        let Some(word) = word else { return Ok(Self::Any) };
        let ids = word.strip_prefix(ACTORS).ok_or("the last word is not actors=ID[-ID][,ID[-ID]]")?;
        ids.parse()
    }

    fn contains(&self, actor: u64) -> bool {
        match self {
            Self::Any => true,
            Self::In(ranges) => ranges.iter().any(|range| range.contains(&actor)),
        }
    }
}

impl FromStr for ActorIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let range = first.parse().ok()?..=last.parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        let ranges = text.split(',').map(|text| range(text).ok_or(format!("`{text}` is not an actor id or a range")));
        ranges.collect::<Result<_, _>>().map(Self::In)
    }
}

impl fmt::Display for ActorIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::In(ranges) = self else { return f.write_str("any") };
        for (index, range) in ranges.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{separator}{first}")?,
                (first, last) => write!(f, "{separator}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl Caller {
    pub(super) fn new(holder: Option<Arc<Holder>>) -> Self {
        Self { holder }
    }

    /// Returns the caller of a request that passed the checks of [`server`](crate::server()).
    pub fn of<T>(request: &Request<T>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_default()
    }

    /// Returns the name of the caller's token or certificate; `None` if the server requires no credentials.
    #[must_use]
    pub fn name(&self) -> Option<&Arc<str>> {
        self.holder.as_ref().map(|holder| &holder.name)
    }

    /// Returns true if the caller has the scope, as every caller of a server that requires no credentials.
    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        self.holder.as_ref().is_none_or(|holder| holder.scopes.contains(scope))
    }

    /// Checks that the caller may insert as `actor`.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the ids that the token or certificate allows.
    pub fn check_actor(&self, actor: u64) -> Result<(), Status> {
        match &self.holder {
            Some(holder) if !holder.actors.contains(actor) => {
                let Holder { credential, name, actors, .. } = &**holder;
                let message = format!("the {credential} of {name} may not insert as actor {actor}, only as {actors}");
                Err(Status::permission_denied(message))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if the caller may see id and epoch of `actor`: any actor with the scope `admin`; with the scope
    /// `act`, only actors that the caller may insert as.
    #[must_use]
    pub fn sees_actor(&self, actor: u64) -> bool {
        let Some(holder) = &self.holder else { return true };
        self.has(Scope::Admin) || holder.scopes.contains(Scope::Act) && holder.actors.contains(actor)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scope::Credential;
    use super::*;

    fn caller(scopes: &str, actors: Option<&str>) -> Caller {
        let (scopes, actors) = (scopes.parse().unwrap(), ActorIds::of_word(actors).unwrap());
        Caller::new(Some(Arc::new(Holder { credential: Credential::Token([0; 32]), name: "a".into(), scopes, actors })))
    }

    #[test]
    fn a_bound_token_inserts_as_its_actors_only_and_another_as_any() {
        let bound = caller("act", Some("actors=1-3,9"));
        for (actor, allowed) in [(0, false), (1, true), (3, true), (4, false), (9, true), (u64::MAX, false)] {
            assert_eq!(bound.check_actor(actor).is_ok(), allowed, "{actor}");
            caller("act", None).check_actor(actor).unwrap();
            Caller::default().check_actor(actor).unwrap();
        }
        let message = bound.check_actor(4).unwrap_err().message().to_owned();
        assert_eq!(message, "the token of a may not insert as actor 4, only as 1-3,9");
    }

    #[test]
    fn a_caller_has_the_scopes_of_the_token_and_without_tokens_every_scope() {
        let viewer = caller("view,infer", None);
        assert_eq!([Scope::View, Scope::Infer, Scope::Admin].map(|scope| viewer.has(scope)), [true, true, false]);
        assert!(Caller::default().has(Scope::Admin));
    }

    #[test]
    fn actors_are_seen_by_operators_and_by_those_who_may_insert_as_them() {
        for (scopes, actors, seen) in [
            ("admin", None, [true, true]),
            ("act", None, [true, true]),
            ("act", Some("actors=1"), [true, false]),
            ("act,admin", Some("actors=1"), [true, true]),
            ("train,infer", None, [false, false]),
        ] {
            let caller = caller(scopes, actors);
            assert_eq!([1, 2].map(|actor| caller.sees_actor(actor)), seen, "{scopes} {actors:?}");
        }
        assert!(Caller::default().sees_actor(1));
        assert_eq!([Scope::View, Scope::Admin].map(|scope| caller("view", None).has(scope)), [true, false]);
        assert!(Caller::default().has(Scope::Admin));
    }

    #[test]
    fn malformed_ids_are_refused() {
        for word in ["1-3", "actors=", "actors=3-1", "actors=1,,2", "actors=-1", "actors=a", "actors=1-2-3"] {
            ActorIds::of_word(Some(word)).unwrap_err();
        }
    }
}
