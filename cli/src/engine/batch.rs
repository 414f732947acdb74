//! Analyses games in SGF files and writes the results as JSON: [`Batch`].

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow::{Break, Continue};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail, ensure};
use protocols::{BoardGame, Color, Engine, GameResult, Move, Ply, Record, Search, Setup, sgf, winrate};
use serde::Serialize;
use service::Drain;
use service::directory::replace;

use super::connection::read_file;
use super::network_engine::NetworkEngine;

/// A batch analysis of one SGF file, or of all SGF files in a directory.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    /// Path of an SGF file, or of a directory with files `*.sgf`, in any case.
    pub(super) sgf: &'a Path,
    /// Directory for the analyses, which are JSON files.
    pub(super) output: &'a Path,
    /// True to repeat the analysis of games that already have an output file.
    pub(super) force: bool,
    /// Number of simulations per position.
    pub(super) simulations: u32,
    /// Drain that interrupts the batch at the current position.
    pub(super) drain: &'a Drain,
}

/// The analysis of a game, as serialised to the output file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct GameAnalysis {
    engine: String,
    weights_version: String,
    simulations: u32,
    board_x_size: usize,
    board_y_size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    komi: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    black: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    white: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    /// What was unclear in the file, and where the analysis stops before the end of the main line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    positions: Vec<PositionAnalysis>,
}

/// The analysis of a position. Win rates, from 0 to 1, are from the perspective of `player`; a draw counts as 0.5.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PositionAnalysis {
    /// Number of moves before the position.
    move_number: usize,
    /// The player to move, `B` or `W`.
    player: String,
    /// The move that was played; absent in the last position.
    #[serde(rename = "move", skip_serializing_if = "Option::is_none")]
    played: Option<String>,
    /// The best move by search; absent after the end of the game.
    #[serde(skip_serializing_if = "Option::is_none")]
    best_move: Option<String>,
    winrate: f64,
    visits: u32,
    principal_variation: Vec<String>,
    /// Win rate lost by the played move: the win rate in this position minus the win rate in the next position, both
    /// for `player`. Negative if the search in the next position rates the move higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    winrate_loss: Option<f64>,
}

