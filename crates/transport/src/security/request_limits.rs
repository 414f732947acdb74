//! Size and number of the messages that a call may send, by method.

use crate::limits::{MESSAGE_BYTES_MAX, PRIORITIES_BYTES_MAX};

/// Largest health request, in bytes: the name of a service.
const PROBE_BYTES_MAX: usize = 4 << 10;

/// Largest request without trajectories, positions or lists, in bytes: names, integers and a textual reason.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// The number of client messages in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Messages {
    /// A single message, at once.
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

/// Returns true if the method at `path` (`/package.Service/Method`) takes a stream of messages, false if the method
/// takes one message; `None` for a method without listed limits. For the tests of the crates that define methods.
pub fn takes_stream(path: &str) -> Option<bool> {
    RequestLimits::listed(path).map(|limits| limits.messages == Messages::Many)
}

impl RequestLimits {
    /// Returns the limits of a path, `/package.Service/Method`. An unlisted method takes one small message.
    pub(super) fn of(path: &str) -> Self {
        Self::listed(path).unwrap_or(Self { messages: Messages::One, message_bytes_max: SMALL_BYTES_MAX })
    }

    fn listed(path: &str) -> Option<Self> {
        use Messages::{Many, One};
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let (messages, message_bytes_max) = match (service, method) {
            ("grpc.health.v1.Health", _) => (One, PROBE_BYTES_MAX),
            ("grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection", _) => {
                (Many, SMALL_BYTES_MAX)
            }
            ("zerofleet.replay.v1.Replay", "Insert") => (Many, MESSAGE_BYTES_MAX),
            ("zerofleet.replay.v1.Replay", "Sample") => (Many, SMALL_BYTES_MAX),
            ("zerofleet.replay.v1.Replay", "UpdatePriorities") => (One, PRIORITIES_BYTES_MAX),
            ("zerofleet.replay.v1.Replay", "Revise") => (One, MESSAGE_BYTES_MAX),
            (
                "zerofleet.replay.v1.Replay",
                "Stats" | "List" | "Get" | "Actors" | "Report" | "Quarantine" | "Release" | "Configure" | "Choose",
            ) => (One, SMALL_BYTES_MAX),
            ("zerofleet.weights.v1.Weights", "Subscribe" | "Fetch") => (One, SMALL_BYTES_MAX),
            ("zerofleet.learners.v1.Learners", "Look" | "Join" | "SetAddress" | "GetAddress") => (One, SMALL_BYTES_MAX),
            ("zerofleet.inference.v1.Inference", "Evaluate") => (Many, MESSAGE_BYTES_MAX),
            ("zerofleet.inference.v1.Inference", "SelectMove" | "Analyse") => (One, MESSAGE_BYTES_MAX),
            ("zerofleet.inference.v1.Inference", "Stats") => (One, SMALL_BYTES_MAX),
            ("inference.GRPCInferenceService", "ModelInfer") => (One, MESSAGE_BYTES_MAX),
            ("inference.GRPCInferenceService", "ModelStreamInfer") => (Many, MESSAGE_BYTES_MAX),
            (
                "inference.GRPCInferenceService",
                "ServerLive" | "ServerReady" | "ModelReady" | "ServerMetadata" | "ModelMetadata" | "ModelConfig"
                | "ModelStatistics" | "RepositoryIndex",
            ) => (One, SMALL_BYTES_MAX),
            _ => return None,
        };
        Some(Self { messages, message_bytes_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_takes_the_least_and_an_unknown_method_one_small_message() {
        assert_eq!(RequestLimits::of("/grpc.health.v1.Health/Check").message_bytes_max, 4096);
        for path in ["/zerofleet.new.v1.New/Ask", "", "*"] {
            let limits = RequestLimits { messages: Messages::One, message_bytes_max: SMALL_BYTES_MAX };
            assert_eq!(RequestLimits::of(path), limits, "{path}");
        }
    }
}
