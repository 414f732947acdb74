use std::num::NonZeroU64;

use crate::convert::{Invalid, at_most, between, cut, inside, invalid, required, sentence, table_name, wire_count};
use crate::limits::{ACTORS_MAX, STEPS_MAX};
use crate::replay::{ListOrder, ListQuery, Report, v1};

/// Checks the table statistics from a server.
pub(crate) fn checked_table(table: v1::TableStats) -> Result<v1::TableStats, Invalid> {
    ratio("samples_per_insert_target", table.samples_per_insert_target)?;
    ratio("samples_per_insert", table.samples_per_insert)?;
    sentence("waiting_reason", table.waiting_reason.as_str())?;
    sentence("name", table.name.as_str())?;
    for (field, edge) in [("oldest", &table.oldest), ("newest", &table.newest)] {
        let id = edge.as_ref().map(|edge| required("id", edge.id));
        id.transpose().map_err(inside(field))?;
    }
    let total_weight = table.total_weight.map(|total| ratio("weight", total.weight));
    total_weight.transpose().map_err(inside("total_weight"))?;
    Ok(table)
}

/// Checks the actor list of a server.
pub(crate) fn checked_actors(actors: v1::ActorsResponse) -> Result<v1::ActorsResponse, Invalid> {
    at_most("actors", actors.actors.len(), "entries", ACTORS_MAX)?;
    for actor in &actors.actors {
        if actor.state() == v1::ActorState::Unspecified {
            return Err(invalid("state", format!("{} is not an actor state", actor.state)));
        }
        sentence("address", actor.address.as_str())?;
    }
    Ok(actors)
}

fn ratio(field: &str, value: f64) -> Result<(), Invalid> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(invalid(field, format!("{value} is not a finite ratio")))
    }
}

impl From<ListQuery> for v1::ListRequest {
    fn from(ListQuery { table, order, after, limit }: ListQuery) -> Self {
        let (after, limit) = (after.map(Into::into), limit.map_or(0, NonZeroU64::get));
        Self { after, limit, table, order: order.into() }
    }
}

impl TryFrom<v1::ListRequest> for ListQuery {
    type Error = Invalid;

    fn try_from(v1::ListRequest { after, limit, table, order }: v1::ListRequest) -> Result<Self, Invalid> {
        let unknown = |_| invalid("order", format!("{order} is not a list order"));
        let order = ListOrder::try_from(order).map_err(unknown)?;
        if order != ListOrder::ASCENDING && after.is_some() {
            return Err(invalid("after", "requires ascending ids"));
        }
        let table = table_name("table", table)?;
        Ok(Self { table, order, after: after.map(Into::into), limit: NonZeroU64::new(limit) })
    }
}

impl From<Report> for v1::ReportRequest {
    fn from(Report { trajectory, ply, reason }: Report) -> Self {
        Self { trajectory: Some(trajectory.into()), ply: wire_count(ply), reason: cut(reason) }
    }
}

impl TryFrom<v1::ReportRequest> for Report {
    type Error = Invalid;

    fn try_from(v1::ReportRequest { trajectory, ply, reason }: v1::ReportRequest) -> Result<Self, Invalid> {
        Ok(Self {
            trajectory: required("trajectory", trajectory)?.into(),
            ply: between("ply", ply, 0, STEPS_MAX - 1)?,
            reason: sentence("reason", reason)?,
        })
    }
}
