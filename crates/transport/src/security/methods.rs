//! Lists the required scopes and the request limits of every method. There is no other list of methods.

use super::scope::{Need, Scope};
use crate::limits::{MESSAGE_BYTES_MAX, PRIORITIES_BYTES_MAX, PROBE_BYTES_MAX};

/// Largest request without trajectories, positions or lists, in bytes: names, integers and a textual reason.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// The number of client messages in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Messages {
    /// A single message, sent with the call.
    One,
    /// A stream of messages.
    Many,
}

/// Limits on the messages of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestLimits {
    pub(super) messages: Messages,
    pub(super) message_bytes_max: usize,
}

/// The rules for calls of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Method {
    pub(super) need: Need,
    pub(super) limits: RequestLimits,
}

/// Returns true if the method at `path` (`/package.Service/Method`) takes a stream of messages, false if the method
/// takes one message; `None` for an unlisted method, or one that needs no credentials. For the tests of the crates
/// that define methods.
pub fn takes_stream(path: &str) -> Option<bool> {
    let method = Method::listed(path).filter(|method| method.need != Need::Nothing)?;
    Some(method.limits.messages == Messages::Many)
}

impl Method {
    /// Returns the method at `path`, `/package.Service/Method`. An unlisted method needs `admin` and takes one small
    /// message, so that a method missing from the list is protected, not open.
    pub(super) fn of(path: &str) -> Self {
        let closed = || Self::new(Need::OneOf(&[Scope::Admin]), Messages::One, SMALL_BYTES_MAX);
        Self::listed(path).unwrap_or_else(closed)
    }

    fn new(need: Need, messages: Messages, message_bytes_max: usize) -> Self {
        Self { need, limits: RequestLimits { messages, message_bytes_max } }
    }

    fn listed(path: &str) -> Option<Self> {
        use Messages::{Many, One};
        use Need::{AnyHolder, Nothing, OneOf};
        use Scope::{Act, Admin, Infer, Revise, Train};
        const REPLAY: &str = "zerofleet.replay.v1.Replay";
        const INFERENCE: &str = "zerofleet.inference.v1.Inference";
        const OPEN_INFERENCE: &str = "inference.GRPCInferenceService";
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let (need, messages, message_bytes_max) = match (service, method) {
            ("grpc.health.v1.Health", _) => (Nothing, One, PROBE_BYTES_MAX),
            ("grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection", _) => {
                (AnyHolder, Many, SMALL_BYTES_MAX)
            }
            (REPLAY, "Insert") => (OneOf(&[Act]), Many, MESSAGE_BYTES_MAX),
            (REPLAY, "Choose") => (OneOf(&[Revise]), One, SMALL_BYTES_MAX),
            (REPLAY, "Revise") => (OneOf(&[Revise]), One, MESSAGE_BYTES_MAX),
            (REPLAY, "Sample") => (OneOf(&[Train]), Many, SMALL_BYTES_MAX),
            (REPLAY, "UpdatePriorities") => (OneOf(&[Train]), One, PRIORITIES_BYTES_MAX),
            (REPLAY, "Report") => (OneOf(&[Train]), One, SMALL_BYTES_MAX),
            (REPLAY, "Stats" | "List" | "Search" | "Get" | "Actors") => (AnyHolder, One, SMALL_BYTES_MAX),
            (REPLAY, "Configure" | "Quarantine" | "Release") => (OneOf(&[Admin]), One, SMALL_BYTES_MAX),
            ("zerofleet.weights.v1.Weights", "Subscribe" | "Fetch") => {
                (OneOf(&[Act, Train, Infer]), One, SMALL_BYTES_MAX)
            }
            ("zerofleet.learners.v1.Learners", "Look" | "Join" | "SetAddress" | "GetAddress") => {
                (OneOf(&[Train]), One, SMALL_BYTES_MAX)
            }
            (INFERENCE, "Evaluate") | (OPEN_INFERENCE, "ModelStreamInfer") => {
                (OneOf(&[Infer]), Many, MESSAGE_BYTES_MAX)
            }
            (INFERENCE, "SelectMove" | "Analyse") | (OPEN_INFERENCE, "ModelInfer") => {
                (OneOf(&[Infer]), One, MESSAGE_BYTES_MAX)
            }
            (INFERENCE | OPEN_INFERENCE, _) => (OneOf(&[Infer]), One, SMALL_BYTES_MAX),
            _ => return None,
        };
        Some(Self::new(need, messages, message_bytes_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_is_not_listed_needs_admin_and_takes_one_small_message() {
        let closed = Method::new(Need::OneOf(&[Scope::Admin]), Messages::One, SMALL_BYTES_MAX);
        for path in ["/zerofleet.replay.v1.Replay/Drop", "/zerofleet.new.v1.New/Ask", "/", "", "nonsense", "*"] {
            assert_eq!(Method::of(path), closed, "{path}");
        }
    }

    #[test]
    fn only_health_needs_no_credentials_and_takes_the_smallest_messages() {
        let health = Method::of("/grpc.health.v1.Health/Check");
        assert_eq!((health.need, health.limits.message_bytes_max), (Need::Nothing, 4096));
        assert_eq!(Method::of("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo").need, Need::AnyHolder);
    }
}