impl Batch<'_> {
    /// Analyses the games, sorted by file name, and logs a line for each file and each note. The batch continues after
    /// a file that cannot be analysed: an error is printed, and the exit code is a failure.
    ///
    /// # Errors
    /// The SGF files cannot be listed, the output directory cannot be created, or the batch is interrupted.
    pub(super) fn run(&self, engine: &mut NetworkEngine, log: &mut impl Write) -> anyhow::Result<ExitCode> {
        let files = self.files(log)?;
        fs::create_dir_all(self.output).with_context(|| format!("create {}", self.output.display()))?;
        let (mut analysed, mut skipped, mut failed) = (0, 0, 0);
        let mut outputs = BTreeSet::new();
        for file in &files {
            let name = file.file_stem().unwrap_or(OsStr::new("game"));
            let output = self.output.join(name).with_added_extension("json");
            if !outputs.insert(output.clone()) {
                let other = output.display();
                writeln!(io::stderr(), "{}: {other} is the analysis of another file", file.display())?;
                failed += 1;
                continue;
            }
            if output.exists() && !self.force {
                writeln!(log, "{}: skipped, since {} exists", file.display(), output.display())?;
                skipped += 1;
                continue;
            }
            match self.analyse(engine, file, &output) {
                Ok(GameAnalysis { positions, notes, .. }) => {
                    for note in notes {
                        writeln!(log, "{}: note: {note}", file.display())?;
                    }
                    writeln!(log, "{}: {} positions in {}", file.display(), positions.len(), output.display())?;
                    analysed += 1;
                }
                Err(_) if self.drain.started() => {
                    let left = files.len() - analysed - skipped - failed;
                    bail!("interrupted with {left} of {} files left; run the same command to continue", files.len());
                }
                Err(error) => {
                    writeln!(io::stderr(), "{}: {error:#}", file.display())?;
                    failed += 1;
                }
            }
        }
        writeln!(log, "{analysed} analysed, {skipped} skipped, {failed} failed")?;
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Returns the paths of the SGF files, sorted. Logs the names of other files in the directory.
    fn files(&self, log: &mut impl Write) -> anyhow::Result<Vec<PathBuf>> {
        if !self.sgf.is_dir() {
            ensure!(self.sgf.is_file(), "--sgf: no such file or directory: {}", self.sgf.display());
            return Ok(vec![self.sgf.to_owned()]);
        }
        let list = || -> io::Result<Vec<PathBuf>> { fs::read_dir(self.sgf)?.map(|entry| Ok(entry?.path())).collect() };
        let mut files = list().with_context(|| format!("list {}", self.sgf.display()))?;
        files.retain(|path| path.is_file());
        files.sort();
        let is_record = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("sgf"));
        let (records, others): (Vec<_>, Vec<_>) = files.into_iter().partition(is_record);
        for path in others.iter().filter(|path| path.parent() != Some(self.output)) {
            writeln!(log, "{}: skipped, since the suffix is not .sgf", path.display())?;
        }
        ensure!(!records.is_empty(), "--sgf: no *.sgf files in {}", self.sgf.display());
        Ok(records)
    }

    /// Analyses the game in `file`, and writes the analysis to `output`.
    fn analyse(&self, engine: &mut NetworkEngine, file: &Path, output: &Path) -> anyhow::Result<GameAnalysis> {
        let path = file.to_str().ok_or_else(|| anyhow!("the file name is not UTF-8"))?;
        let bytes = read_file(path, sgf::BYTES_MAX as u64)?;
        let game = sgf::read(&bytes)?;
        let analysis = self.analyse_game(engine, &game)?;
        let mut text = serde_json::to_vec_pretty(&analysis)?;
        text.push(b'\n');
        replace(output, &text).with_context(|| format!("write {}", output.display()))?;
        Ok(analysis)
    }

    fn analyse_game(&self, engine: &mut NetworkEngine, game: &sgf::GameFile) -> anyhow::Result<GameAnalysis> {
        let plays = engine.identity().game;
        ensure!(game.game == plays, "the game is {:?}, but the run plays {plays:?}", game.game);
        // A record without komi is analysed with the usual komi for the board size.
        engine.start(&Setup::empty(game.record.setup.size))?;
        let identity = engine.identity().clone();
        let komi = game.komi.unwrap_or(identity.komi);
        let setup = Setup { komi, rules: identity.rules, ..game.record.setup.clone() };
        let size = setup.size;
        Record::new(setup).replay(engine, 0)?;
        let mut positions = Vec::new();
        for (number, ply) in game.record.plies.iter().enumerate() {
            let name = || format!("move {} ({})", number + 1, identity.game.move_name(size, ply.played));
            positions.push(self.position(engine, number, Some(*ply)).with_context(name)?);
            if ply.played == Move::Resign {
                break;
            }
            engine.play(ply.color, ply.played).with_context(name)?;
        }
        if positions.last().is_none_or(|last| last.played.as_deref() != Some("resign")) {
            positions.push(self.position(engine, positions.len(), None)?);
        }
        fill_losses(&mut positions);
        Ok(GameAnalysis {
            engine: identity.name,
            weights_version: identity.version,
            simulations: self.simulations,
            board_x_size: size.width(),
            board_y_size: size.height(),
            komi: (identity.game == BoardGame::Go).then_some(komi),
            black: game.black.clone(),
            white: game.white.clone(),
            result: game.result.map(|result| result.to_string()),
            notes: game.notes.clone(),
            positions,
        })
    }

    /// Analyses the current position of the engine, in which `ply` was played.
    fn position(
        &self,
        engine: &mut NetworkEngine,
        move_number: usize,
        ply: Option<Ply>,
    ) -> anyhow::Result<PositionAnalysis> {
        ensure!(!self.drain.started(), "interrupted");
        let (game, size) = (engine.identity().game, engine.size());
        let color = ply.map_or(engine.to_move(), |ply| ply.color);
        let played = ply.map(|ply| game.move_name(size, ply.played));
        let position =
            PositionAnalysis { move_number, player: color.letter().to_string(), played, ..PositionAnalysis::default() };
        if let Some(result) = engine.outcome().filter(|_| ply.is_none()) {
            return Ok(PositionAnalysis { winrate: winrate_of(result, color), ..position });
        }
        let search = Search { color, visits: Some(self.simulations), restrictions: &[] };
        let drain = self.drain;
        let analysis = engine.search(&search, &mut |_| if drain.started() { Break(()) } else { Continue(()) })?;
        ensure!(!drain.started(), "interrupted");
        let variation = analysis.candidates.first().map(|best| best.variation.as_slice()).unwrap_or_default();
        Ok(PositionAnalysis {
            best_move: Some(game.move_name(size, analysis.choice)),
            winrate: winrate(analysis.value),
            visits: analysis.visits,
            principal_variation: variation.iter().map(|ply| game.move_name(size, ply.played)).collect(),
            ..position
        })
    }
}

/// Computes the win rate lost by each move from the win rate in the next position.
fn fill_losses(positions: &mut [PositionAnalysis]) {
    for index in 1..positions.len() {
        let next = &positions[index];
        let (of_next, next_player) = (next.winrate, next.player.clone());
        let position = &mut positions[index - 1];
        let after = if position.player == next_player { of_next } else { 1.0 - of_next };
        position.winrate_loss = Some(position.winrate - after);
    }
}

fn winrate_of(result: GameResult, color: Color) -> f64 {
    match result {
        GameResult::Win { color: winner, .. } if winner == color => 1.0,
        GameResult::Win { .. } => 0.0,
        GameResult::Draw | GameResult::Void => 0.5,
    }
}
