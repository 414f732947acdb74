use std::num::NonZeroU64;

use weights::WeightsVersion;

use super::{Invalid, cut, inside, invalid, required, sentence, wire_count};
use crate::replay::{ListQuery, Report, TableEdge, TableStats, v1};

impl From<TableStats> for v1::TableStats {
    fn from(stats: TableStats) -> Self {
        let TableStats {
            trajectories,
            items,
            window_items,
            trajectories_inserted_total,
            items_inserted_total,
            samples_total,
            duplicates_total,
            refused_total,
            quarantined_total,
            samples_per_insert_target,
            samples_per_insert,
            waiting_reason,
            bytes,
            oldest,
            newest,
        } = stats;
        Self {
            trajectories,
            items,
            window_items,
            trajectories_inserted_total,
            items_inserted_total,
            samples_total,
            duplicates_total,
            refused_total,
            quarantined_total,
            samples_per_insert_target,
            samples_per_insert,
            waiting_reason: cut(waiting_reason.unwrap_or_default()),
            bytes,
            oldest: oldest.map(Into::into),
            newest: newest.map(Into::into),
        }
    }
}

impl TryFrom<v1::TableStats> for TableStats {
    type Error = Invalid;

    fn try_from(message: v1::TableStats) -> Result<Self, Invalid> {
        let v1::TableStats {
            trajectories,
            items,
            window_items,
            trajectories_inserted_total,
            items_inserted_total,
            samples_total,
            duplicates_total,
            refused_total,
            quarantined_total,
            samples_per_insert_target,
            samples_per_insert,
            waiting_reason,
            bytes,
            oldest,
            newest,
        } = message;
        Ok(Self {
            trajectories,
            items,
            window_items,
            trajectories_inserted_total,
            items_inserted_total,
            samples_total,
            duplicates_total,
            refused_total,
            quarantined_total,
            samples_per_insert_target: ratio("samples_per_insert_target", samples_per_insert_target)?,
            samples_per_insert: ratio("samples_per_insert", samples_per_insert)?,
            waiting_reason: Some(sentence("waiting_reason", waiting_reason)?).filter(|reason| !reason.is_empty()),
            bytes,
            oldest: oldest.map(TableEdge::try_from).transpose().map_err(inside("oldest"))?,
            newest: newest.map(TableEdge::try_from).transpose().map_err(inside("newest"))?,
        })
    }
}

fn ratio(field: &str, value: f64) -> Result<f64, Invalid> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(invalid(field, format!("{value} is not a finite ratio")))
    }
}

impl From<TableEdge> for v1::TableEdge {
    fn from(TableEdge { id, weights_version: WeightsVersion(weights_version) }: TableEdge) -> Self {
        Self { id: Some(id.into()), weights_version }
    }
}

impl TryFrom<v1::TableEdge> for TableEdge {
    type Error = Invalid;

    fn try_from(v1::TableEdge { id, weights_version }: v1::TableEdge) -> Result<Self, Invalid> {
        Ok(Self { id: required("id", id)?.into(), weights_version: WeightsVersion(weights_version) })
    }
}

impl From<ListQuery> for v1::ListRequest {
    fn from(ListQuery { after, limit }: ListQuery) -> Self {
        Self { after: after.map(Into::into), limit: limit.map_or(0, NonZeroU64::get) }
    }
}

impl From<v1::ListRequest> for ListQuery {
    fn from(v1::ListRequest { after, limit }: v1::ListRequest) -> Self {
        Self { after: after.map(Into::into), limit: NonZeroU64::new(limit) }
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
            ply: super::between("ply", ply, 0, crate::limits::STEPS_MAX - 1)?,
            reason: sentence("reason", reason)?,
        })
    }
}
