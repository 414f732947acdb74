use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;

use proto::replay::{Inspector, LagBound, TableChange};

/// A key of `[[replay.tables]]` that may change while the server runs.
#[derive(Debug)]
struct Key {
    name: &'static str,
    /// Asks for a value; why it cannot be one.
    ask: fn(&mut TableChange, &str) -> Result<(), String>,
    /// The value that is asked for, or in force.
    value: fn(&TableChange) -> Option<String>,
}

macro_rules! key {
    ($name:ident) => {
        Key {
            name: stringify!($name),
            ask: |change, text| parse(text).map(|value| change.$name = Some(value)),
            value: |change| change.$name.as_ref().map(ToString::to_string),
        }
    };
}

static KEYS: [Key; 14] = [
    key!(selector),
    key!(exponent),
    key!(half_life_versions),
    key!(max_times_sampled),
    key!(min_items),
    key!(samples_per_insert),
    key!(error_items),
    key!(window_items_min),
    key!(window_exponent),
    key!(window_slope),
    key!(capacity_items),
    key!(age_max_hours),
    key!(bytes_max),
    Key {
        name: "lag_versions_max",
        // As the run file has it: 0 is any number.
        ask: |change, text| {
            let versions = parse(text)?;
            change.lag = Some(if versions == 0 { LagBound::Unbounded } else { LagBound::Versions(versions) });
            Ok(())
        },
        value: |change| {
            change.lag.map(|lag| match lag {
                LagBound::Versions(versions) => versions.to_string(),
                LagBound::Unbounded => "0".to_owned(),
            })
        },
    },
];

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

/// A setting as people write it: KEY=VALUE, with the keys of `[[replay.tables]]`.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    key: &'static Key,
    value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let names = KEYS.each_ref().map(|key| key.name).join(", ");
            return Err(format!("a table has no `{name}` that can change while it serves; there are {names}"));
        };
        (key.ask)(&mut TableChange::default(), value)?;
        Ok(Self { key, value: value.to_owned() })
    }
}

/// Changes a table of a live server, and prints what held before and what holds now.
pub(super) async fn configure(
    inspector: &Inspector,
    table: &str,
    settings: &[Setting],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let nothing = TableChange { table: table.to_owned(), ..TableChange::default() };
    let mut change = nothing.clone();
    for Setting { key, value } in settings {
        (key.ask)(&mut change, value).map_err(anyhow::Error::msg)?;
    }
    let before = inspector.configure(nothing).await?;
    let now = inspector.configure(change).await?;
    writeln!(out, "table {table:<18} {:>16} {:>16}", "before", "now")?;
    for Key { name, value, .. } in &KEYS {
        let [before, now] = [&before, &now].map(|settings| value(settings).unwrap_or_else(|| "–".to_owned()));
        let mark = if before == now { "" } else { "  changed" };
        writeln!(out, "  {name:<22} {before:>16} {now:>16}{mark}")?;
    }
    Ok(())
}
