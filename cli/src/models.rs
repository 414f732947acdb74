//! Finds bundled models by name, and lists them: directories of [`ModelFolder`]s next to the program or in a checkout.
//!
//! Start with [`find`].

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use figures::table::{MISSING, Table};
use training::ModelLayers;
use version_store::ModelFolder;

/// Environment variable with a directory of models, which comes before the other directories.
const VARIABLE: &str = "ZEROFLEET_MODELS";
/// Directories of models relative to the directory of the program: in archives, installations, the Python packages
/// `zerofleet` and `zerofleet_torch`, and checkouts.
const BESIDE_PROGRAM: [&str; 5] =
    ["models", "../models", "../share/zerofleet/models", "../../zerofleet/models", "../../models"];

/// Returns the path of the model that the command line names: the path itself, or the folder of a bundled model.
///
/// # Errors
/// No file and no bundled model has the name; the error lists the bundled models and the directories.
pub(crate) fn find(model: &Path) -> anyhow::Result<PathBuf> {
    find_in(&places(), model)
}

/// Rejects an environment in Python that only a model names, because the name selects the code to run.
///
/// # Errors
/// `game` is an environment in Python.
pub(crate) fn check_built_in(game: &str) -> anyhow::Result<()> {
    ensure!(
        !games::is_outside(game),
        "the model plays {game:?}, and the name selects Python code to run; to run the code, add --set run.game=NAME \
         with this name"
    );
    Ok(())
}

/// Writes a table of the bundled models with name, game, parameters, and the first line of the model card. A model that
/// cannot be read has the error in place of the description.
///
/// # Errors
/// `output` cannot be written.
pub(crate) fn write_table(output: &mut impl Write) -> anyhow::Result<()> {
    write_table_of(&places(), output)
}

/// Returns the directories of bundled models in the order of the search; some may be missing.
fn places() -> Vec<PathBuf> {
    let program = env::current_exe().unwrap_or_default();
    env::var_os(VARIABLE).map(PathBuf::from).into_iter().chain(beside(&program)).collect()
}

fn beside(program: &Path) -> [PathBuf; BESIDE_PROGRAM.len()] {
    let folder = program.parent().unwrap_or(Path::new(""));
    BESIDE_PROGRAM.map(|place| folder.join(place))
}

fn find_in(places: &[PathBuf], model: &Path) -> anyhow::Result<PathBuf> {
    let is_path = model.is_file() || model.join(ModelFolder::CONFIG).is_file() || model.components().count() != 1;
    if is_path {
        return Ok(model.to_owned());
    }
    let (mut bundled, name) = (bundled(places), model.to_string_lossy());
    let found = bundled.remove(&*name);
    found.with_context(|| {
        let names: Vec<&str> = bundled.keys().map(String::as_str).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        format!("{name} is neither a file nor a bundled model ({names}); models are in {}", places.join(", "))
    })
}

/// Returns the folder of every bundled model, by name. Of equal names, the first place has precedence.
fn bundled(places: &[PathBuf]) -> BTreeMap<String, PathBuf> {
    let entries = places.iter().rev().flat_map(fs::read_dir).flatten().flatten();
    let folders = entries.map(|entry| entry.path()).filter(|folder| folder.join(ModelFolder::CONFIG).is_file());
    folders.filter_map(|folder| Some((folder.file_name()?.to_str()?.to_owned(), folder))).collect()
}

fn write_table_of(places: &[PathBuf], output: &mut impl Write) -> anyhow::Result<()> {
    let mut table = Table::default().words(["model", "game"]).numbers(["parameters"]).words(["description"]);
    for (name, folder) in bundled(places) {
        let unread = |error: anyhow::Error| [MISSING.to_owned(), MISSING.to_owned(), service::chain(&error)];
        let [game, parameters, description] = columns(&folder).unwrap_or_else(unread);
        table.row([name, game, parameters, description]);
    }
    Ok(write!(output, "{table}")?)
}

/// Returns game, parameters and description of a model.
fn columns(folder: &Path) -> anyhow::Result<[String; 3]> {
    let architecture = ModelFolder::manifest(folder)?.architecture;
    let parameters = ModelLayers::new(&architecture)?.parameters();
    Ok([architecture.game, parameters.to_string(), description(folder)])
}

