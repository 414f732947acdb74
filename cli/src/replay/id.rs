use std::fmt;
use std::str::FromStr;

use experience::TrajectoryId;

/// A trajectory id in the form ACTOR/EPOCH/SEQUENCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(pub(super) TrajectoryId);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrajectoryId { actor, epoch, sequence } = self.0;
        write!(f, "{actor}/{epoch}/{sequence}")
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/').map(str::parse);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Ok(actor)), Some(Ok(epoch)), Some(Ok(sequence)), None) => {
                Ok(Self(TrajectoryId { actor, epoch, sequence }))
            }
            _ => Err(format!("`{text}` is not a trajectory: expected ACTOR/EPOCH/SEQUENCE, such as 0/1/42")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let id = Id(TrajectoryId { actor: 3, epoch: 1, sequence: u64::MAX });
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "1/2", "1/2/3/4", "1/2/x", "-1/2/3", "1/2/18446744073709551616"] {
            assert!(text.parse::<Id>().unwrap_err().contains("ACTOR/EPOCH/SEQUENCE"), "{text}");
        }
    }
}
