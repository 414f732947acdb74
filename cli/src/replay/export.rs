use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use experience::{ActionProbability, Step, StepKind, Trajectory};
use game::{Game, Outcome, Player};
use games::with_game;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use proto::replay::{Inspector, ListOrder, ListQuery, Located};

use super::show::{id_text, outcome};
use super::{each, game_of};

/// Number of ids listed and held in memory at a time.
const PAGE_IDS: u64 = if cfg!(test) { 8 } else { 4096 };
/// Number of rows buffered per row group.
const ROWS_MAX: usize = 1 << 16;
/// Number of search policy entries buffered per row group.
const POLICY_ENTRIES_MAX: usize = 1 << 20;
/// The Parquet schema. `outcome` is 1 if the first player won, −1 if the second did, 0 for a draw and null in games
/// scored by rewards.
const SCHEMA: &str = "message position {
    required int64 actor;
    required int64 epoch;
    required int64 sequence;
    required int32 ply;
    required int32 action;
    required binary kind (UTF8);
    optional float value;
    required float reward;
    required int64 weights_version;
    optional int32 outcome;
    repeated int32 policy_action;
    repeated float policy_probability;
    required binary game (UTF8);
}";

/// Writes the trajectories of a query to a file, in the format of its extension.
///
/// # Errors
/// Another extension, a file that exists or cannot be written, a server that rejects the request.
pub(super) async fn export(
    inspector: &Inspector,
    query: ListQuery,
    to: &Path,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let ending = to.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let create = || File::create_new(to).with_context(|| format!("create {}", to.display()));
    let written = match ending {
        "parquet" => {
            let mut positions = PositionsFile::new(create()?)?;
            let written = pages(inspector, query, |located| positions.write(located.trajectory)).await?;
            positions.finish()?;
            written
        }
        "txt" => {
            let mut file = BufWriter::new(create()?);
            let written = pages(inspector, query, |located| text(&located.trajectory, &mut file)).await?;
            file.flush()?;
            written
        }
        _ => bail!("{}: expected a file that ends in .parquet or .txt", to.display()),
    };
    writeln!(out, "{written} trajectories in {}", to.display())?;
    Ok(())
}

/// Passes every trajectory of a query to `visit`. Pages of ids bound the memory in id order; other orders need one list
/// of all ids of the query.
async fn pages(
    inspector: &Inspector,
    mut query: ListQuery,
    mut visit: impl FnMut(Located) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    if query.order != ListOrder::Ascending {
        let ids = inspector.list(query).await?;
        return each(inspector, &ids, visit).await;
    }
    let mut left = query.limit.map_or(u64::MAX, NonZeroU64::get);
    let mut seen = 0;
    while let Some(page) = NonZeroU64::new(left.min(PAGE_IDS)) {
        query.limit = Some(page);
        let ids = inspector.list(query.clone()).await?;
        seen += each(inspector, &ids, &mut visit).await?;
        let Some(&last) = ids.last().filter(|_| ids.len() as u64 == page.get()) else { break };
        query.after = Some(last);
        left -= page.get();
    }
    Ok(seen)
}

/// Writes one game on a line: id, outcome and moves in the game's notation.
fn text(trajectory: &Trajectory, file: &mut impl Write) -> anyhow::Result<()> {
    write!(file, "{} {}:", id_text(trajectory.id()), outcome(trajectory.outcome()))?;
    with_game!(game_of(trajectory.game())?, |game| moves(&game, trajectory, file))?;
    Ok(writeln!(file)?)
}

fn moves<G: Game>(game: &G, trajectory: &Trajectory, file: &mut impl Write) -> anyhow::Result<()> {
    let mut position = game.start();
    for step in trajectory.steps() {
        write!(file, " {}", game.action_name(&position, step.action))?;
        if game.try_play(&mut position, step.action).is_err() {
            write!(file, " (not legal)")?;
            break;
        }
    }
    Ok(())
}

/// An open Parquet file with a row for each position.
struct PositionsFile {
    writer: SerializedFileWriter<File>,
    /// The trajectories of the next row group.
    buffered: Vec<Trajectory>,
    rows: usize,
    policy_entries: usize,
}

/// A position of a buffered trajectory.
struct Position<'a> {
    trajectory: &'a Trajectory,
    ply: usize,
    step: Step,
}

impl PositionsFile {
    fn new(file: File) -> anyhow::Result<Self> {
        let schema = Arc::new(parse_message_type(SCHEMA).context("read the schema")?);
        let compression = Compression::ZSTD(ZstdLevel::default());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let writer = SerializedFileWriter::new(file, schema, properties).context("create the Parquet writer")?;
        Ok(Self { writer, buffered: Vec::new(), rows: 0, policy_entries: 0 })
    }

