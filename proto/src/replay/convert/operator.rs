use std::collections::BTreeMap;

use experience::Trajectory;

use super::table::checked_table;
use crate::convert::{
    self, Invalid, at_most, between, cut, inside, invalid, required, sentence, table_name, wire_count,
};
use crate::limits::{PRIORITIES_MAX, STEPS_MAX, TABLE_KEYS_MAX};
use crate::replay::{ItemPriority, Located, PriorityUpdate, Quarantine, ServerStats, Suspect, TableChange, v1};
use v1::quarantine_request::Suspect as Quarantined;
use v1::release_request::Suspect as Released;

impl From<ServerStats> for v1::StatsResponse {
    fn from(ServerStats { table, tables, memory_bytes }: ServerStats) -> Self {
        Self { table: Some(table), tables, memory_bytes }
    }
}

impl TryFrom<v1::StatsResponse> for ServerStats {
    type Error = Invalid;

    fn try_from(v1::StatsResponse { table, tables, memory_bytes }: v1::StatsResponse) -> Result<Self, Invalid> {
        let table = checked_table(required("table", table)?).map_err(inside("table"))?;
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

impl From<Located> for v1::GetResponse {
    fn from(located: Located) -> Self {
        let Located { trajectory, tables, inserted_unix_ms, quarantined, revision, revised_unix_ms } = located;
        let trajectory = Some(trajectory.into());
        Self { trajectory, tables, inserted_unix_ms, quarantined, revision, revised_unix_ms }
    }
}

impl TryFrom<v1::GetResponse> for Located {
    type Error = Invalid;

    fn try_from(message: v1::GetResponse) -> Result<Self, Invalid> {
        let v1::GetResponse { trajectory, tables, inserted_unix_ms, quarantined, revision, revised_unix_ms } = message;
        let trajectory = required("trajectory", trajectory)?;
        let trajectory = Trajectory::try_from(trajectory).map_err(inside("trajectory"))?;
        let tables = names("tables", tables)?;
        Ok(Self { trajectory, tables, inserted_unix_ms, quarantined, revision, revised_unix_ms })
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
        at_most("priorities", priorities.len(), "entries", PRIORITIES_MAX)?;
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

/// Checks new settings for a table. The server, which has the table, checks keys and values.
///
/// # Errors
/// [`Invalid`] names the field.
pub fn change_from_wire(
    v1::ConfigureRequest { table, settings }: v1::ConfigureRequest,
) -> Result<TableChange, Invalid> {
    Ok(TableChange { table: table_name("table", table)?, settings: checked_settings(settings)? })
}

/// Checks the number and the lengths of table settings.
pub(crate) fn checked_settings(settings: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Invalid> {
    at_most("settings", settings.len(), "entries", TABLE_KEYS_MAX)?;
    let one = |(key, value)| Ok((convert::name("settings", key)?, sentence("settings", value)?));
    settings.into_iter().map(one).collect()
}

fn names(field: &str, names: Vec<String>) -> Result<Vec<String>, Invalid> {
    names.into_iter().enumerate().map(|(index, name)| convert::name(&format!("{field}[{index}]"), name)).collect()
}
