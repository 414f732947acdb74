use std::num::NonZeroU64;

use experience::Mass;
use weights::WeightsVersion;

use super::{Invalid, cut, inside, invalid, required, sentence, table_name, wire_count};
use crate::replay::{ListOrder, ListQuery, Report, TableEdge, TableStats, v1};

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
            name,
            mass,
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
            name,
            mass: mass.map(Into::into),
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
            name,
            mass,
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
            name: sentence("name", name)?,
            mass: mass.map(Mass::try_from).transpose().map_err(inside("mass"))?,
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

impl From<Mass> for v1::Mass {
    fn from(Mass { weight, log2_scale }: Mass) -> Self {
        Self { weight, log2_scale }
    }
}

impl TryFrom<v1::Mass> for Mass {
    type Error = Invalid;

    fn try_from(v1::Mass { weight, log2_scale }: v1::Mass) -> Result<Self, Invalid> {
        let mass = Self { weight: ratio("weight", weight)?, log2_scale };
        if log2_scale.is_finite() {
            Ok(mass)
        } else {
            Err(invalid("log2_scale", format!("{log2_scale} is not finite")))
        }
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
    fn from(ListQuery { table, order, after, limit }: ListQuery) -> Self {
        let order = match order {
            ListOrder::Ascending => v1::ListOrder::Unspecified,
            ListOrder::Newest => v1::ListOrder::Newest,
            ListOrder::Surprising => v1::ListOrder::Surprising,
        };
        let (after, limit) = (after.map(Into::into), limit.map_or(0, NonZeroU64::get));
        Self { after, limit, table, order: order.into() }
    }
}

impl TryFrom<v1::ListRequest> for ListQuery {
    type Error = Invalid;

    fn try_from(v1::ListRequest { after, limit, table, order }: v1::ListRequest) -> Result<Self, Invalid> {
        let order = match v1::ListOrder::try_from(order) {
            Ok(v1::ListOrder::Unspecified) => ListOrder::Ascending,
            Ok(v1::ListOrder::Newest) => ListOrder::Newest,
            Ok(v1::ListOrder::Surprising) => ListOrder::Surprising,
            Err(_) => return Err(invalid("order", format!("{order} is not an order"))),
        };
        if order != ListOrder::Ascending && after.is_some() {
            return Err(invalid("after", "goes with ascending ids only"));
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
            ply: super::between("ply", ply, 0, crate::limits::STEPS_MAX - 1)?,
            reason: sentence("reason", reason)?,
        })
    }
}
