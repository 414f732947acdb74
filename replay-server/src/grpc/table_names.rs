use std::sync::Arc;

use tonic::Status;

use crate::config::{MAIN, Settings, TableIndex};

/// The tables of a server by their names, which do not change while it lives.
#[derive(Debug, Clone)]
pub(super) struct TableNames(Arc<[String]>);

impl TableNames {
    pub(super) fn of(settings: &Settings) -> Self {
        Self(settings.tables.iter().map(|table| table.name.clone()).collect())
    }

    /// The table of that name; the main one if there is no name.
    pub(super) fn named(&self, name: &str) -> Result<TableIndex, Status> {
        let name = if name.is_empty() { MAIN } else { name };
        let index = self.0.iter().position(|table| table == name).map(TableIndex);
        index.ok_or_else(|| {
            // It may have any length.
            let name: String = name.chars().take(64).collect();
            Status::not_found(format!("there is no table {name:?}, only {}", self.0.join(", ")))
        })
    }
}
