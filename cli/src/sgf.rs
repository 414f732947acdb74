//! Converts games to SGF records. Start with [`Recorder`].

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use game::{Action, Game as _};
use games::AnyGame;
use protocols::sgf::{BYTES_MAX, GameFile, Property, Tree};
use protocols::{BoardGame, Color, GameResult, Ply, Record, Setup};
use service::directory::if_exists;
use strength::notation::Notation;

use crate::game_result::game_result;

/// Value of the SGF property `RU` in Go. SGF has no standard name for these rules.
const GO_RULES: &str = "Tromp-Taylor without suicide";

/// Name of the program in the property `AP` of each record.
const PROGRAM: &str = "zerofleet";

/// Checks that a game may be saved to `file`: there is no such file, or it is empty or a record of this program.
///
/// # Errors
/// The file holds anything else or cannot be read, or there is no directory for it.
pub(crate) fn check_replaceable(file: &Path) -> anyhow::Result<()> {
    let named = || format!("--sgf: read {}", file.display());
    let Some(metadata) = if_exists(fs::metadata(file)).with_context(named)? else {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(folder.is_dir(), "--sgf: no such directory: {}", folder.display());
        return Ok(());
    };
    let is_small = metadata.is_file() && metadata.len() <= BYTES_MAX as u64;
    let bytes = if is_small { Some(fs::read(file).with_context(named)?) } else { None };
    let program = |tree: &Tree| Some(tree.nodes()[0].value("AP")?.split(':').next()? == PROGRAM);
    // A tree with notes is not as this program writes it, or other games follow.
    let is_own = |tree: Tree| tree.notes.is_empty() && program(&tree) == Some(true);
    let is_own = bytes.is_some_and(|bytes| bytes.is_empty() || Tree::parse(&bytes).is_ok_and(is_own));
    ensure!(is_own, "--sgf: {} is no record of this program, and is not replaced: choose another file", file.display());
    Ok(())
}

/// Checks that the directory is suitable for SGF records of a game, and creates the directory if necessary.
///
/// # Errors
/// The game has no SGF format, or the directory cannot be created or already contains records.
pub(crate) fn prepare_directory(folder: &Path, game: &AnyGame) -> anyhow::Result<()> {
    Recorder::of(game)?;
    let failed = || format!("create {}", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    for entry in fs::read_dir(folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        let is_record = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("sgf"));
        ensure!(
            !is_record,
            "{} already contains records, such as {}; choose an empty directory",
            folder.display(),
            path.display()
        );
    }
    Ok(())
}

/// Converts games to SGF records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorder<'a> {
    game: &'a AnyGame,
    notation: Notation,
}

impl<'a> Recorder<'a> {
    /// Returns a recorder for a game.
    ///
    /// # Errors
    /// SGF does not support the game.
    pub(crate) fn of(game: &'a AnyGame) -> anyhow::Result<Self> {
        let notation = Notation::of(game)
            .with_context(|| format!("{} has no SGF format; use Go, Hex, Othello or Gomoku", game.spec().name))?;
        Ok(Self { game, notation })
    }

    /// Returns an SGF tree: node 0 holds the properties of the game, and node i holds move i. `result` overrides the
    /// result by the rules.
    ///
    /// # Errors
    /// An action is illegal.
    pub(crate) fn record(
        &self,
        actions: &[Action],
        result: Option<GameResult>,
        names: [String; 2],
    ) -> anyhow::Result<Tree> {
        let Self { game, notation } = *self;
        let mut position = game.start();
        let mut setup = Setup::empty(notation.size());
        let komi = match game {
            AnyGame::Go(go) => Some(go.komi().points()),
            _ => None,
        };
        setup.komi = komi.unwrap_or(0.0);
        let mut record = Record::new(setup);
        for &action in actions {
            let color = Color::from(game.to_move(&position));
            game.try_play(&mut position, action)?;
            record.plies.push(Ply { color, played: notation.to_move(color, action) });
        }
        let result = result.or_else(|| game.outcome(&position).and_then(|_| game_result(game, &position)));
        let [black, white] = names.map(Some);
        let rules = (notation.game() == BoardGame::Go).then(|| GO_RULES.to_owned());
        let file = GameFile { komi, black, white, rules, ..GameFile::new(notation.game(), record, result) };
        let mut tree = file.to_tree();
        tree.annotate(0, Property::new("AP", format!("{PROGRAM}:{}", env!("CARGO_PKG_VERSION"))));
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use games::GameKind;

    use super::*;

    #[test]
    fn only_a_record_of_this_program_or_an_empty_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("game.sgf");
        check_replaceable(&file).unwrap();
        let game = "go-5".parse::<GameKind>().unwrap().rules();
        let record = Recorder::of(&game).unwrap().record(&[Action(12)], None, ["a", "b"].map(str::to_owned)).unwrap();
        for own in [record.to_string(), String::new()] {
            fs::write(&file, own).unwrap();
            check_replaceable(&file).unwrap();
        }
        for other in [
            "(;GM[1]SZ[5]AP[Sabaki:0.52];B[cc])",
            "(;GM[1]SZ[5];B[cc])",
            "AP[zerofleet:1]",
            "a diary",
            "(;AP[zerofleet:1])(;AP[Sabaki:1])",
        ] {
            fs::write(&file, other).unwrap();
            let error = check_replaceable(&file).unwrap_err().to_string();
            assert!(
                error.ends_with("is no record of this program, and is not replaced: choose another file"),
                "{error}"
            );
        }
        assert!(check_replaceable(folder.path()).is_err());
        let error = check_replaceable(&folder.path().join("none/game.sgf")).unwrap_err().to_string();
        assert!(error.starts_with("--sgf: no such directory: "), "{error}");
    }
}
