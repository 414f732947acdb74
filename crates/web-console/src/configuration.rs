//! The page of the configuration: the effective run file next to the preset of the game.

use fleet::RunDirectory;
use fleet::run_directory::load_run;
use maud::{Markup, html};
use run_file::RunFile;
use service::ConfigError;
use service::config::{Compared, Sources, compared};

use crate::page::table;

/// Path of the page.
pub(crate) const PATH: &str = "/config";

/// Section that the page leaves out: it names files with secrets.
const SECTION_LEFT_OUT: &str = "security";

/// Renders the run file of `run`.
///
/// # Errors
/// The run file cannot be read, or a key is invalid.
pub(crate) fn render(run: &RunDirectory) -> anyhow::Result<Markup> {
    let (game, keys) = compare(run)?;
    Ok(html! {
        h1 { "Configuration of " (run.name()) }
        (differences(&game, &keys))
        h2 { "All keys" }
        p.note { "The effective run file, without the section [security]." }
        @for section in keys.chunk_by(|a, b| a.section == b.section) {
            details { summary { "[" (section[0].section) "]" } (rows(&section[0].section, section.iter())) }
        }
    })
}

/// Returns the game, and the keys of the run file next to the values in the preset.
///
/// # Errors
/// The run file cannot be read, or a key is invalid.
pub(crate) fn compare(run: &RunDirectory) -> Result<(String, Vec<Compared>), ConfigError> {
    let config: RunFile = load_run(run)?;
    let sets = vec![format!("run.game={}", config.run.game)];
    let preset = Sources { file: None, env: std::iter::empty(), sets }.read(games::preset)?.load()?;
    let mut keys = compared(&config, &preset)?;
    keys.retain(|key| key.section != SECTION_LEFT_OUT);
    Ok((config.run.game, keys))
}

/// Renders the keys with another value than in the preset of the game.
pub(crate) fn differences(game: &str, keys: &[Compared]) -> Markup {
    let differing: Vec<&Compared> = keys.iter().filter(|key| key.other.is_some()).collect();
    html! {
        h2 { "Differences from the preset of " (game) }
        @if differing.is_empty() { p.empty { "Every key has the value of the preset." } }
        @else { (rows("Keys with another value than in the preset", differing.into_iter())) }
    }
}

fn rows<'a>(caption: &str, keys: impl Iterator<Item = &'a Compared>) -> Markup {
    let row = |Compared { section, key, value, other }: &Compared| {
        let key = html! { code { (section) "." (key) } };
        let other = html! { @if let Some(other) = other { code { (other) } } @else { span.note { "same" } } };
        vec![key, html! { code { (value) } }, other]
    };
    table(caption, &["key", "value", "preset"], &keys.map(row).collect::<Vec<_>>())
}
