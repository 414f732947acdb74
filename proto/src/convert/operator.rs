use experience::Trajectory;

use super::{Invalid, between, cut, inside, invalid, required, sentence, table_name, wire_count};
use crate::limits::{PRIORITIES_MAX, STEPS_MAX};
use crate::replay::{
    ItemPriority, LagBound, Located, PriorityUpdate, Quarantine, ServerStats, Suspect, TableChange, UpdatedPriorities,
    v1,
};
use v1::configure_request::Lag;
use v1::quarantine_request::Suspect as Quarantined;
use v1::release_request::Suspect as Released;

impl From<ServerStats> for v1::StatsResponse {
    fn from(ServerStats { table, tables, memory_bytes }: ServerStats) -> Self {
        Self { table: Some(table.into()), tables, memory_bytes }
    }
}

impl TryFrom<v1::StatsResponse> for ServerStats {
    type Error = Invalid;

    fn try_from(v1::StatsResponse { table, tables, memory_bytes }: v1::StatsResponse) -> Result<Self, Invalid> {
        let table = required("table", table)?.try_into().map_err(inside("table"))?;
        Ok(Self { table, tables: names("tables", tables)?, memory_bytes })
    }
}

impl From<Quarantine> for v1::QuarantineRequest {
    fn from(Quarantine { suspect, reason }: Quarantine) -> Self {
        let suspect = match suspect {
            Suspect::Trajectory(id) => Quarantined::Trajectory(id.into()),
            Suspect::Actor(actor) => Quarantined::Actor(actor),
        };
        Self { suspect: Some(suspect), reason: cut(reason) }
    }
}

impl TryFrom<v1::QuarantineRequest> for Quarantine {
    type Error = Invalid;

    fn try_from(v1::QuarantineRequest { suspect, reason }: v1::QuarantineRequest) -> Result<Self, Invalid> {
        let suspect = match required("suspect", suspect)? {
            Quarantined::Trajectory(id) => Suspect::Trajectory(id.into()),
            Quarantined::Actor(actor) => Suspect::Actor(actor),
        };
        Ok(Self { suspect, reason: sentence("reason", reason)? })
    }
}

impl From<Suspect> for v1::ReleaseRequest {
    fn from(suspect: Suspect) -> Self {
        let suspect = match suspect {
            Suspect::Trajectory(id) => Released::Trajectory(id.into()),
            Suspect::Actor(actor) => Released::Actor(actor),
        };
        Self { suspect: Some(suspect) }
    }
}

impl TryFrom<v1::ReleaseRequest> for Suspect {
    type Error = Invalid;

    fn try_from(v1::ReleaseRequest { suspect }: v1::ReleaseRequest) -> Result<Self, Invalid> {
        Ok(match required("suspect", suspect)? {
            Released::Trajectory(id) => Self::Trajectory(id.into()),
            Released::Actor(actor) => Self::Actor(actor),
        })
    }
}

impl From<&Located> for v1::GetResponse {
    fn from(Located { trajectory, tables, inserted_unix_ms, quarantined }: &Located) -> Self {
        Self {
            trajectory: Some(trajectory.into()),
            tables: tables.clone(),
            inserted_unix_ms: *inserted_unix_ms,
            quarantined: *quarantined,
        }
    }
}

impl TryFrom<v1::GetResponse> for Located {
    type Error = Invalid;

    fn try_from(message: v1::GetResponse) -> Result<Self, Invalid> {
        let v1::GetResponse { trajectory, tables, inserted_unix_ms, quarantined } = message;
        let trajectory = required("trajectory", trajectory)?;
        let trajectory = Trajectory::try_from(trajectory).map_err(inside("trajectory"))?;
        Ok(Self { trajectory, tables: names("tables", tables)?, inserted_unix_ms, quarantined })
    }
}

impl From<PriorityUpdate> for v1::UpdatePrioritiesRequest {
    fn from(PriorityUpdate { table, priorities }: PriorityUpdate) -> Self {
        let item = |ItemPriority { trajectory, ply, priority }| v1::ItemPriority {
            trajectory: Some(trajectory.into()),
            ply: wire_count(ply),
            priority,
        };
        Self { table, priorities: priorities.into_iter().map(item).collect() }
    }
}