/// Returns the first line of a model card, after the metadata of hubs; empty without a card.
fn description(folder: &Path) -> String {
    let card = fs::read_to_string(folder.join(ModelFolder::CARD)).unwrap_or_default();
    let metadata = card.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    let text = metadata.map_or(&*card, |(_, text)| text);
    let mut lines = text.lines().map(|line| line.trim_start_matches('#').trim());
    lines.find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::trained::tests::model;
    use crate::trained::{Args, Trained};

    /// Returns two places: one with the models `first` and `second`, one with `second` and a file of another program.
    fn folders() -> (tempfile::TempDir, Vec<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let given = model(&folder.path().join("runs"), "hex-4", 1);
        let places = ["own", "bundled", "missing"].map(|place| folder.path().join(place));
        for (place, name) in [(0, "first"), (0, "second"), (1, "second")] {
            let to = places[place].join(name);
            fs::create_dir_all(&to).unwrap();
            for file in [ModelFolder::CONFIG, ModelFolder::WEIGHTS] {
                fs::copy(given.join(file), to.join(file)).unwrap();
            }
        }
        fs::create_dir(places[1].join("empty")).unwrap();
        (folder, places.into())
    }

    #[test]
    fn a_name_is_looked_up_in_the_places_in_order_and_a_path_is_taken_as_it_is() {
        let (_folder, places) = folders();
        let found = |name: &str| find_in(&places, Path::new(name)).map_err(|error| error.to_string());
        assert_eq!(found("second"), Ok(places[0].join("second")));
        for path in [places[1].join("second"), places[1].join("second/config.json"), PathBuf::from("missing/model")] {
            assert_eq!(find_in(&places, &path).unwrap(), path);
        }
        let error = found("empty").unwrap_err();
        let listed = "empty is neither a file nor a bundled model (first, second); models are in ";
        assert!(error.starts_with(listed) && error.contains(&places[2].display().to_string()), "{error}");
        let nowhere = find_in(&places[2..], Path::new("first")).unwrap_err().to_string();
        assert!(nowhere.contains("(none)"), "{nowhere}");
    }

    #[test]
    fn the_table_has_game_parameters_and_the_first_line_of_the_card_after_its_metadata() {
        let (_folder, places) = folders();
        let card = "---\nlicense: mit\n---\n\n# Plays Hex\n\nMore.\n";
        fs::write(places[0].join("first").join(ModelFolder::CARD), card).unwrap();
        let mut output = Vec::new();
        write_table_of(&places, &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((rows.len(), &rows[1][..2], &rows[1][3..]), (3, &["first", "hex-4"][..], &["Plays", "Hex"][..]));
        assert!(rows[2][2].parse::<usize>().unwrap() > 1000 && rows[2].len() == 3, "{text}");
        fs::write(places[0].join("first").join(ModelFolder::CONFIG), "{}").unwrap();
        let mut output = Vec::new();
        write_table_of(&places, &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        let rows: Vec<&str> = text.lines().collect();
        assert!(rows[1].starts_with("first ") && rows[1].contains("config.json: expected "), "{text}");
        assert!(rows[2].starts_with("second ") && rows[2].contains("hex-4"), "{text}");
    }

    #[test]
    fn programs_of_the_package_with_libtorch_find_the_models_of_the_package_without() {
        let (packages, places) = folders();
        fs::create_dir_all(packages.path().join("zerofleet_torch/bin")).unwrap();
        fs::create_dir(packages.path().join("zerofleet")).unwrap();
        fs::rename(&places[0], packages.path().join("zerofleet/models")).unwrap();
        let found = beside(&packages.path().join("zerofleet_torch/bin/zerofleet"));
        assert!(find_in(&found, Path::new("first")).unwrap().ends_with("zerofleet/models/first"));
    }

    #[test]
    fn the_models_in_the_table_of_the_documentation_are_bundled_whole_and_play_from_a_checkout() {
        // Two levels below the checkout, as in target/release.
        let places = beside(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/zerofleet"));
        let text = include_str!("../../models/README.md");
        let (_, rows) = text.split_once("| model |").unwrap();
        let listed = rows.lines().filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0.to_owned()));
        let listed: BTreeSet<String> = listed.collect();
        assert_eq!(bundled(&places).into_keys().collect::<BTreeSet<_>>(), listed);
        let options = Args::newest(PathBuf::new(), "none").options;
        let mut bytes = 0;
        for name in &listed {
            let folder = find_in(&places, Path::new(name)).unwrap();
            let has = |file: &str| folder.join(file).is_file();
            assert!(has(ModelFolder::CARD) && has(ModelFolder::RUN_FILE), "{name}");
            let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
            bytes += files.sum::<u64>();
            assert_eq!(Trained::of_model(&folder, &options, 1).unwrap().game.to_string(), *name);
        }
        assert!(!listed.is_empty() && bytes <= 8_000_000, "{bytes} bytes");
    }
}