    fn write(&mut self, trajectory: Trajectory) -> anyhow::Result<()> {
        self.rows += trajectory.plies();
        self.policy_entries += trajectory.steps().map(|step| policy(&step).len()).sum::<usize>();
        self.buffered.push(trajectory);
        if self.rows >= ROWS_MAX || self.policy_entries >= POLICY_ENTRIES_MAX {
            self.write_rows()?;
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.write_rows()?;
        self.writer.close().context("close the Parquet writer")?;
        Ok(())
    }

    fn write_rows(&mut self) -> anyhow::Result<()> {
        (self.rows, self.policy_entries) = (0, 0);
        let trajectories = std::mem::take(&mut self.buffered);
        if trajectories.is_empty() {
            return Ok(());
        }
        let positions: Vec<Position<'_>> = trajectories
            .iter()
            .flat_map(|trajectory| {
                trajectory.steps().enumerate().map(move |(ply, step)| Position { trajectory, ply, step })
            })
            .collect();
        let mut rows = self.writer.next_row_group()?;
        write_columns(&mut rows, &positions).context("write positions")?;
        rows.close()?;
        Ok(())
    }
}

/// Writes the columns in the order of the schema.
fn write_columns(rows: &mut SerializedRowGroupWriter<'_, File>, positions: &[Position<'_>]) -> anyhow::Result<()> {
    // Parquet has no unsigned integers; ids keep their bits.
    column::<Int64Type, _>(rows, positions, |at| [at.trajectory.id().actor.cast_signed()])?;
    column::<Int64Type, _>(rows, positions, |at| [at.trajectory.id().epoch.cast_signed()])?;
    column::<Int64Type, _>(rows, positions, |at| [at.trajectory.id().sequence.cast_signed()])?;
    column::<Int32Type, _>(rows, positions, |at| [i32::try_from(at.ply).unwrap_or(i32::MAX)])?;
    column::<Int32Type, _>(rows, positions, |at| [at.step.action.0.into()])?;
    column::<ByteArrayType, _>(rows, positions, |at| {
        [match at.step.kind {
            StepKind::Full { .. } => "full".into(),
            StepKind::Fast { .. } => "fast".into(),
            StepKind::Opening => "opening".into(),
        }]
    })?;
    column::<FloatType, _>(rows, positions, |at| match at.step.kind {
        StepKind::Full { value, .. } | StepKind::Fast { value } => Some(value),
        StepKind::Opening => None,
    })?;
    column::<FloatType, _>(rows, positions, |at| [at.step.reward])?;
    column::<Int64Type, _>(rows, positions, |at| [at.step.weights_version.0.cast_signed()])?;
    column::<Int32Type, _>(rows, positions, |at| match at.trajectory.outcome() {
        Outcome::Win(Player::First) => Some(1),
        Outcome::Win(Player::Second) => Some(-1),
        Outcome::Draw => Some(0),
        Outcome::Finished => None,
    })?;
    column::<Int32Type, Vec<_>>(rows, positions, |at| policy(&at.step).iter().map(|e| e.action.0.into()).collect())?;
    column::<FloatType, Vec<_>>(rows, positions, |at| policy(&at.step).iter().map(|e| e.probability).collect())?;
    column::<ByteArrayType, _>(rows, positions, |at| [ByteArray::from(at.trajectory.game())])
}

fn policy(step: &Step) -> &[ActionProbability] {
    match &step.kind {
        StepKind::Full { policy, .. } => policy,
        StepKind::Fast { .. } | StepKind::Opening => &[],
    }
}

/// Writes a column with the values of each position: one, at most one if the column is optional, any number if it is
/// repeated. Definition levels mark present values; repetition levels mark the start of a list.
fn column<T: DataType, V: IntoIterator<Item = T::T>>(
    rows: &mut SerializedRowGroupWriter<'_, File>,
    positions: &[Position<'_>],
    values_of: impl Fn(&Position<'_>) -> V,
) -> anyhow::Result<()> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for position in positions {
        let before = values.len();
        values.extend(values_of(position));
        let count = values.len() - before;
        for index in 0..count.max(1) {
            defined.push(i16::from(count > 0));
            repeated.push(i16::from(index > 0));
        }
    }
    let mut column = rows.next_column()?.context("the schema has fewer columns")?;
    column.typed::<T>().write_batch(&values, Some(&defined), Some(&repeated))?;
    column.close()?;
    Ok(())
}