impl TryFrom<v1::UpdatePrioritiesRequest> for PriorityUpdate {
    type Error = Invalid;

    fn try_from(message: v1::UpdatePrioritiesRequest) -> Result<Self, Invalid> {
        let v1::UpdatePrioritiesRequest { table, priorities } = message;
        if priorities.len() > PRIORITIES_MAX {
            let reason = format!("has {} entries, the limit is {PRIORITIES_MAX}", priorities.len());
            return Err(invalid("priorities", reason));
        }
        let items = priorities.into_iter().enumerate();
        let items = items.map(|(index, item)| item.try_into().map_err(inside(format_args!("priorities[{index}]"))));
        Ok(Self { table: table_name("table", table)?, priorities: items.collect::<Result<_, _>>()? })
    }
}

impl TryFrom<v1::ItemPriority> for ItemPriority {
    type Error = Invalid;

    fn try_from(v1::ItemPriority { trajectory, ply, priority }: v1::ItemPriority) -> Result<Self, Invalid> {
        if !(priority >= 0.0 && priority.is_finite()) {
            return Err(invalid("priority", format!("{priority} is not a finite number of at least 0")));
        }
        let trajectory = required("trajectory", trajectory)?.into();
        Ok(Self { trajectory, ply: between("ply", ply, 0, STEPS_MAX - 1)?, priority })
    }
}

impl From<UpdatedPriorities> for v1::UpdatePrioritiesResponse {
    fn from(UpdatedPriorities { updated, unknown, unused }: UpdatedPriorities) -> Self {
        Self { updated, unknown, unused }
    }
}

impl From<v1::UpdatePrioritiesResponse> for UpdatedPriorities {
    fn from(message: v1::UpdatePrioritiesResponse) -> Self {
        let v1::UpdatePrioritiesResponse { updated, unknown, unused } = message;
        Self { updated, unknown, unused }
    }
}

impl From<TableChange> for v1::ConfigureRequest {
    fn from(change: TableChange) -> Self {
        let TableChange {
            table,
            selector,
            exponent,
            half_life_versions,
            max_times_sampled,
            min_items,
            samples_per_insert,
            error_items,
            window_items_min,
            window_exponent,
            window_slope,
            capacity_items,
            age_max_hours,
            bytes_max,
            lag,
        } = change;
        let lag = lag.map(|lag| match lag {
            LagBound::Versions(versions) => Lag::LagVersionsMax(versions),
            LagBound::Unbounded => Lag::LagUnbounded(v1::Unbounded {}),
        });
        Self {
            table,
            selector,
            exponent,
            half_life_versions,
            max_times_sampled,
            min_items,
            samples_per_insert,
            error_items,
            window_items_min,
            window_exponent,
            window_slope,
            capacity_items,
            age_max_hours,
            bytes_max,
            lag,
        }
    }
}

/// Ranges are checked by whoever knows the table.
impl TryFrom<v1::ConfigureRequest> for TableChange {
    type Error = Invalid;

    fn try_from(message: v1::ConfigureRequest) -> Result<Self, Invalid> {
        let v1::ConfigureRequest {
            table,
            selector,
            exponent,
            half_life_versions,
            max_times_sampled,
            min_items,
            samples_per_insert,
            error_items,
            window_items_min,
            window_exponent,
            window_slope,
            capacity_items,
            age_max_hours,
            bytes_max,
            lag,
        } = message;
        let selector = selector.map(|selector| super::name("selector", selector)).transpose()?;
        let lag = lag.map(|lag| match lag {
            Lag::LagVersionsMax(versions) => LagBound::Versions(versions),
            Lag::LagUnbounded(_) => LagBound::Unbounded,
        });
        Ok(Self {
            table: table_name("table", table)?,
            selector,
            exponent,
            half_life_versions,
            max_times_sampled,
            min_items,
            samples_per_insert,
            error_items,
            window_items_min,
            window_exponent,
            window_slope,
            capacity_items,
            age_max_hours,
            bytes_max,
            lag,
        })
    }
}

fn names(field: &str, names: Vec<String>) -> Result<Vec<String>, Invalid> {
    names.into_iter().enumerate().map(|(index, name)| super::name(&format!("{field}[{index}]"), name)).collect()
}
