use std::io::Write;
use std::str::FromStr;

use proto::replay::{Inspector, TableChange};

/// A setting in the form KEY=VALUE, with the keys of `[[replay.tables]]`. The server checks both.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    key: String,
    value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
        Ok(Self { key: key.trim().to_owned(), value: value.trim().to_owned() })
    }
}

/// Changes a table of a live server, and prints the settings before and after.
pub(super) async fn configure(
    inspector: &Inspector,
    table: &str,
    settings: &[Setting],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let nothing = TableChange { table: table.to_owned(), ..TableChange::default() };
    let settings = settings.iter().cloned().map(|Setting { key, value }| (key, value)).collect();
    let before = inspector.configure(nothing).await?;
    let now = inspector.configure(TableChange { table: table.to_owned(), settings }).await?;
    writeln!(out, "table {table:<18} {:>16} {:>16}", "before", "now")?;
    for (key, now) in &now {
        let before = before.get(key).map_or("–", String::as_str);
        let mark = if before == now { "" } else { "  changed" };
        writeln!(out, "  {key:<22} {before:>16} {now:>16}{mark}")?;
    }
    Ok(())
}
