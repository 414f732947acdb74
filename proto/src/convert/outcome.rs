use experience::TrajectoryId;
use game::{Outcome, Player};

use super::{Invalid, invalid};
use crate::replay::v1;

impl From<TrajectoryId> for v1::TrajectoryId {
    fn from(TrajectoryId { actor, epoch, sequence }: TrajectoryId) -> Self {
        Self { actor, epoch, sequence }
    }
}

impl From<v1::TrajectoryId> for TrajectoryId {
    fn from(v1::TrajectoryId { actor, epoch, sequence }: v1::TrajectoryId) -> Self {
        Self { actor, epoch, sequence }
    }
}

pub(super) fn to_wire(outcome: Outcome) -> i32 {
    let outcome = match outcome {
        Outcome::Win(Player::First) => v1::Outcome::FirstWins,
        Outcome::Win(Player::Second) => v1::Outcome::SecondWins,
        Outcome::Draw => v1::Outcome::Draw,
        Outcome::Finished => v1::Outcome::Finished,
    };
    outcome.into()
}

pub(super) fn from_wire(outcome: i32) -> Result<Outcome, Invalid> {
    match v1::Outcome::try_from(outcome) {
        Ok(v1::Outcome::FirstWins) => Ok(Outcome::Win(Player::First)),
        Ok(v1::Outcome::SecondWins) => Ok(Outcome::Win(Player::Second)),
        Ok(v1::Outcome::Draw) => Ok(Outcome::Draw),
        Ok(v1::Outcome::Finished) => Ok(Outcome::Finished),
        Ok(v1::Outcome::Unspecified) | Err(_) => Err(invalid("outcome", format!("{outcome} is not an outcome"))),
    }
}
