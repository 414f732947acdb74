use experience::{Limits, Trajectory, WeightsVersion};

use super::trajectory::within;
use crate::convert::{Invalid, inside, invalid, required, table_name};
use crate::replay::{Choice, Revisable, v1};

impl From<Choice> for v1::ChooseRequest {
    fn from(Choice { table, older_than }: Choice) -> Self {
        Self { table, older_than: older_than.0 }
    }
}

impl TryFrom<v1::ChooseRequest> for Choice {
    type Error = Invalid;

    fn try_from(v1::ChooseRequest { table, older_than }: v1::ChooseRequest) -> Result<Self, Invalid> {
        if older_than == 0 {
            return Err(invalid("older_than", "is zero; versions start at 1"));
        }
        Ok(Self { table: table_name("table", table)?, older_than: WeightsVersion(older_than) })
    }
}

impl From<Revisable> for v1::ReviseRequest {
    fn from(Revisable { trajectory, revision }: Revisable) -> Self {
        Self { trajectory: Some(trajectory.into()), revision }
    }
}

/// Checks a revision against the limits of the server's game; the server compares it with the stored trajectory.
///
/// # Errors
/// [`Invalid`] names the first field at fault.
pub fn revision_from_wire(message: v1::ReviseRequest, limits: Limits) -> Result<Revisable, Invalid> {
    let v1::ReviseRequest { trajectory, revision } = message;
    if revision == u64::MAX {
        return Err(invalid("revision", "is the maximum"));
    }
    let trajectory = within(required("trajectory", trajectory)?, limits).map_err(inside("trajectory"))?;
    Ok(Revisable { trajectory, revision })
}

/// Returns the response to a choice.
#[must_use]
pub fn choice_to_wire(chosen: Option<Revisable>) -> v1::ChooseResponse {
    match chosen {
        None => v1::ChooseResponse::default(),
        Some(Revisable { trajectory, revision }) => {
            v1::ChooseResponse { trajectory: Some(trajectory.into()), revision }
        }
    }
}

/// Checks the response to a choice.
pub(crate) fn choice_from_wire(message: v1::ChooseResponse) -> Result<Option<Revisable>, Invalid> {
    let v1::ChooseResponse { trajectory, revision } = message;
    let Some(trajectory) = trajectory else { return Ok(None) };
    let trajectory = Trajectory::try_from(trajectory).map_err(inside("trajectory"))?;
    Ok(Some(Revisable { trajectory, revision }))
}
