use std::str::FromStr;

use crate::{Invalid, invalid};

/// The id of a trajectory, unique over all actors and restarts.
///
/// The triple makes inserts idempotent: a retry carries the same id and counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrajectoryId {
    /// The id of the actor, which is stable over restarts.
    pub actor: u64,
    /// The number of the actor's start, which grows with every restart.
    pub epoch: u64,
    /// The number of the trajectory within the epoch, counted from zero.
    pub sequence: u64,
}

impl std::fmt::Display for TrajectoryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.actor, self.epoch, self.sequence)
    }
}

impl TrajectoryId {
    /// Formats the id for people, as ACTOR/EPOCH/SEQUENCE.
    #[must_use]
    pub fn slashed(self) -> String {
        let Self { actor, epoch, sequence } = self;
        format!("{actor}/{epoch}/{sequence}")
    }
}

impl FromStr for TrajectoryId {
    type Err = Invalid;

    /// Parses the format of [`slashed`](Self::slashed).
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let mut parts = text.split('/').map(str::parse);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Ok(actor)), Some(Ok(epoch)), Some(Ok(sequence)), None) => Ok(Self { actor, epoch, sequence }),
            _ => Err(invalid("trajectory", format!("`{text}` is not ACTOR/EPOCH/SEQUENCE, such as 0/1/42"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_trajectory_id_parses_and_an_invalid_one_is_rejected() {
        let id = TrajectoryId { actor: 3, epoch: 1, sequence: u64::MAX };
        assert_eq!(id.slashed().parse(), Ok(id));
        for text in ["", "1/2", "1/2/3/4", "1/2/x", "-1/2/3", "1/2/18446744073709551616"] {
            let error = text.parse::<TrajectoryId>().unwrap_err().to_string();
            assert!(error.contains("ACTOR/EPOCH/SEQUENCE"), "{error}");
        }
    }
}
